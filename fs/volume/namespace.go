package volume

import (
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Lookup finds name in dir and takes a reference to it for the kernel.
func (v *Volume) Lookup(dir *Node, name string) (*Node, tree.Attr, error) {
	if dir.synth != nil {
		return found(dir.synth.Lookup(dir, name))
	}
	n, st, err := v.names.child(dir, name)
	if err == unix.ENOENT {
		if v.isVirtualRoot(dir, name) {
			return found(v.lookupVirtualRoot(), nil)
		}
		return found(v.lookupView(dir, name))
	}
	if err != nil {
		return nil, tree.Attr{}, err
	}
	a, err := v.attrFrom(n, &st)
	if err != nil {
		n.unref(1)
		return nil, tree.Attr{}, err
	}
	return n, a, nil
}

// child returns the node of a real name with one reference more.
func (ns *Names) child(dir *Node, name string) (*Node, unix.Stat_t, error) {
	var st unix.Stat_t
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	fd, err := dir.dirFd()
	if err != nil {
		return nil, st, err
	}
	defer dir.releaseDir()
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, st, err
	}
	return ns.intern(dir, name, &st), st, nil
}

// attrFrom is Stat of a node whose inode was looked at just now.
func (v *Volume) attrFrom(n *Node, st *unix.Stat_t) (tree.Attr, error) {
	a := tree.AttrOf(st)
	if n.file == nil {
		return a, nil
	}
	n.file.Lock()
	defer n.file.Unlock()
	if err := n.file.LoadLocked(); err != nil { // which may have to end what was cut off
		return tree.Attr{}, err
	}
	if n.file.StateLocked().Moved { // perhaps between the look and the lock
		return v.statLocked(n)
	}
	return a, n.file.AttrLocked(&a)
}

// dirFd is the descriptor of a directory until releaseDir. v.ns is held.
func (n *Node) dirFd() (int, error) {
	if n.mode != unix.S_IFDIR {
		return -1, unix.ENOTDIR
	}
	if n.synth != nil {
		return -1, unix.EROFS
	}
	return n.ns.fds.acquire(n)
}

func (n *Node) releaseDir() { n.ns.fds.release(n) }

// owner is who a new name in a directory is given to. A directory with the set-group-id bit passes its group on, as on
// ext4: gid is -1 then, since the host has seen to it.
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

// adopt makes a node of a name that was made just now. v.ns is held.
func (ns *Names) adopt(dirfd int, dir *Node, name string) (*Node, tree.Attr, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, tree.Attr{}, err
	}
	return ns.intern(dir, name, &st), tree.AttrOf(&st), nil
}

// Create makes a regular file and opens it. EEXIST when the name is taken.
func (v *Volume) Create(dir *Node, name string, mode, flags uint32, c tree.Caller) (*Node, tree.Attr, *Handle, error) {
	if dir.synth != nil {
		n, a, err := found(dir.synth.Create(dir, name))
		if err != nil {
			return nil, tree.Attr{}, nil, err
		}
		h, err := v.openSynthetic(n, flags)
		if err != nil {
			n.unref(1)
			return nil, tree.Attr{}, nil, err
		}
		return n, a, h, nil
	}
	made, err := v.names.makeFile(dir, name, mode, flags, c)
	if err != nil {
		return nil, tree.Attr{}, nil, err
	}
	return v.openNew(made, flags, c)
}

// made is a regular file just made, with a reference to its node.
type made struct {
	node *Node
	raw  *os.File
	rw   bool
	attr tree.Attr
}

// openNew opens a file made just now, and gives the reference back if that fails.
func (v *Volume) openNew(m made, flags uint32, c tree.Caller) (*Node, tree.Attr, *Handle, error) {
	h, err := m.node.file.OpenNew(m.raw, m.rw, flags, c.Thread)
	if err != nil {
		m.node.unref(1)
		return nil, tree.Attr{}, nil, err
	}
	m.attr.Settled = false
	return m.node, m.attr, handleOf(m.node, h), nil
}

