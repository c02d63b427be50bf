package volume

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Caller is who asked for something new, which is to belong to them.
type Caller struct{ UID, GID uint32 }

func procFd(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// Lookup finds name in dir and takes a reference to it for the kernel.
func (v *Volume) Lookup(dir *Node, name string) (*Node, Attr, error) {
	n, st, err := v.child(dir, name)
	if err == unix.ENOENT {
		return v.lookupView(dir, name)
	}
	if err != nil {
		return nil, Attr{}, err
	}
	a, err := v.attrFrom(n, &st)
	if err != nil {
		v.unref(n, 1)
		return nil, Attr{}, err
	}
	return n, a, nil
}

// child returns the node of a real name with one reference more.
func (v *Volume) child(dir *Node, name string) (*Node, unix.Stat_t, error) {
	var st unix.Stat_t
	v.ns.RLock()
	defer v.ns.RUnlock()
	fd, err := v.dirFd(dir)
	if err != nil {
		return nil, st, err
	}
	defer v.releaseDir(dir)
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, st, err
	}
	return v.intern(dir, name, &st), st, nil
}

// attrFrom is Stat of a node whose stub was looked at just now.
func (v *Volume) attrFrom(n *Node, st *unix.Stat_t) (Attr, error) {
	a := attrOf(st)
	if n.file == nil {
		return a, nil
	}
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	return a, v.fileAttr(n, &a)
}

// dirFd is the descriptor of a directory until releaseDir. v.ns is held.
func (v *Volume) dirFd(dir *Node) (int, error) {
	if dir.mode != unix.S_IFDIR {
		return -1, unix.ENOTDIR
	}
	return v.fds.acquire(dir)
}

func (v *Volume) releaseDir(dir *Node) { v.fds.release(dir) }

// owner is who a new name in a directory is given to. A directory with the set-group-id bit passes its group on, as on
// ext4: gid is -1 then, since the host has seen to it.
func owner(dirfd int, c Caller) (uid, gid int) {
	var st unix.Stat_t
	if err := unix.Fstat(dirfd, &st); err == nil && st.Mode&unix.S_ISGID != 0 {
		return int(c.UID), -1
	}
	return int(c.UID), int(c.GID)
}

// give hands a new name to its owner.
func (v *Volume) give(dirfd int, name string, c Caller) error {
	if !v.privileged {
		return nil
	}
	uid, gid := owner(dirfd, c)
	return unix.Fchownat(dirfd, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
}

// adopt makes a node of a name that was made just now. v.ns is held.
func (v *Volume) adopt(dirfd int, dir *Node, name string) (*Node, Attr, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, Attr{}, err
	}
	return v.intern(dir, name, &st), attrOf(&st), nil
}

// Create makes a regular file and opens it. EEXIST when the name is taken.
func (v *Volume) Create(dir *Node, name string, mode, flags uint32, c Caller) (*Node, Attr, *Handle, error) {
	n, err := v.makeFile(dir, name, mode, c)
	if err != nil {
		return nil, Attr{}, nil, err
	}
	return v.openNew(n, flags)
}

// openNew opens a file made just now, and gives the caller's reference back if that fails.
func (v *Volume) openNew(n *Node, flags uint32) (*Node, Attr, *Handle, error) {
	f := n.file
	f.mu.Lock()
	f.changed()
	var a Attr
	h, err := v.attach(n, flags)
	if err == nil {
		a, err = v.statLocked(n)
	}
	f.mu.Unlock()
	if err != nil {
		if h != nil {
			v.Release(h)
		}
		v.unref(n, 1)
		return nil, Attr{}, nil, err
	}
	return n, a, h, nil
}

