package volume

import (
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// DirEntry is one name in a directory.
type DirEntry = tree.DirEntry

// DirHandle is an open directory: a list of its names as of the last read from the start.
type DirHandle struct {
	Node *Node

	mu      sync.Mutex
	loaded  bool
	entries []DirEntry
}

// OpenDir opens a directory.
func (ns *Names) OpenDir(n *Node) (*DirHandle, error) {
	if n.mode != unix.S_IFDIR {
		return nil, unix.ENOTDIR
	}
	n.Pin()
	return &DirHandle{Node: n}, nil
}

// ReleaseDir closes it.
func (ns *Names) ReleaseDir(d *DirHandle) { d.Node.unref(1) }

// Entries returns the names from position pos on; position 0 reads the directory anew. Views come before everything
// else, so that `rm -r` meets a view before the file it is made of.
func (v *Volume) Entries(d *DirHandle, pos uint64) ([]DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if (pos == 0 || !d.loaded) && d.Node.synth != nil {
		names, err := listSynthetic(d.Node)
		if err != nil {
			return nil, err
		}
		d.entries, d.loaded = names, true
	}
	if pos == 0 && d.Node.synth == nil || !d.loaded {
		real, err := d.Node.list()
		if err != nil {
			return nil, err
		}
		d.entries = append(v.viewsIn(d.Node, real), real...)
		d.loaded = true
	}
	if pos >= uint64(len(d.entries)) {
		return nil, nil
	}
	return d.entries[pos:], nil
}

// list reads the names of a directory of the tree, "." and ".." among them.
func (n *Node) list() ([]DirEntry, error) {
	fd, err := n.openDirFd(0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return tree.ReadNames(fd)
}

// listQuietly is list on the daemon's own account: the directory's access time is the user's.
func (n *Node) listQuietly() ([]DirEntry, error) {
	fd, err := n.openDirFd(unix.O_NOATIME)
	if err == unix.EPERM { // another owner's, and no privileges
		return n.list()
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
	dirfd, err := n.dirFd()
	if err != nil {
		return -1, err
	}
	defer n.releaseDir()
	return unix.Openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
}

// FsyncDir makes the names in a directory durable.
func (v *Volume) FsyncDir(d *DirHandle) error {
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
