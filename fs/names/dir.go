package names

import (
	"cmp"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/tree"
)

// DirHandle is an open directory: a list of its names as of the last read from the start.
type DirHandle struct {
	Node *Node

	mu      locks.Mutex[dirLock]
	loaded  bool
	entries []Listed // by position
}

// Listed is one name of a directory.
type Listed struct {
	tree.DirEntry
	// Pos is the position behind the name. It follows from the name alone, whichever process lists it, so
	// that a listing goes on where it was after another daemon took the mount over: what is there all the
	// time is listed once, whatever came and went. At least 1, and below 1<<63.
	Pos uint64
}

// OpenDir opens a directory.
func (n *Node) OpenDir() (*DirHandle, error) {
	if n.mode != unix.S_IFDIR {
		return nil, unix.ENOTDIR
	}
	n.Pin()
	return &DirHandle{Node: n}, nil
}

// Release closes it.
func (d *DirHandle) Release() { d.Node.Unpin() }

// Entries returns the names from position pos on, for a caller; position 0 reads the directory again. Of a
// directory of the tree what shown makes of its names is listed. Views come first.
func (d *DirHandle) Entries(
	c tree.Caller, pos uint64, shown func(dir *Node, real []tree.DirEntry) []tree.DirEntry,
) ([]Listed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if pos == 0 || !d.loaded {
		names, err := d.Node.ListFor(c)
		if err != nil {
			return nil, err
		}
		if d.Node.synth == nil {
			names = shown(d.Node, names)
		}
		d.entries, d.loaded = inOrder(names), true
	}
	from := sort.Search(len(d.entries), func(i int) bool { return d.entries[i].Pos > pos })
	return d.entries[from:], nil
}

// The positions of a listing.
const (
	posDot    = 1
	posDotDot = 2
	posViews  = 1 << 61 // from here on: views, by the hashes of their names
	posReal   = 1 << 62 // from here on: all other names, in the same way
	hashBits  = 61
)

// inOrder gives names their positions, and sorts them.
func inOrder(names []tree.DirEntry) []Listed {
	l := make([]Listed, len(names))
	for i, e := range names {
		l[i] = Listed{e, position(e)}
	}
	slices.SortFunc(l, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Pos, b.Pos), cmp.Compare(a.Name, b.Name))
	})
	for i := range l[:max(len(l)-1, 0)] { // names whose hashes are the same
		l[i+1].Pos = max(l[i+1].Pos, l[i].Pos+1)
	}
	return l
}

func position(e tree.DirEntry) uint64 {
	switch e.Name {
	case ".":
		return posDot
	case "..":
		return posDotDot
	}
	h := uint64(14695981039346656037) // FNV-1a
	for _, c := range []byte(e.Name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 32
	h = h * 0x9e3779b97f4a7c15 >> (64 - hashBits)
	if e.View {
		return posViews + h/2
	}
	return posReal + h
}

// Fsync makes the names in the directory durable. An error is told to Options.NotWritten too: the kernel
// tells of it once, and others rely on these names.
func (d *DirHandle) Fsync() error {
	if d.Node.synth != nil {
		return nil
	}
	fd, err := d.Node.openDirFd(0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ns := d.Node.ns
	err = ns.SyncDir(fd)
	if err != nil && err != unix.EINVAL && !ns.o.ReadOnly && ns.o.NotWritten != nil {
		ns.o.NotWritten(err)
	}
	return err
}

// List reads the names of a directory, "." and ".." among them.
func (n *Node) List() ([]tree.DirEntry, error) { return n.ListFor(tree.Caller{}) }

// ListFor is List of what a caller may see.
func (n *Node) ListFor(c tree.Caller) ([]tree.DirEntry, error) {
	if n.synth != nil {
		return listSynthetic(n, c)
	}
	fd, err := n.openDirFd(0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return tree.ReadNames(fd)
}

// ListQuietly is List on the daemon's own account: the directory's access time is the user's.
func (n *Node) ListQuietly() ([]tree.DirEntry, error) {
	fd, err := n.openDirFd(unix.O_NOATIME)
	if err == unix.EPERM { // another owner's, and no privileges
		return n.List()
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return tree.ReadNames(fd)
}

func (n *Node) openDirFd(flags int) (int, error) {
	n.ns.ns.RLock()
	defer n.ns.ns.RUnlock()
	dirfd, err := n.dirFdLocked()
	if err != nil {
		return -1, err
	}
	defer n.releaseDir()
	return n.ns.opening(func() (int, error) {
		return unix.Openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
	})
}
