// Package content is the bytes of one regular file, and what becomes of them.
//
//	plain               just written, or never packed: a file of the host as any other
//	resident + packed   the bytes of the inode are a cache; reads pass through them
//	packed              hollow: reads are put together from chunks
//
//	       last close, packed             evicted (least recently used, by hand)
//	plain ───────────────────▶ resident + packed ─────────────────▶ packed
//	    ▲                              │         ▲                       │
//	    └──── opened for writing ──────┘         └─ hydrated (proved hot) ┤
//	    ▲                                                                │
//	    └───────────────── opened for writing: hydrated and synced first ┘
//
// The bytes being written are the host filesystem's: a File reaches its inode by the interface Inode and
// knows no names. Package ckptfs/fs/tree says which copy is true when; this package keeps to it. The parts
// that have to know what became of a file (the queue, the cache of resident bytes, checksums) are told by
// Events.
//
// close(2) is Handle.Flush; the last close is Handle.Release, which ends in writersGone when no writer is
// left: there it is decided whether the file is to be packed. Evict decides whether a file may lose its
// resident bytes, and does it.
//
// Locks: File.mu before everything else, then what Inode and Events take, then File.io. A function whose name
// ends in Locked needs File.mu; it is held across no read of a program, but across a transition.
package content

import (
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
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
}

// noKernel is for a volume that nobody mounted.
type noKernel struct{}

func (noKernel) RegisterBacking(int) (int32, error)     { return 0, unix.ENOTSUP }
func (noKernel) UnregisterBacking(int32)                {}
func (noKernel) InvalidateData(id NodeID, off, n int64) {}

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
	Pin() // keeps it known until as many Unpins
	Unpin()
}

// Events is told what becomes of a file. Its methods are called with the file's mu held: they take leaf locks
// at most, and wait for nothing.
type Events interface {
	Writing(f *File, open bool)        // the first writer came; the last one went
	Dirty(f *File)                     // nobody writes it any more: it is to be packed
	Plain(f *File)                     // it stays as it is
	Packed(f *File)                    // it has a manifest now
	Unpacked(f *File, before cas.Hash) // it is about to lose its manifest
	Resident(f *File, bytes int64)     // that many bytes of a packed file are a cache; 0: none any more
	Opened(f *File, opens int)         // a packed file was opened, so often since it was packed
	Closed(f *File, read int64)        // a handle was closed that had read so much of the manifest
	Idle(f *File)                      // its last use ended
	Unsummed(f *File)                  // a plain file may want a checksum
	Unsynced(f *File)                  // a clean end has to make its record durable, or the bytes that it speaks of
}

// Parts is what a volume's files are made of.
type Parts struct {
	ID       [16]byte // the store's
	ReadOnly bool
	Store    *store.Store
	Assemble *assemble.Reader
	Pack     *pack.Packer
	Epoch    func() uint32 // the boot's, as checksums name it
	Now      func() time.Time
	Report   func(level slog.Level, msg string, args ...any)
	Events   Events
}

// Files is what all files share.
type Files struct {
	ID       [16]byte
	readOnly bool
	store    *store.Store
	asm      *assemble.Reader
	pack     *pack.Packer
	epoch    func() uint32
	now      func() time.Time
	report   func(level slog.Level, msg string, args ...any)
	events   Events

	Kernel      Kernel
	Passthrough atomic.Bool
	Copiers     *copiers
	Cloning     sync.RWMutex // shared from the look at a manifest until another file has it; see a sweep's mark
	copyBufs    sync.Pool
	Count       Counters
	Doubt       bool                    // bytes may be resident that no boot can vouch for; see LoadLocked
	Step        func(what string) error // called before each change of the disk by a transition; for tests
}

// New makes what the files of a volume share.
func New(p Parts) *Files {
	c := &Files{
		ID: p.ID, readOnly: p.ReadOnly, store: p.Store, asm: p.Assemble, pack: p.Pack,
		epoch: p.Epoch, now: p.Now, report: p.Report, events: p.Events,
		Kernel: noKernel{}, Copiers: newCopiers(), Step: func(string) error { return nil },
	}
	c.copyBufs.New = func() any { b := make([]byte, 4<<20); return &b }
	return c
}
