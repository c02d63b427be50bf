package names

import (
	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/fs/tree"
)

// DirHandle is an open directory: a list of its names as of the last read from the start.
type DirHandle struct {
	Node *Node

	mu      locks.Mutex[dirLock]
	loaded  bool
	entries []tree.DirEntry
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

// Entries returns the names from position pos on, for a caller; position 0 reads the directory again. What
// more returns, given the names of a directory of the tree, comes before these.
func (d *DirHandle) Entries(
	c tree.Caller, pos uint64, more func(dir *Node, real []tree.DirEntry) []tree.DirEntry,
) ([]tree.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if pos == 0 || !d.loaded {
		names, err := d.Node.ListFor(c)
		if err != nil {
			return nil, err
		}
		if d.Node.synth == nil {
			names = append(more(d.Node, names), names...)
		}
		d.entries, d.loaded = names, true
	}
	if pos >= uint64(len(d.entries)) {
		return nil, nil
	}
	return d.entries[pos:], nil
}

// Fsync makes the names in the directory durable.
func (d *DirHandle) Fsync() error {
	if d.Node.synth != nil {
		return nil
	}
	fd, err := d.Node.openDirFd(0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
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
	return unix.Openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
}