// makeFile makes a stub and its raw file. The caller gets a reference to the node.
func (v *Volume) makeFile(dir *Node, name string, mode uint32, c Caller) (*Node, error) {
	if v.readOnly {
		return nil, unix.EROFS
	}
	rec := tree.Record{ID: tree.NewID()}
	n, err := v.makeStub(dir, name, &rec, mode, c)
	if err != nil {
		return nil, err
	}
	n.file.mu.Lock()
	n.file.loaded, n.file.rec, n.file.resident = true, rec, true
	n.file.mu.Unlock()
	return n, nil
}

func (v *Volume) makeStub(dir *Node, name string, rec *tree.Record, mode uint32, c Caller) (*Node, error) {
	v.ns.RLock()
	defer v.ns.RUnlock()
	dirfd, err := v.dirFd(dir)
	if err != nil {
		return nil, err
	}
	defer v.releaseDir(dir)
	fd, err := unix.Openat(dirfd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := v.fillStub(fd, dirfd, rec, mode, c); err != nil {
		unix.Unlinkat(dirfd, name, 0)
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	return v.intern(dir, name, &st), nil
}

// fillStub makes a stub of the empty file fd.
func (v *Volume) fillStub(fd, dirfd int, rec *tree.Record, mode uint32, c Caller) error {
	if err := tree.WriteRecordFd(fd, rec); err != nil {
		return err
	}
	if v.privileged {
		uid, gid := owner(dirfd, c)
		if err := unix.Fchown(fd, uid, gid); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(fd, mode&0o7777); err != nil {
		return err
	}
	raw, err := v.content.Create(rec.ID)
	if err != nil {
		return err
	}
	return raw.Close()
}

// Mknod makes a regular file, a fifo, a socket or a device.
func (v *Volume) Mknod(dir *Node, name string, mode, rdev uint32, c Caller) (*Node, Attr, error) {
	if v.readOnly {
		return nil, Attr{}, unix.EROFS
	}
	if t := mode & unix.S_IFMT; t == unix.S_IFREG || t == 0 {
		n, err := v.makeFile(dir, name, mode, c)
		if err != nil {
			return nil, Attr{}, err
		}
		a, err := v.Stat(n)
		if err != nil {
			v.unref(n, 1)
		}
		return n, a, err
	}
	return v.make(dir, name, c, &mode, func(fd int) error {
		return unix.Mknodat(fd, name, mode&unix.S_IFMT|0o600, int(rdev))
	})
}

// Mkdir makes a directory.
func (v *Volume) Mkdir(dir *Node, name string, mode uint32, c Caller) (*Node, Attr, error) {
	return v.make(dir, name, c, &mode, func(fd int) error { return unix.Mkdirat(fd, name, 0o700) })
}

// Symlink makes a symbolic link.
func (v *Volume) Symlink(dir *Node, name, target string, c Caller) (*Node, Attr, error) {
	return v.make(dir, name, c, nil, func(fd int) error { return unix.Symlinkat(target, fd, name) })
}

// make makes anything but a regular file.
func (v *Volume) make(dir *Node, name string, c Caller, mode *uint32, do func(dirfd int) error) (*Node, Attr, error) {
	if v.readOnly {
		return nil, Attr{}, unix.EROFS
	}
	v.ns.RLock()
	defer v.ns.RUnlock()
	dirfd, err := v.dirFd(dir)
	if err != nil {
		return nil, Attr{}, err
	}
	defer v.releaseDir(dir)
	if err := do(dirfd); err != nil {
		return nil, Attr{}, err
	}
	err = v.give(dirfd, name, c)
	if err == nil && mode != nil {
		err = v.chmodNew(dirfd, name, *mode)
	}
	if err != nil {
		if unix.Unlinkat(dirfd, name, 0) == unix.EISDIR {
			unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR)
		}
		return nil, Attr{}, err
	}
	return v.adopt(dirfd, dir, name)
}

// chmodNew sets the mode of a new name, keeping a set-group-id bit that a directory inherited.
func (v *Volume) chmodNew(dirfd int, name string, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.Fchmodat(dirfd, name, mode&0o7777|st.Mode&unix.S_ISGID, 0)
}

// Tmpfile makes a regular file without a name and opens it.
func (v *Volume) Tmpfile(dir *Node, mode, flags uint32, c Caller) (*Node, Attr, *Handle, error) {
	if v.readOnly {
		return nil, Attr{}, nil, unix.EROFS
	}
	n, err := v.makeUnnamed(dir, mode, c)
	if err != nil {
		return nil, Attr{}, nil, err
	}
	return v.openNew(n, flags)
}

func (v *Volume) makeUnnamed(dir *Node, mode uint32, c Caller) (*Node, error) {
	rec := tree.Record{ID: tree.NewID()}
	fd, err := v.openUnnamed(dir)
	if err != nil {
		return nil, err
	}
	if err = tree.WriteRecordFd(fd, &rec); err == nil && v.privileged {
		err = unix.Fchown(fd, int(c.UID), int(c.GID))
	}
	if err == nil {
		err = unix.Fchmod(fd, mode&0o7777)
	}
	var raw *os.File
	if err == nil {
		raw, err = v.content.CreateUnnamed(rec.ID)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	v.tab.mu.Lock()
	n := v.tab.insert(&st)
	n.keep, n.dead = fd, true
	f := n.file
	f.loaded, f.rec, f.resident, f.raw = true, rec, true, raw
	v.tab.mu.Unlock()
	return n, nil
}

func (v *Volume) openUnnamed(dir *Node) (int, error) {
	v.ns.RLock()
	defer v.ns.RUnlock()
	dirfd, err := v.dirFd(dir)
	if err != nil {
		return -1, err
	}
	defer v.releaseDir(dir)
	return unix.Openat(dirfd, ".", unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
}

// Link gives a node one more name.
func (v *Volume) Link(n, dir *Node, name string) (Attr, error) {
	if v.readOnly {
		return Attr{}, unix.EROFS
	}
	if n.view != nil {
		return Attr{}, unix.EPERM
	}
	if n.file != nil {
		n.file.mu.Lock()
		defer n.file.mu.Unlock()
	}
	if err := v.link(n, dir, name); err != nil {
		return Attr{}, err
	}
	v.ref(n)
	return v.statLocked(n)
}

func (v *Volume) link(n, dir *Node, name string) error {
	v.ns.Lock()
	defer v.ns.Unlock()
	dirfd, err := v.dirFd(dir)
	if err != nil {
		return err
	}
	defer v.releaseDir(dir)
	p, err := v.locate(n)
	if err != nil {
		return err
	}
	defer v.release(p)
	flag := 0
	if p.magic {
		flag = unix.AT_SYMLINK_FOLLOW
	}
	if n.dead && (n.file == nil || n.file.raw == nil) {
		return unix.ENOENT
	}
	if err := unix.Linkat(p.dirfd, p.name, dirfd, name, flag); err != nil {
		return err // ENOENT for a file that had a name and lost it
	}
	if n.dead {
		if err := v.content.Name(n.file.raw, n.file.rec.ID); err != nil {
			unix.Unlinkat(dirfd, name, 0)
			return err
		}
	}
	v.tab.mu.Lock()
	v.addAlias(n, dir, name)
	if n.dead {
		n.dead = false
		v.tab.byIno[inoKey(n.ino)] = n
	}
	v.tab.mu.Unlock()
	return nil
}

// Readlink is the target of a symbolic link.
func (v *Volume) Readlink(n *Node) (string, error) {
	v.ns.RLock()
	defer v.ns.RUnlock()
	p, err := v.locate(n)
	if err != nil {
		return "", err
	}
	defer v.release(p)
	buf := make([]byte, unix.PathMax)
	name := p.name
	if p.magic {
		name = "" // an O_PATH descriptor of the link itself
		k, err := unix.Readlinkat(n.keep, name, buf)
		return string(buf[:max(k, 0)]), err
	}
	k, err := unix.Readlinkat(p.dirfd, name, buf)
	return string(buf[:max(k, 0)]), err
}
