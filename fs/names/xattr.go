package names

import (
	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// GetXattr reads an extended attribute of the inode into dest and returns its length; dest of length 0 asks
// for the length only.
func (n *Node) GetXattr(name string, dest []byte) (k int, err error) {
	err = n.onInode(func(path string, follow bool) (err error) {
		if follow {
			k, err = unix.Getxattr(path, name, dest)
		} else {
			k, err = unix.Lgetxattr(path, name, dest)
		}
		return err
	})
	return k, err
}

// ListXattr reads the names of the inode's extended attributes, each ended by a zero byte.
func (n *Node) ListXattr(dest []byte) (k int, err error) {
	err = n.onInode(func(path string, follow bool) (err error) {
		if follow {
			k, err = unix.Listxattr(path, dest)
		} else {
			k, err = unix.Llistxattr(path, dest)
		}
		return err
	})
	return k, err
}

// SetXattr sets an extended attribute of the inode. flags are setxattr(2)'s. ENOSPC or EDQUOT when there
// would be no room left for the record of a file.
func (n *Node) SetXattr(name string, value []byte, flags int) error {
	return n.changeXattr(func(path string, follow bool) error {
		set := func() error {
			if follow {
				return unix.Setxattr(path, name, value, flags)
			}
			return unix.Lsetxattr(path, name, value, flags)
		}
		if n.file == nil {
			return set()
		}
		return tree.KeepRoom(path, len(name)+len(value), set)
	})
}

// RemoveXattr removes an extended attribute of the inode.
func (n *Node) RemoveXattr(name string) error {
	return n.changeXattr(func(path string, follow bool) error {
		if follow {
			return unix.Removexattr(path, name)
		}
		return unix.Lremovexattr(path, name)
	})
}

// changeXattr is onInode of a change.
func (n *Node) changeXattr(do func(path string, follow bool) error) error {
	if err := n.ns.o.begin(); err != nil {
		return err
	}
	defer n.ns.o.End()
	defer n.ns.o.Changed(n.ino)
	if n.file == nil {
		return n.onInode(do)
	}
	n.file.Lock()
	defer n.file.Unlock()
	err := n.onInode(do)
	if err == nil {
		n.file.TouchedLocked()
	}
	return err
}

// onInode calls do with a path to the node's inode, and whether the path is a link that do has to follow.
func (n *Node) onInode(do func(path string, follow bool) error) error {
	return n.atPlace(func(p place) error { return do(p.path(), p.magic) })
}
