package volume

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
	// InvalidateData drops the kernel's cached bytes [off, off+n) of a node, all of them for n = 0, none for off < 0, and
	// its attributes.
	InvalidateData(id NodeID, off, n int64)
}

// noKernel is for a volume that nobody mounted.
type noKernel struct{}

func (noKernel) RegisterBacking(int) (int32, error)     { return 0, unix.ENOTSUP }
func (noKernel) UnregisterBacking(int32)                {}
func (noKernel) InvalidateData(id NodeID, off, n int64) {}

// inode is what a file asks of the inode that it is the bytes of.
type inode interface {
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

// fileEvents is told what becomes of a file. Its methods are called with the file's mu held: they take leaf locks at most, and
// wait for nothing.
type fileEvents interface {
	Writing(f *file, open bool)        // the first writer came; the last one went
	Dirty(f *file)                     // nobody writes it any more: it is to be packed
	Plain(f *file)                     // it stays as it is
	Packed(f *file)                    // it has a manifest now
	Unpacked(f *file, before cas.Hash) // it is about to lose its manifest
	Resident(f *file, bytes int64)     // that many bytes of a packed file are a cache; 0: none any more
	Opened(f *file, opens int)         // a packed file was opened, so often since it was packed
	Closed(f *file, read int64)        // a handle was closed that had read so much of the manifest
	Idle(f *file)                      // its last use ended
	Unsummed(f *file)                  // a plain file may want a checksum
	Unsynced(f *file)                  // of its record, or of what that says, a clean end has to make something durable
}

// Shared is what a volume's files are made of.
type fileParts struct {
	ID       [16]byte // the store's
	ReadOnly bool
	Store    *store.Store
	Assemble *assemble.Reader
	Pack     *pack.Packer
	Epoch    func() uint32 // the boot's, as checksums name it
	Now      func() time.Time
	Report   func(level slog.Level, msg string, args ...any)
	Events   fileEvents
}

// contentFiles is what all files share.
type contentFiles struct {
	id       [16]byte
	readOnly bool
	store    *store.Store
	asm      *assemble.Reader
	pack     *pack.Packer
	epoch    func() uint32
	now      func() time.Time
	report   func(level slog.Level, msg string, args ...any)
	events   fileEvents

	kernel      Kernel
	passthrough atomic.Bool
	copiers     *copiers
	cloning     sync.RWMutex // held shared from the look at a manifest until another file has it; see marker
	copyBufs    sync.Pool
	count       counters
	doubt       bool                    // bytes may be resident that no boot can vouch for; see load
	step        func(what string) error // called before each change on the disk that a transition makes; for tests
}

func newContentFiles(p fileParts) *contentFiles {
	c := &contentFiles{
		id: p.ID, readOnly: p.ReadOnly, store: p.Store, asm: p.Assemble, pack: p.Pack, epoch: p.Epoch, now: p.Now, report: p.Report,
		events: p.Events, kernel: noKernel{}, copiers: newCopiers(), step: func(string) error { return nil },
	}
	c.copyBufs.New = func() any { b := make([]byte, 4<<20); return &b }
	return c
}