// creating are the flags to make a file with that is opened with flags. In passthrough the kernel opens it for writing
// itself; a descriptor for writing here would look like a writer.
func (v *Volume) creating(flags uint32) (int, bool) {
	if flags&unix.O_ACCMODE == unix.O_RDONLY || v.content.Passthrough.Load() {
		return unix.O_RDONLY | unix.O_CLOEXEC, false
	}
	return unix.O_RDWR | unix.O_CLOEXEC, true
}

// makeFile makes a regular file.
func (ns *Names) makeFile(dir *Node, name string, mode, flags uint32, c tree.Caller) (m made, err error) {
	if ns.v.readOnly {
		return m, unix.EROFS
	}
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	dirfd, err := dir.dirFd()
	if err != nil {
		return m, err
	}
	defer dir.releaseDir()
	if ns.v.isVirtualRoot(dir, name) {
		return m, unix.EEXIST
	}
	open, rw := ns.v.creating(flags)
	fd, err := unix.Openat(dirfd, name, open|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode&0o7777)
	if err != nil {
		return m, err
	}
	var st unix.Stat_t
	if err := ns.adjust(fd, dirfd, mode, c, &st); err != nil {
		unix.Unlinkat(dirfd, name, 0)
		unix.Close(fd)
		return m, err
	}
	ns.v.steps.Changed(dir.ino)
	return made{node: ns.intern(dir, name, &st), raw: os.NewFile(uintptr(fd), name), rw: rw, attr: tree.AttrOf(&st)}, nil
}

// adjust gives a file made just now in the directory dirfd its owner and mode, where they are not what they should be,
// and describes it.
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

// Mknod makes a regular file, a fifo, a socket or a device.
func (v *Volume) Mknod(dir *Node, name string, mode, rdev uint32, c tree.Caller) (*Node, tree.Attr, error) {
	if v.readOnly {
		return nil, tree.Attr{}, unix.EROFS
	}
	if t := mode & unix.S_IFMT; t == unix.S_IFREG || t == 0 {
		m, err := v.names.makeFile(dir, name, mode, unix.O_RDONLY, c)
		if err != nil {
			return nil, tree.Attr{}, err
		}
		m.raw.Close()
		return m.node, m.attr, nil
	}
	return v.names.make(dir, name, c, &mode, func(fd int) error {
		return unix.Mknodat(fd, name, mode&unix.S_IFMT|0o600, int(rdev))
	})
}

// Mkdir makes a directory.
func (v *Volume) Mkdir(dir *Node, name string, mode uint32, c tree.Caller) (*Node, tree.Attr, error) {
	return v.names.make(dir, name, c, &mode, func(fd int) error { return unix.Mkdirat(fd, name, 0o700) })
}

// Symlink makes a symbolic link.
func (v *Volume) Symlink(dir *Node, name, target string, c tree.Caller) (*Node, tree.Attr, error) {
	return v.names.make(dir, name, c, nil, func(fd int) error { return unix.Symlinkat(target, fd, name) })
}

// make makes anything but a regular file.
func (ns *Names) make(dir *Node, name string, c tree.Caller, mode *uint32, do func(dirfd int) error) (*Node, tree.Attr, error) {
	if ns.v.readOnly {
		return nil, tree.Attr{}, unix.EROFS
	}
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	dirfd, err := dir.dirFd()
	if err != nil {
		return nil, tree.Attr{}, err
	}
	defer dir.releaseDir()
	if ns.v.isVirtualRoot(dir, name) {
		return nil, tree.Attr{}, unix.EEXIST
	}
	if err := do(dirfd); err != nil {
		return nil, tree.Attr{}, err
	}
	defer ns.v.steps.Changed(dir.ino)
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
	return ns.adopt(dirfd, dir, name)
}

// chmodNew sets the mode of a new name, keeping a set-group-id bit that a directory inherited.
func (ns *Names) chmodNew(dirfd int, name string, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.Fchmodat(dirfd, name, mode&0o7777|st.Mode&unix.S_ISGID, 0)
}

