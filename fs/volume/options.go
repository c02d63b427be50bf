package volume

import (
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/fs/queue"
	"ckptfs/fs/tree"
)

// ErrNotStore: the folder is no ckptfs store.
var ErrNotStore = tree.ErrNotStore

// ErrNeedsRecovery: the store was not closed in order, and is to be opened without changing it.
var ErrNeedsRecovery = tree.ErrNeedsRecovery

// LockedError is the error when another process has the store open.
type LockedError = tree.LockedError

// Options are how a store is opened.
type Options struct {
	Dir     string // the store's folder, absolute
	Create  bool   // make a store if there is none
	Foreign bool   // the store may belong to another user than the caller and root
	// ReadOnly changes nothing at all, beside other readers; ErrNeedsRecovery if the store is not in order.
	ReadOnly bool
	Shown
	HotSize int64 // bytes of packed files to keep resident; -1: DefaultHotSize
	// MaxUnpacked bytes may wait to be packed before closes wait; 0: a quarter of the free disk; -1: no
	// bound.
	MaxUnpacked int64
	Most        Most
	CacheBytes  int64 // bytes of decoded chunks to keep in memory; 0: a default
	ExpectBytes int64 // bytes of segments to read ahead into memory; 0: a default
	// Mapped is called with how many of CacheBytes do not lie in Go's heap, whenever that changes. It must
	// not wait; nil: none.
	Mapped func(int64)
	// Room is called once, with what is to be told how many of CacheBytes are needed for something else; nil:
	// none ever are.
	Room        func(yield func(n int64))
	PackWorkers int   // cores that packing may use; 0: those that other programs leave idle
	PackBytes   int64 // memory that packing may use, beside the store's; 0: no bound
	LayoutBytes int64 // memory that a file's tensors may take while they are read; 0: the formats' own bounds
	Alone
	// SumAfter is for how long a plain file rests before its checksum is made; 0: a default; negative: no
	// checksums.
	SumAfter time.Duration
	// IDsAfter is for how long a packed file rests before its artifact id is computed; 0: a default;
	// negative: ids are computed only when a program asks for them.
	IDsAfter time.Duration
	// HydrateAfter is for how long no program reads packed files before a hot one is hydrated; 0: a default;
	// negative: at once.
	HydrateAfter time.Duration
	RemoteOptions
	Moving
	Inherited
	// Disk is how many bytes the disk has, and has free: what is resident is evicted, and the remote's cache
	// trimmed, while less than a fiftieth is free. nil: the disk that Dir lies on.
	Disk queue.Space
	Now  func() time.Time                                // nil: time.Now
	Log  func(level slog.Level, msg string, args ...any) // nil: silent
}

// Shown says what is shown of what is in the tree.
type Shown struct {
	NoViews  bool // no synthesised files
	HideTorn bool // folders of runs list no steps that nobody is to go on from (steps.Hidden)
}

// Alone says what is not stored with the help of others.
type Alone struct {
	NoDelta   bool // no chunk is: not against an earlier version of it either
	NoRecipes bool // none is computed from others
}

// Inherited is what an earlier process left that had the store mounted.
type Inherited struct {
	// Resume is called when the parts are made and nothing works in the background yet, if the store is
	// mounted already, by an earlier process: it makes known what the kernel knows (Attach, Names, Reopen).
	// Then the store's repair goes on beside the requests; nil: it comes before Open returns.
	Resume func(*Volume) error
	// Lock is the store's lock as the earlier process had it (LockFd); nil: it is taken anew.
	Lock *os.File
}

// Moving is how a store is opened whose files came into it as they were, or are about to leave it so (package
// ckptfs/fs/inplace).
type Moving struct {
	Outsiders bool // programs may have files open since before there was a mount
	Still     bool // nothing works in the background: no file is packed, hydrated or evicted by itself
	Untrusted bool // every read is compared with its hash
}

// RemoteOptions are how the remote is used that a store was joined to.
type RemoteOptions struct {
	// Remote opens its bucket; nil: the store is used without it.
	Remote  func(remote.Joined) (bucket.Bucket, error)
	Publish bool // what is complete is published in the background
	// RemotePoll is how often the remote is asked for what others published; 0: only a command asks.
	RemotePoll time.Duration
	// RemoteCache bounds what is kept on the disk of what was read of the remote, in bytes; 0: a default.
	RemoteCache int64
	// RemoteTimeout is for how long a read asks a remote again that is busy or cannot be reached; 0: for how
	// long the bucket does.
	RemoteTimeout time.Duration
	// KeepFree is how many bytes of the disk are kept free: while fewer are, published files are dropped, the
	// least recently used first; 0: none are.
	KeepFree int64
	// Runs are patterns (path.Match): of others' runs those appear whose names match one; none: all do.
	Runs []string
}

// Most is how many of something there may be, since each takes memory; 0: any number.
type Most struct {
	Waiting  int // files that wait to be packed before closes wait
	Resident int // packed files that are resident
	Nodes    int // that the kernel remembers before it is asked to forget some
	Models   int // that are known
}

// complete sets what is nil.
func (o *Options) complete() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = func(slog.Level, string, ...any) {}
	}
}

const (
	maxHotSize   = 32 << 30
	defaultCache = 256 << 20
)

// DefaultHotSize is 5 % of the disk that dir lies on, at most 32 GiB.
func DefaultHotSize(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return maxHotSize
	}
	return min(int64(st.Blocks)*st.Bsize/20, maxHotSize)
}
