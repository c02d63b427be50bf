// Package content is the bytes of one regular file, and what becomes of them.
//
//	plain               just written, or never packed: a file of the host as any other
//	resident            packed, and the bytes of the inode are a cache; reads pass through them
//	packed              hollow: reads are put together from chunks
//
//	       last close, packed        evicted (least recently used, by hand)
//	plain ───────────────────▶ resident ─────────────────────────────▶ packed
//	    ▲                         │    ▲                                 │
//	    └── opened for writing ───┘    └─ hydrated (by hand, or read ────┤
//	    ▲                                 often: hot)                    │
//	    └───────────────── opened for writing: hydrated and synced first ┘
//
// The bytes being written are the host filesystem's: a File reaches its inode by the interface Inode and
// knows no names. Package ckptfs/fs/tree says which copy is true when; this package keeps to it. The parts
// that have to know what became of a file (the queue, the cache of resident bytes, checksums) are told by
// Events.
//
//	File     the record, and the parts below, all guarded by File.mu (file.go, state.go)
//	  users    who has the file open, and in which mode the kernel serves them (users.go)
//	  bytes    which generation of the bytes this is, and what is known of it (file.go)
//	  local    what is known of the resident bytes of a packed file (file.go)
//	  src      what reads go to, which has a lock of its own (source.go)
//	Handle   an open file: it is read, written and copied by handles (open.go, handle.go, copy.go, ranges.go)
//	Packing  the packing of a plain file, which fs/queue carries out (packing.go)
//	Files    what all files share (this file)
//
// Each transition is one file: unpack.go (and verify.go), evict.go, hydrate.go, clone.go (packed by a copy),
// recover.go (after a crash). Evict decides whether a file may lose its resident bytes, and does it.
//
// close(2) is Handle.Flush. The last close is Handle.Release, which ends in writersGoneLocked when no writer
// is left: there it is decided whether the file is to be packed.
//
// locks.go has the order of the locks. A function whose name ends in Locked needs File.mu. It is held over a
// transition, but for the hydration of the bytes, and over no read of a program.
package content

import (
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/cas/proven"
	"ckptfs/cas/store"
	"ckptfs/fs/assemble"
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
)

// NodeID is the kernel's name for a node while it knows it. The root is 1. A node id is never used twice.
type NodeID uint64

// Kernel is what a volume asks of the side that mounts it. A volume without one serves every handle itself.
type Kernel interface {
	// RegisterBacking lets the kernel read and write the open file fd by itself.
	RegisterBacking(fd int) (int32, error)
	UnregisterBacking(id int32)
	// InvalidateData drops the kernel's cached bytes [off, off+n) of a node, all of them for n = 0, none for
	// off < 0, and its attributes.
	InvalidateData(id NodeID, off, n int64)
	// InvalidateName has the kernel ask again for a name of a directory, whatever it knows of it. It may wait
	// for a request about that directory: no lock is held.
	InvalidateName(dir NodeID, name string)
}

// noKernel is for a volume that is not mounted.
type noKernel struct{}

func (noKernel) RegisterBacking(int) (int32, error)     { return 0, unix.ENOTSUP }
func (noKernel) UnregisterBacking(int32)                {}
func (noKernel) InvalidateData(id NodeID, off, n int64) {}
func (noKernel) InvalidateName(NodeID, string)          {}

// Inode is what a file asks of the inode that it is the bytes of.
type Inode interface {
	ID() NodeID
	Ino() uint64
	Path() string // by one of its names
	Dead() bool   // no name leads to it
	// Open opens the inode itself. A daemon without privileges opens one too whose mode denies its owner.
	Open(flags int) (*os.File, error)
	// OpenBeside opens what a path below the mount's root leads to, without following symbolic links.
	OpenBeside(path string, flags int) (*os.File, error)
	Stat(*unix.Stat_t) error
	SetHost(*tree.SetAttr) error // mode, owner, times
	ReadRecord() (tree.Record, error)
	WriteRecord(*tree.Record) error
	// Changes is told, before the bytes change, which generation they will be of (State.Gen).
	Changes(gen uint64)
	Pin() // keeps it known until as many Unpins
	Unpin()
}

// Events is told what becomes of a file. Its methods are called with the file's mu held: they take leaf locks
// at most, and wait for nothing.
type Events interface {
	Writing(f *File)                   // the first writer came
	Written(f *File, torn bool)        // the last one went; torn: one was killed before it was done
	Dirty(f *File)                     // it is to be packed: its last writer went, or a writer could not come
	Plain(f *File)                     // it stays as it is
	Packed(f *File)                    // it has a manifest now
	Unpacked(f *File, before cas.Hash) // it is about to lose its manifest
	Resident(f *File, bytes int64)     // that many bytes of a packed file are a cache; 0: none any more
	Opened(f *File, opens int)         // a packed file was opened, so often since it was packed
	Closed(f *File, read int64)        // a handle was closed that had read so much of the manifest
	Idle(f *File)                      // its last use ended
	Lost(f *File, why error)           // it is plain, and the disk did not take all that was written to it
	Unsummed(f *File)                  // a plain file may want a checksum
	Unsynced(f *File)                  // a clean end has to make its record durable, or what that speaks of
}

