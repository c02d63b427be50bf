package names

import (
	"path"

	"golang.org/x/sys/unix"
)

// Victim is a name that is about to go, or went. It holds a reference to its node until Spare, or Unpin of
// Node.
type Victim struct {
	Node  *Node  // nil: the table has none
	Ino   uint64 // of what the name leads or led to; 0: to nothing
	Last  bool   // no other name leads there
	Went  bool   // the name went
	Moved bool   // a rename changed something
	Path  string // by which it was known, if it went
}

// prepareLocked looks at dir/name before it goes and, if it is the last name of a node in the table,
// takes hold of the inode, so that open files and directories stay what they are. ns is held exclusively.
func (ns *Names) prepareLocked(dir *Node, dirfd int, name string) (Victim, error) {
	var t Victim
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return t, err
	}
	t.Ino, t.Node = st.Ino, ns.findLocked(dir, name, &st)
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	t.Last = isDir || st.Nlink <= 1
	if !t.Last {
		switch n := t.Node; {
		case n == nil:
		case len(n.names) == 1:
			// Another name exists that was not looked up: the node lives on by its descriptor.
			return t, n.keepOpenLocked(dirfd, name)
		default:
			n.turnFromLocked(dir, name)
		}
		return t, nil
	}
	if t.Node != nil {
		return t, t.Node.keepOpenLocked(dirfd, name)
	}
	return t, nil
}

// turnFromLocked writes down another of a node's names, if it has one, than the one that is about to go: the
// process that comes next may come between that and dropAliasLocked. ns is held exclusively.
func (n *Node) turnFromLocked(dir *Node, name string) {
	t := n.ns.tab
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(n.names) > 1 && n.names[0] == (Alias{dir, name}) {
		n.names[0], n.names[1] = n.names[1], n.names[0]
		t.heir.Load().put(n)
	}
}

func (n *Node) keepOpenLocked(dirfd int, name string) error {
	if n.keep >= 0 {
		return nil
	}
	fd, err := n.ns.opening(func() (int, error) {
		return unix.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err == nil {
		n.keepFd(fd)
	}
	return err
}

// keepFd makes an O_PATH descriptor the way to the node's inode, for this process and the next.
func (n *Node) keepFd(fd int) {
	n.keep = fd
	n.ns.tab.heir.Load().keep(n.id, fd)
}

// unkeep closes the descriptor.
func (n *Node) unkeep() {
	n.ns.tab.heir.Load().unkeep(n.id)
	unix.Close(n.keep)
	n.keep = -1
}

// goneLocked updates the table after dir/name went. ns is held exclusively.
func (ns *Names) goneLocked(t *Victim, dir *Node, name string) {
	t.Went = true
	n := t.Node
	if n == nil {
		return
	}
	ns.dropAliasLocked(n, dir, name)
	ns.tab.mu.Lock()
	defer ns.tab.mu.Unlock()
	t.Path = path.Join(dir.pathLocked(), name)
	if t.Last {
		n.dead = true
		delete(ns.tab.byIno, inoKey(n.ino))
	}
}

// Spare ends what was begun for a name that stays.
func (t *Victim) Spare() {
	if t.Node != nil {
		t.Node.Unpin()
	}
}

// Remove removes a name: flag is unlinkat(2)'s. After an error, too, the victim is to be spared.
func (ns *Names) Remove(dir *Node, name string, flag int) (Victim, error) {
	if err := ns.o.begin(); err != nil {
		return Victim{}, err
	}
	defer ns.o.End()
	ns.ns.Lock()
	defer ns.ns.Unlock()
	dirfd, err := dir.dirFdLocked()
	if err != nil {
		return Victim{}, err
	}
	defer dir.releaseDir()
	t, err := ns.prepareLocked(dir, dirfd, name)
	if err != nil {
		return t, err
	}
	if err := unix.Unlinkat(dirfd, name, flag); err != nil {
		ns.unkeepLocked(&t)
		return t, err
	}
	ns.o.Changed(dir.ino)
	ns.goneLocked(&t, dir, name)
	return t, nil
}

// unkeepLocked undoes keepOpen for a name that stayed.
func (ns *Names) unkeepLocked(t *Victim) {
	if n := t.Node; n != nil && n.keep >= 0 && len(n.names) > 0 {
		n.unkeep()
	}
}
