// Package handover is the memory that a daemon leaves to the one that takes its mount over: what the kernel
// was told, which it will not say again.
//
// The memory is a memfd. It is passed from process to process with the descriptor of the FUSE device, and is
// gone with the last of them. One daemon at a time writes to it. The package knows nothing of FUSE: to it the
// kernel's requests are bytes, and their uniques are numbers.
//
// # Consistency
//
// A daemon may be killed between any two instructions, and what it has stored by then stays. So every change
// writes what nobody looks at yet, and ends with one atomic store, which publishes it. There is no fsync, for
// the mount does not outlive the host either. A call that has returned is kept. One that was cut off has
// happened in full, or not at all.
//
// # Layout
//
// Integers are in the machine's own order, since the memory never leaves the machine; every one of them is
// aligned. Pages appear when they are written. So are they when they are read through the mapping, and that
// is why each table has a mark behind the last slot that was ever used.
//
//	0        4K      132K       140K      652K      3212K     3212K+64M        + 1G
//	├─ header ─┼─ notes ─┼─ suspects ─┼─ flights ─┼─ journal ─┼─ handles ─┼─ nodes ─┤
//	              16·2·4K   2·256·16    2·4096·64   4096·640     2^20·64    2·512M
//
// Header, with its words that are stored atomically marked *:
//
//	  0   8  magic "ckpthand"
//	  8   8  version: 2
//	 16   8  flights in a table
//	 24   8  slots of the journal
//	 32   8  slots of the handles
//	 40   8  bytes in a half of the nodes
//	 48  16  0
//	 64   8  * life: how many daemons began; its lowest bit says which of two tables is true
//	 72  16  suspects in each table
//	 88   8  * highest backing id
//	 96   8  * first node id that was never used
//	104   8  * which half of the nodes is true: 0 or 1
//	112  16  * bytes that are used of each half
//	128   8  * slots of the journal that were ever used
//	136   8  * slots of the handles that were ever used
//	144  16  * flights of each table that were ever used
//	160  32  0
//	192 128  * notes, a word each: bits 0 to 31 its length, 32 which copy is true, 63 whether there is one
//
// The magic and the version keep their places in all versions. The next four numbers are the geometry; what
// follows from it is where everything lies.
//
// # Notes
//
// A note is up to 4096 bytes, and has room for two copies: the one that is not true is written, then its word
// changes. Notes 0 and 1 are the kernel's INIT request and the answer to it. The others have the names that
// SetNote takes, in their order; those of higher numbers are unused.
//
// # Nodes
//
// One half is a log of records. The last record of an id counts.
//
//	 0  2  length of the record, a multiple of 8
//	 2  1  kind: 1 the node is there, 2 it is dropped
//	 3  1  length n of the name
//	 4  2  the type, as in the mode of an inode (S_IFMT)
//	 6  1  bit 0: it is synthetic; 1: made, see below
//	 7  1  0
//	 8  8  id
//	16  8  inode         a record of kind 2 ends before this
//	24  8  parent's id
//	32  n  name
//	       0 to 7 bytes of anything, up to a multiple of 8
//
// A record that says of what bytes a view is made, or that there are views of a file, has before its name
//
//	32  8  id of the source, if it is synthetic
//	40  8  generation: of the source's bytes, or of the file's own
//	48  8  size, if it is synthetic
//
// A record is appended behind the bytes that are used, then their number changes. To compact the log, the
// records that count are written to the other half in their order, then its number, then which half is true.
// The pages of the half before are given back, but for its first 4 MiB. This happens when a half is full, or
// larger than 4 MiB and four times what counts. When what counts fills seven eighths of a half, no more is
// taken (ErrFull), for every few records would have to be paid for with a compaction.
//
// The reader keeps where the record of each id lies, and no copy of it.
//
// # Handles
//
// A slot is 64 bytes. The number by which the kernel knows a handle is its slot + generation<<32. The
// generation grows with each use of the slot. So a RELEASE that comes twice ends no other's handle.
//
//	 0  8  * state: bits 0 to 7 kind (0 free, 1 file, 2 directory), 8 which copy is true,
//	         32 to 63 generation
//	 8  8  node id
//	16  8  unique of the request that opened it
//	24 16  first copy: flags, thread, mode, backing id (4 each)
//	40 16  second copy
//	56  8  0
//
// # Journal
//
// A slot is 640 bytes:
//
//	  0   8  * state: bits 0 to 31: 0 free, 1 begun, 2 done; 32 to 63: status, if done
//	  8   8  unique
//	 16   4  op
//	 20   2  lengths of the two names
//	 22   2  0
//	 24  40  dir, dir2, ino, ino2, arg (8 each)
//	 64   8  node, if done
//	 72 256  name
//	328 256  second name
//	584  56  0
//
// # Flights and suspects
//
// A flight is the unique of a request that is worked on, or 0, alone in a cache line of 64 bytes, so that
// threads do not disturb each other. A suspect is a unique and the number of crashes in a row that it was
// under way at (8 each). Of both there are two tables. That of the lowest bit of the life is true. The next
// life prepares the other, then counts the life up: so the suspects are those of the flights that it found.
package handover

import "errors"

// Version of the layout that this package writes, and the only one that it reads.
const Version = 2

var (
	// ErrVersion says that a descriptor leads to a memory of another version or geometry, or to something
	// else.
	ErrVersion = errors.New("not a memory of this version")
	// ErrDamaged says that a memory holds what no daemon wrote.
	ErrDamaged = errors.New("memory is damaged")
	// ErrFull says that there is no room for a node.
	ErrFull = errors.New("no room for another node")
	// ErrTooLong says that something is longer than its room.
	ErrTooLong = errors.New("too long")
	// ErrKey says that there is no note of that name.
	ErrKey = errors.New("no such note")
)

const (
	maxName = 255 // bytes in a name
	page    = 4096
)
