package names

import (
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/handover"
	"ckptfs/fs/tree"
)

// Made is a regular file that was made just now. It has a reference to its node.
type Made struct {
	Node *Node
	Attr tree.Attr

	raw *os.File
	rw  bool // raw is open for writing too
}

// Open opens the file, for a thread as the kernel tells it. If that fails the reference is taken back.
func (m *Made) Open(flags, thread uint32) (*content.Handle, error) {
	h, err := m.Node.file.OpenNew(m.raw, m.rw, flags, thread)
	if err != nil {
		m.Node.Unpin()
		return nil, err
	}
	m.Attr.Settled = false
	return h, nil
}

// Close closes the file, if no handle is to be made; the reference stays.
func (m *Made) Close() { m.raw.Close() }

// MakeFile makes a regular file, which is to be opened with flags. EEXIST when the name is taken.
func (ns *Names) MakeFile(dir *Node, name string, mode, flags uint32, c tree.Caller) (m Made, err error) {
	if err := ns.o.begin(); err != nil {
		return m, err
	}
	defer ns.o.End()
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	dirfd, err := dir.dirFdLocked()
	if err != nil {
		return m, err
	}
	defer dir.releaseDir()
	if ns.o.Reserved(dir, name) {
		return m, unix.EEXIST
	}
	open, rw := ns.creating(flags)
	dir.holdsLocked(name)
	fd, err := ns.making(func() (int, error) {
		return unix.Openat(dirfd, name, open|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode&0o7777)
	}, func() { unix.Unlinkat(dirfd, name, 0) })
	if err != nil {
		return m, err
	}
	var st unix.Stat_t
	if err := ns.adjust(fd, dirfd, mode, c, &st); err != nil {
		unix.Unlinkat(dirfd, name, 0)
		unix.Close(fd)
		return m, err
	}
	ns.o.Changed(dir.ino)
	return Made{
		Node: ns.internLocked(dir, name, &st), Attr: tree.AttrOf(&st),
		raw: os.NewFile(uintptr(fd), name), rw: rw,
	}, nil
}

// adjust gives a file made just now in the directory dirfd its owner and mode, where they are not what they
// should be, and describes it.
func (ns *Names) adjust(fd, dirfd int, mode uint32, c tree.Caller, st *unix.Stat_t) error {
	if err := unix.Fstat(fd, st); err != nil {
		return err
	}
	uid, gid := int(st.Uid), int(st.Gid)
	if ns.privileged && (st.Uid != c.UID || st.Gid != c.GID) {
		uid, gid = owner(dirfd, c)
		if gid < 0 {
			gid = int(st.Gid)
		}
	}
	same := uid == int(st.Uid) && gid == int(st.Gid)
	if !same {
		if err := unix.Fchown(fd, uid, gid); err != nil {
			return err
		}
	}
	if same && st.Mode&0o7777 == mode&0o7777 {
		return nil
	}
	if err := unix.Fchmod(fd, mode&0o7777); err != nil { // a change of the owner clears bits of it
		return err
	}
	return unix.Fstat(fd, st)
}

// Make makes anything but a regular file: do makes it below the folder that dirfd is open on. mode is what it
// gets; nil: what do gave it.
func (ns *Names) Make(
	dir *Node, name string, c tree.Caller, mode *uint32, do func(dirfd int) error,
) (*Node, tree.Attr, error) {
	if err := ns.o.begin(); err != nil {
		return nil, tree.Attr{}, err
	}
	defer ns.o.End()
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	dirfd, err := dir.dirFdLocked()
	if err != nil {
		return nil, tree.Attr{}, err
	}
	defer dir.releaseDir()
	if ns.o.Reserved(dir, name) {
		return nil, tree.Attr{}, unix.EEXIST
	}
	dir.holdsLocked(name)
	if err := do(dirfd); err != nil {
		return nil, tree.Attr{}, err
	}
	defer ns.o.Changed(dir.ino)
	err = ns.give(dirfd, name, c)
	if err == nil && mode != nil {
		err = ns.chmodNew(dirfd, name, *mode)
	}
	if err != nil {
		if unix.Unlinkat(dirfd, name, 0) == unix.EISDIR {
			unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR)
		}
		return nil, tree.Attr{}, err
	}
	return ns.adoptLocked(dirfd, dir, name)
}

