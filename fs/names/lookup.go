package names

import "golang.org/x/sys/unix"

// Child returns the node of a real name with one reference more.
func (ns *Names) Child(dir *Node, name string) (*Node, unix.Stat_t, error) {
	var st unix.Stat_t
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	fd, err := dir.dirFdLocked()
	if err != nil {
		return nil, st, err
	}
	defer dir.releaseDir()
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, st, err
	}
	return ns.internLocked(dir, name, &st), st, nil
}

// dirFdLocked is the descriptor of a directory until releaseDir. ns is held.
func (n *Node) dirFdLocked() (int, error) {
	if n.mode != unix.S_IFDIR {
		return -1, unix.ENOTDIR
	}
	if n.synth != nil {
		return -1, unix.EROFS
	}
	return n.ns.fds.acquireLocked(n)
}

func (n *Node) releaseDir() { n.ns.fds.release(n) }
