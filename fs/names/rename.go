package names

import (
	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Rename moves a name; flags are renameat2(2)'s. It returns what lost its name to the moved one, or was
// exchanged with it, and the moved node with a reference if it is known.
func (ns *Names) Rename(
	oldDir *Node, oldName string, newDir *Node, newName string, flags uint32,
) (t Victim, moved *Node, err error) {
	if err := ns.o.begin(); err != nil {
		return t, nil, err
	}
	defer ns.o.End()
	ns.ns.Lock()
	defer ns.ns.Unlock()
	oldFd, err := oldDir.dirFdLocked()
	if err != nil {
		return t, moved, err
	}
	defer oldDir.releaseDir()
	newFd, err := newDir.dirFdLocked()
	if err != nil {
		return t, moved, err
	}
	defer newDir.releaseDir()

	var st unix.Stat_t
	if err := unix.Fstatat(oldFd, oldName, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return t, moved, err
	}
	moved = ns.findLocked(oldDir, oldName, &st)
	if flags&unix.RENAME_NOREPLACE == 0 {
		t, err = ns.prepareLocked(newDir, newFd, newName)
		if err != nil && err != unix.ENOENT {
			return t, moved, err
		}
	}
	newDir.holdsLocked(newName)
	if t.Ino == st.Ino && t.Ino != 0 { // two names of one file: rename(2) does nothing
		ns.unkeepLocked(&t)
		return t, moved, unix.Renameat2(oldFd, oldName, newFd, newName, uint(flags))
	}
	if err := unix.Renameat2(oldFd, oldName, newFd, newName, uint(flags)); err != nil {
		ns.unkeepLocked(&t)
		return t, moved, err
	}
	t.Moved = true
	ns.o.Changed(oldDir.ino)
	ns.o.Changed(newDir.ino)
	ns.noteMoveLocked(newDir, newName)
	if flags&unix.RENAME_EXCHANGE != 0 {
		ns.noteMoveLocked(oldDir, oldName)
		ns.unkeepLocked(&t)
		ns.moveAliasLocked(moved, oldDir, oldName, newDir, newName)
		ns.moveAliasLocked(t.Node, newDir, newName, oldDir, oldName)
		return t, moved, nil
	}
	ns.goneLocked(&t, newDir, newName)
	ns.moveAliasLocked(moved, oldDir, oldName, newDir, newName)
	return t, moved, nil
}

// moveAliasLocked renames a node in the table. ns is held exclusively.
func (ns *Names) moveAliasLocked(n, oldDir *Node, oldName string, newDir *Node, newName string) {
	if n == nil {
		return
	}
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	for i, a := range n.names {
		if a.Dir == oldDir && a.Name == oldName {
			newDir.refs++
			n.names[i] = Alias{newDir, newName}
			if i == 0 {
				ns.tab.heir.Load().put(n)
			}
			ns.tab.unrefLocked(oldDir, 1)
			return
		}
	}
}

// Link gives a node one more name, and returns its attributes and one reference more.
func (ns *Names) Link(n, dir *Node, name string) (tree.Attr, error) {
	if err := ns.o.begin(); err != nil {
		return tree.Attr{}, err
	}
	defer ns.o.End()
	if n.synth != nil {
		return tree.Attr{}, unix.EPERM
	}
	if n.file != nil {
		n.file.Lock()
		defer n.file.Unlock()
	}
	if err := ns.link(n, dir, name); err != nil {
		return tree.Attr{}, err
	}
	n.Pin()
	if n.file != nil {
		n.file.TouchedLocked()
	}
	a, err := n.AttrLocked()
	if err != nil {
		n.Unpin()
	}
	return a, err
}

func (ns *Names) link(n, dir *Node, name string) error {
	ns.ns.Lock()
	defer ns.ns.Unlock()
	dirfd, err := dir.dirFdLocked()
	if err != nil {
		return err
	}
	defer dir.releaseDir()
	if ns.o.Reserved(dir, name) {
		return unix.EEXIST
	}
	p, err := n.locateLocked()
	if err != nil {
		return err
	}
	defer ns.release(p)
	flag := 0
	if p.magic {
		flag = unix.AT_SYMLINK_FOLLOW
	}
	dir.holdsLocked(name)
	if err := unix.Linkat(p.dirfd, p.name, dirfd, name, flag); err != nil {
		return err // ENOENT for a file that had a name and lost it
	}
	ns.noteMoveLocked(dir, name)
	ns.o.Changed(dir.ino)
	ns.tab.mu.Lock()
	ns.tab.addAliasLocked(n, dir, name)
	if n.dead {
		n.dead = false
		ns.tab.byIno[inoKey(n.ino)] = n
	}
	ns.tab.mu.Unlock()
	return nil
}
