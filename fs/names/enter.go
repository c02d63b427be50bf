package names

import "golang.org/x/sys/unix"

// Enter makes a node of a name that do moves from outside of the tree into the folder that dirfd is open on.
// Nothing is known of what lies below it. The node is pinned.
func Enter(ns *Names, dir *Node, name string, do func(dirfd int) error) (*Node, error) {
	if err := ns.o.begin(); err != nil {
		return nil, err
	}
	defer ns.o.End()
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	dirfd, err := dir.dirFdLocked()
	if err != nil {
		return nil, err
	}
	defer dir.releaseDir()
	if ns.o.Reserved(dir, name) {
		return nil, unix.EEXIST
	}
	dir.holdsLocked(name)
	if err := do(dirfd); err != nil {
		return nil, err
	}
	defer ns.o.Changed(dir.ino)
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	return ns.internLocked(dir, name, &st), nil
}