// chmodNew sets the mode of a new name, keeping a set-group-id bit that a directory inherited.
func (ns *Names) chmodNew(dirfd int, name string, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.Fchmodat(dirfd, name, mode&0o7777|st.Mode&unix.S_ISGID, 0)
}

// MakeUnnamed makes a regular file without a name, on the disk of dir, as MakeFile does with one.
func (ns *Names) MakeUnnamed(dir *Node, mode, flags uint32, c tree.Caller) (m Made, err error) {
	if err := ns.o.begin(); err != nil {
		return m, err
	}
	defer ns.o.End()
	var st unix.Stat_t
	fd, err := ns.openUnnamed(dir, mode, c, &st) // the host wants such a file to be open for writing
	if err != nil {
		return m, err
	}
	defer unix.Close(fd)
	keep, err := ns.opening(func() (int, error) {
		return unix.Open(procPath(fd, ""), unix.O_PATH|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return m, err
	}
	ns.tab.mu.Lock()
	n := ns.tab.insertLocked(&st, handover.Node{})
	n.dead = true
	n.keepFd(keep)
	ns.tab.heir.Load().put(n)
	n.file.NewLocked()
	ns.tab.mu.Unlock()
	open, rw := ns.creating(flags)
	raw, err := n.Open(open)
	if err != nil {
		n.Unpin()
		return m, err
	}
	return Made{Node: n, Attr: tree.AttrOf(&st), raw: raw, rw: rw}, nil
}

func (ns *Names) openUnnamed(dir *Node, mode uint32, c tree.Caller, st *unix.Stat_t) (int, error) {
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	dirfd, err := dir.dirFdLocked()
	if err != nil {
		return -1, err
	}
	defer dir.releaseDir()
	fd, err := ns.opening(func() (int, error) {
		return unix.Openat(dirfd, ".", unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return -1, err
	}
	if err := ns.adjust(fd, dirfd, mode, c, st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// creating are the flags to make a file with that is opened with flags. In passthrough the kernel opens it
// for writing itself; a descriptor for writing here would look like a writer.
func (ns *Names) creating(flags uint32) (int, bool) {
	if flags&unix.O_ACCMODE == unix.O_RDONLY || ns.o.Files.Passthrough.Load() {
		return unix.O_RDONLY | unix.O_CLOEXEC, false
	}
	return unix.O_RDWR | unix.O_CLOEXEC, true
}

// owner is who a new name in a directory is given to. A directory with the set-group-id bit passes its group
// on, as on ext4: gid is -1 then, since the host has seen to it.
func owner(dirfd int, c tree.Caller) (uid, gid int) {
	var st unix.Stat_t
	if err := unix.Fstat(dirfd, &st); err == nil && st.Mode&unix.S_ISGID != 0 {
		return int(c.UID), -1
	}
	return int(c.UID), int(c.GID)
}

// give hands a new name to its owner.
func (ns *Names) give(dirfd int, name string, c tree.Caller) error {
	if !ns.privileged {
		return nil
	}
	uid, gid := owner(dirfd, c)
	return unix.Fchownat(dirfd, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
}

// adoptLocked makes a node of a name that was made just now. ns is held.
func (ns *Names) adoptLocked(dirfd int, dir *Node, name string) (*Node, tree.Attr, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, tree.Attr{}, err
	}
	n := ns.internLocked(dir, name, &st)
	if n.IsDir() {
		n.holds.Or(whole) // and perhaps marks of what it got since
	}
	return n, tree.AttrOf(&st), nil
}