// Tmpfile makes a regular file without a name and opens it.
func (v *Volume) Tmpfile(dir *Node, mode, flags uint32, c tree.Caller) (*Node, tree.Attr, *Handle, error) {
	if v.readOnly {
		return nil, tree.Attr{}, nil, unix.EROFS
	}
	m, err := v.names.makeUnnamed(dir, mode, flags, c)
	if err != nil {
		return nil, tree.Attr{}, nil, err
	}
	return v.openNew(m, flags, c)
}

func (ns *Names) makeUnnamed(dir *Node, mode, flags uint32, c tree.Caller) (m made, err error) {
	var st unix.Stat_t
	fd, err := ns.openUnnamed(dir, mode, c, &st) // the host wants such a file to be open for writing
	if err != nil {
		return m, err
	}
	defer unix.Close(fd)
	keep, err := unix.Open(procPath(fd, ""), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return m, err
	}
	ns.tab.mu.Lock()
	n := ns.tab.insert(&st)
	n.keep, n.dead = keep, true
	n.file.NewLocked()
	ns.tab.mu.Unlock()
	open, rw := ns.v.creating(flags)
	raw, err := n.Open(open)
	if err != nil {
		n.unref(1)
		return m, err
	}
	return made{node: n, raw: raw, rw: rw, attr: tree.AttrOf(&st)}, nil
}

func (ns *Names) openUnnamed(dir *Node, mode uint32, c tree.Caller, st *unix.Stat_t) (int, error) {
	ns.ns.RLock()
	defer ns.ns.RUnlock()
	dirfd, err := dir.dirFd()
	if err != nil {
		return -1, err
	}
	defer dir.releaseDir()
	fd, err := unix.Openat(dirfd, ".", unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, err
	}
	if err := ns.adjust(fd, dirfd, mode, c, st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Link gives a node one more name.
func (v *Volume) Link(n, dir *Node, name string) (tree.Attr, error) {
	if v.readOnly {
		return tree.Attr{}, unix.EROFS
	}
	if n.synth != nil {
		return tree.Attr{}, unix.EPERM
	}
	if n.file != nil {
		n.file.Lock()
		defer n.file.Unlock()
	}
	if err := v.names.link(n, dir, name); err != nil {
		return tree.Attr{}, err
	}
	n.Pin()
	if n.file != nil {
		n.file.TouchedLocked()
	}
	return v.statLocked(n)
}

func (ns *Names) link(n, dir *Node, name string) error {
	ns.ns.Lock()
	defer ns.ns.Unlock()
	dirfd, err := dir.dirFd()
	if err != nil {
		return err
	}
	defer dir.releaseDir()
	if ns.v.isVirtualRoot(dir, name) {
		return unix.EEXIST
	}
	p, err := n.locate()
	if err != nil {
		return err
	}
	defer ns.release(p)
	flag := 0
	if p.magic {
		flag = unix.AT_SYMLINK_FOLLOW
	}
	if err := unix.Linkat(p.dirfd, p.name, dirfd, name, flag); err != nil {
		return err // ENOENT for a file that had a name and lost it
	}
	ns.noteMove(dir, name)
	ns.v.steps.Changed(dir.ino)
	ns.tab.mu.Lock()
	ns.addAlias(n, dir, name)
	if n.dead {
		n.dead = false
		ns.tab.byIno[inoKey(n.ino)] = n
	}
	ns.tab.mu.Unlock()
	return nil
}

// Readlink is the target of a symbolic link.
func (v *Volume) Readlink(n *Node) (string, error) {
	if n.synth != nil {
		return n.synth.Readlink()
	}
	buf := make([]byte, unix.PathMax)
	var k int
	err := n.atPlace(func(p place) (err error) {
		if p.magic { // n.keep is an O_PATH descriptor of the link itself
			k, err = unix.Readlinkat(n.keep, "", buf)
		} else {
			k, err = unix.Readlinkat(p.dirfd, p.name, buf)
		}
		return err
	})
	return string(buf[:max(k, 0)]), err
}
