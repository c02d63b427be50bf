// Package names keeps the mount's names: nodes by the kernel's id and by inode, looked up, made, moved and
// removed on the host.
//
// # Nodes
//
// Every name in the mount is the same name in STORE/tree. A Node is one inode there, by whichever of its
// names it was found, or a Synthetic, which has no inode: a view, or what is below .ckptfs. The Node of a
// regular file holds a content.File; the File reaches its inode through the Node, which implements
// content.Inode.
//
// A node is in the table as long as something refers to it: each lookup that the kernel has not forgotten,
// each handle, each node below it, each Pin. Its NodeID is never used twice, and is the same in every process
// that serves the mount: an Heir writes down which id leads where (heir.go), and the next process finds the
// node again by that when the kernel asks for it (past.go).
//
// # Operations
//
// A call about a name goes to the host relative to an O_PATH descriptor of the name's directory; a call about
// a node goes to one of its names, or, when it has none, to a descriptor of the inode that was taken before
// the last name went. The descriptors of the directories that were used last stay open; any other is opened
// again through its parent's, which is always right, since every change of a name passes through this
// process.
//
// # Locks
//
//	DirHandle.mu      the names of one open directory
//	content.File.mu   of a node that the call is about
//	Names.ns          which name leads where: shared while a name is resolved or made, exclusive while one is
//	                  moved or removed; not over fsync(2) or data
//	table.mu          references, and the names of a node while ns is shared
//	fdCache.mu        the descriptors of directories
package names

import (
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/content"
	"ckptfs/fs/handover"
	"ckptfs/fs/tree"
)

// The locks of this package, in the order in which they may be taken. content.File.mu is between the first
// two.
type (
	dirLock  struct{} // DirHandle.mu: the names of one open directory
	nameLock struct{} // Names.ns: which name leads where
	leafLock struct{} // table.mu and fdCache.mu
)

func (dirLock) Rank() (int, string)  { return locks.Volume, "DirHandle.mu" }
func (nameLock) Rank() (int, string) { return locks.Volume + 500, "Names.ns" }
func (leafLock) Rank() (int, string) { return locks.Volume + 950, "table.mu or fdCache.mu" }

// Options are what Names has to be told of its surroundings.
type Options struct {
	Dir      string         // the store's folder, absolute
	Tree     string         // the folder of the tree in it, absolute
	Files    *content.Files // what the nodes of regular files share
	ReadOnly bool
	// Mark is the bits, of the lower 31, that tell what kind of name a name is; nil: there are no kinds.
	Mark func(name string) uint32
	// Begin and End are called around every change of the tree; nil: nobody is told.
	Begin, End func()
	// Changed is told that names in a directory changed. It takes locks of its own at most.
	Changed func(ino uint64)
	// Recorded is told that a file has another record, as Changed is.
	Recorded func(ino uint64)
	// Reserved reports whether a name may not be made, since it leads to something that is no inode's.
	Reserved func(dir *Node, name string) bool
	// Synthetic finds a name that is no inode's, as a lookup does, with one reference more; nil: there are
	// none.
	Synthetic func(dir *Node, name string) (*Node, error)
	// Again makes the node that a name led to in an earlier process, with one reference more, from what is
	// left of it: whether the name still leads there does not count. nil: Synthetic may find it.
	Again func(dir *Node, name string, o Origin) *Node
	// NotWritten is told that the names of a directory could not be made durable; nil: nobody is.
	NotWritten func(err error)
	// Freed is told that nothing keeps the bytes of a removed file any more. It takes locks of its own at
	// most; nil: nobody is told.
	Freed  func()
	Report func(level slog.Level, msg string, args ...any)
}

// begin is called before a change of the tree, which ends with End. EROFS where nothing may be changed.
func (o *Options) begin() error {
	if o.ReadOnly {
		return unix.EROFS
	}
	o.Begin()
	return nil
}

// Names are the mount's names: nodes by the kernel's id and by inode, looked up, made, moved and removed on
// the host.
type Names struct {
	o Options

	privileged bool // files may be given to others
	ns         locks.RWMutex[nameLock]
	tab        *table
	Crowd      *Crowd
	fds        *fdCache
	root       *Node
	rootFd     int
	syncFd     int // of SyncTree
	most       int // the descriptor from which on they are spare
	Tours      Tours

	// SyncTree is syncfs(2) of the store's filesystem. It tells of everything that could not be written since
	// the last call, or since Open, wherever on the filesystem, and tells it once: the caller has to act on
	// the error. Tests replace it.
	SyncTree func() error
	SyncDir  func(fd int) error // fsync(2) of a directory; tests replace it

	moves *movesLog // while EachFile walks; guarded by ns
	// AfterDir is called by EachFile behind each directory; for tests.
	AfterDir func(path string)
}

// openDirs is how many directories are kept open, at most.
const openDirs = 2048

// Open opens the tree. Close ends it.
func Open(o Options) (*Names, error) {
	rootFd, err := unix.Open(o.Tree, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: o.Tree, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(rootFd, &st); err != nil {
		unix.Close(rootFd)
		return nil, err
	}
	syncFd, err := unix.Open(o.Tree, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(rootFd)
		return nil, &os.PathError{Op: "open", Path: o.Tree, Err: err}
	}
	if o.Begin == nil {
		o.Begin, o.End = func() {}, func() {}
	}
	limit := tree.Descriptors()
	ns := &Names{o: o, privileged: os.Geteuid() == 0, fds: newFdCache(keptDirs(limit)), rootFd: rootFd,
		syncFd: syncFd, most: limit - spare(limit)}
	ns.SyncDir = unix.Fsync
	ns.SyncTree = func() error { return unix.Syncfs(ns.syncFd) }
	ns.tab = newTable(ns)
	ns.Crowd = &ns.tab.crowd
	ns.root = ns.tab.insertLocked(&st, handover.Node{})
	ns.root.names = []Alias{{}}
	ns.root.dirfd = cachedFd{fd: rootFd, users: 1} // one user too many, so that it stays
	return ns, nil
}

// Close gives the tree back. Nodes are not to be used any more.
func (ns *Names) Close() {
	unix.Close(ns.rootFd)
	unix.Close(ns.syncFd)
}

// Root is the mount's root.
func (ns *Names) Root() *Node { return ns.root }

// RootFd is an O_PATH descriptor of the mount's root, until Close.
func (ns *Names) RootFd() int { return ns.rootFd }

// Get returns the node of an id that the kernel has; nil if it has no such node, or what an earlier daemon
// told it of cannot be found any more.
func (ns *Names) Get(id content.NodeID) *Node {
	if n := ns.tab.get(id); n != nil {
		return n
	}
	return ns.revive(id)
}

// GetPinned is Get with one reference more.
func (ns *Names) GetPinned(id content.NodeID) *Node {
	ns.Get(id)
	return ns.tab.getRef(id)
}

// StatFS describes the disk that the store lies on.
func (ns *Names) StatFS() (unix.Statfs_t, error) {
	var st unix.Statfs_t
	err := unix.Fstatfs(ns.rootFd, &st)
	return st, err
}

// Sync makes every name and record in the tree durable. The host's journal keeps their order, so that what
// was done before a file is made that is synced is durable with it. Where there is no such journal, or no
// file can be made, all is called, which has to sync the whole filesystem.
func (ns *Names) Sync(all func() error) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(ns.rootFd, &st); err != nil {
		return err
	}
	if st.Type != unix.EXT4_SUPER_MAGIC && st.Type != unix.XFS_SUPER_MAGIC {
		return all()
	}
	fd, err := unix.Open(ns.o.Dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return all()
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}