// Parts is what a volume's files are made of.
type Parts struct {
	ID       [16]byte // the store's
	ReadOnly bool
	Store    *store.Store
	Known    *proven.Known // that of the store; nil: nothing is known, and all is read
	Assemble *assemble.Reader
	Remote   Remote // nil: there is none
	Pack     *pack.Packer
	Epoch    func() uint32 // the boot's, as checksums name it
	Now      func() time.Time
	Report   func(level slog.Level, msg string, args ...any)
	Events   Events
	// Plain reports whether the file at a path is never to be packed; nil: none is.
	Plain func(path string) bool
	// ReadOnce reports whether a file is to leave memory when nobody has it open; nil: none is. File.mu is
	// held.
	ReadOnce func(*File) bool
}

// Around is whether files are read and written around this process.
type Around struct {
	Passthrough atomic.Bool // the kernel does so, for programs that open them in the mount
	Outsiders   atomic.Bool // programs may do so that had them open before there was a mount
}

// Files is what all files share.
type Files struct {
	ID       [16]byte
	readOnly bool
	store    *store.Store
	known    *proven.Known
	asm      reader
	pack     *pack.Packer
	epoch    func() uint32
	now      func() time.Time
	report   func(level slog.Level, msg string, args ...any)
	events   Events

	kernel atomic.Pointer[Kernel]
	Around
	copiers  *copiers
	Count    Counters
	Doubt    Doubt
	Unclean  bool // the last process did not close the store in order; set before any file is known
	syncs    syncs
	unsynced unsyncedInodes
	copyBufs sync.Pool

	// Cloning is held shared from the look at a manifest until another file has it: a mark waits for it.
	Cloning locks.RWMutex[cloningLock]

	parsing locks.Mutex[parseLock] // see parseAlone

	plain    func(path string) bool
	readOnce func(*File) bool
	// Ending is set once nobody waits for a hydration any more: one that is under way ends with an error.
	Ending atomic.Bool
	Seams
}

// Seams are what tests replace.
type Seams struct {
	Step   func(what string) error       // called before each change of the disk by a transition
	Fsync  func(fd int, data bool) error // fsync(2) of an inode, or with data set fdatasync(2)
	Failed func(fd int) error            // tree.WritebackFailed
	Punch  func(fd int) error            // tree.Punch
	Past   func(Inode) (*os.File, error) // opens an inode for reads past the page cache
}

// Doubt is set when bytes may be resident that may be wrong; see LoadLocked.
type Doubt struct {
	atomic.Bool
	Tell func() // has the next process know of it; it writes to the disk at most
	// Counted reports whether a packed file became resident since the start, or was found to be by the
	// survey.
	Counted func(ino uint64) bool
}

// New makes what the files of a volume share.
func New(p Parts) *Files {
	if p.Known == nil {
		p.Known = proven.New(nil)
	}
	if p.Remote == nil {
		p.Remote = noRemote{}
	}
	c := &Files{
		ID: p.ID, readOnly: p.ReadOnly, store: p.Store, known: p.Known,
		asm: reader{p.Assemble, p.Remote}, pack: p.Pack,
		epoch: p.Epoch, now: p.Now, report: p.Report, events: p.Events,
		copiers: newCopiers(), plain: p.Plain, readOnce: p.ReadOnce,
		Seams: Seams{
			Step: func(string) error { return nil }, Fsync: fsync,
			Failed: tree.WritebackFailed, Punch: tree.Punch, Past: openPast,
		},
	}
	if c.plain == nil {
		c.plain = func(string) bool { return false }
	}
	if c.readOnce == nil {
		c.readOnce = func(*File) bool { return false }
	}
	c.SetKernel(noKernel{})
	c.Doubt.Tell, c.Doubt.Counted = func() {}, func(uint64) bool { return false }
	c.syncs.forgotten.after = map[uint64]uint64{}
	c.unsynced.most = min(mostKept, tree.Descriptors()/12) // with names.keptDirs a quarter of all
	c.syncs.most = int64(c.unsynced.most)
	c.unsynced.kept = map[*File]unsyncedInode{}
	c.copyBufs.New = func() any { b := make([]byte, 4<<20); return &b }
	return c
}

// SetKernel says what the volume is mounted by.
func (c *Files) SetKernel(k Kernel) { c.kernel.Store(&k) }

// Kernel is what the volume is mounted by.
func (c *Files) Kernel() Kernel { return *c.kernel.Load() }
