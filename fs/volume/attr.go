package volume

import (
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Attr is what stat(2) shows of a node.
type Attr struct {
	Ino    uint64
	Size   int64
	Blocks int64 // of 512 bytes
	Mode   uint32
	Nlink  uint32
	UID    uint32
	GID    uint32
	Rdev   uint32
	Atime  unix.Timespec
	Mtime  unix.Timespec
	Ctime  unix.Timespec

	// Settled says that nothing but a request through this mount will change the attributes, so that the kernel may
	// keep them. A file that is being written by passthrough, or waits to be packed and may be mapped, is not settled.
	Settled bool
}

func attrOf(st *unix.Stat_t) Attr {
	return Attr{
		Ino: st.Ino, Size: st.Size, Blocks: st.Blocks, Mode: st.Mode, Nlink: uint32(st.Nlink), UID: st.Uid, GID: st.Gid,
		Rdev: uint32(st.Rdev), Atime: st.Atim, Mtime: st.Mtim, Ctime: st.Ctim, Settled: true,
	}
}

// Stat describes a node.
func (v *Volume) Stat(n *Node) (Attr, error) {
	if n.virt != nil {
		return v.statVirtual(n)
	}
	if n.view != nil {
		return v.statView(n)
	}
	if n.file != nil {
		n.file.mu.Lock()
		defer n.file.mu.Unlock()
	}
	return v.statLocked(n)
}

// statLocked is Stat of a node that is no view; a file's mu is held.
func (v *Volume) statLocked(n *Node) (Attr, error) {
	var st unix.Stat_t
	if n.file != nil {
		if err := n.file.load(); err != nil { // which may have to end what was cut off
			return Attr{}, err
		}
	}
	v.names.ns.RLock()
	p, err := n.locate()
	if err != nil {
		v.names.ns.RUnlock()
		return Attr{}, err
	}
	err = p.stat(&st)
	v.names.release(p)
	v.names.ns.RUnlock()
	if err != nil {
		return Attr{}, err
	}
	a := attrOf(&st)
	if n.file == nil {
		return a, nil
	}
	return a, n.file.fileAttr(&a)
}

// fileAttr replaces in a, which is the inode's, what the record decides. f.mu is held.
func (f *file) fileAttr(a *Attr) error {
	if err := f.load(); err != nil {
		return err
	}
	if !f.rec.Packed() {
		if f.rec.Emptying { // the store may not be changed
			a.Size, a.Blocks = 0, 0
		}
		a.Settled = f.writers == 0 && !f.dirty
		if f.rec.Summed {
			a.Ctime = unix.NsecToTimespec(f.rec.Ctime)
		}
		return nil
	}
	a.Blocks = (a.Size + 511) / 512 // tools take fewer blocks for holes
	a.Mtime = unix.NsecToTimespec(f.rec.Mtime)
	if f.rec.Ctime != 0 {
		a.Ctime = unix.NsecToTimespec(f.rec.Ctime)
	}
	return nil
}

// SetAttr is a change of attributes; nil fields stay as they are.
type SetAttr struct {
	Mode     *uint32
	UID, GID *uint32
	Size     *int64
	Atime    *unix.Timespec // Nsec may be UTIME_NOW
	Mtime    *unix.Timespec
	KillSUID bool // clear set-user-id and, for an executable, set-group-id

	// By is who changed the bytes, if that is known: one outside of the file's group loses set-group-id of what is no
	// executable, too.
	By *Caller
}

// nothing reports whether no field is set: chown(2) of neither, which moves the change time.
func (s *SetAttr) nothing() bool {
	return s.Mode == nil && s.UID == nil && s.GID == nil && s.Size == nil && s.Atime == nil && s.Mtime == nil && !s.KillSUID
}

// Setattr changes a node's attributes and returns the new ones. h may be nil.
func (v *Volume) Setattr(n *Node, s *SetAttr) (Attr, error) {
	if n.virt != nil && n.virt.query != nil {
		if q := n.virt.query; s.Size != nil {
			q.mu.Lock()
			q.truncate(*s.Size)
			q.mu.Unlock()
		}
		return v.statVirtual(n)
	}
	if v.readOnly || n.virt != nil {
		return Attr{}, unix.EROFS
	}
	if n.view != nil {
		return v.setView(n, s)
	}
	defer v.steps.Changed(n.ino)
	if f := n.file; f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
	}
	if err := setInode(n, s); err != nil {
		return Attr{}, err
	}
	if n == v.names.root {
		v.restat()
	}
	return v.statLocked(n)
}

// setInode changes the attributes of a node of the tree; a file's mu is held.
func setInode(n *Node, s *SetAttr) error {
	f := n.file
	switch {
	case f == nil && s.Size != nil:
		return unix.EINVAL
	case f == nil:
		return n.setHost(s)
	}
	if err := f.load(); err != nil {
		return err
	}
	if s.Size != nil {
		if err := f.resize(*s.Size); err != nil {
			return err
		}
	}
	return f.setInode(s)
}

// resize is truncate(2). f.mu is held.
func (f *file) resize(size int64) error {
	if size != 0 {
		if err := f.vet(); err != nil {
			return err
		}
		if f.damaged != nil {
			return unix.EIO
		}
	}
	if err := f.makeWritable(size == 0); err != nil {
		return err
	}
	var err error
	if size != 0 {
		err = f.truncateRaw(size)
	}
	if f.writers == 0 {
		f.writersGone()
	}
	return err
}

// setInode applies everything but the size. f.mu is held.
func (f *file) setInode(s *SetAttr) error {
	if !f.rec.Packed() {
		if err := f.unsum(); err != nil {
			return err
		}
		return f.node.setHost(s)
	}
	mtime := f.rec.Mtime
	if s.Mtime != nil {
		if s.Mtime.Nsec == unix.UTIME_NOW { // the host's hand may not stay where it is put
			c := *s
			now := TimespecOf(f.c.v.now())
			c.Mtime = &now
			s = &c
		}
		var ok bool
		if mtime, ok = tree.Nanoseconds(*s.Mtime); !ok { // no record holds it
			if err := f.makeWritable(false); err != nil {
				return err
			}
			err := f.node.setHost(s)
			if f.writers == 0 {
				f.writersGone()
			}
			return err
		}
	}
	if err := f.node.setHost(s); err != nil {
		return err
	}
	if s.Mtime != nil && !f.hydrating { // the host may have rounded it
		var st unix.Stat_t
		if err := f.node.statInode(&st); err != nil {
			return err
		}
		mtime, _ = tree.Nanoseconds(st.Mtim)
	}
	rec := f.rec
	rec.Mtime = mtime
	rec.Ctime = f.c.v.now().UnixNano()
	return f.writeRecord(rec)
}

// accessed moves the access time of a hollow file that was read: the host does it for what it reads itself. As on a
// filesystem mounted with relatime, it moves once a day, or after a change. A failure is nobody's loss.
func (f *file) accessed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var st unix.Stat_t
	if !f.rec.Hollow || f.rec.Ctime == 0 || f.c.v.readOnly || f.node.statInode(&st) != nil {
		return
	}
	at := st.Atim.Nano()
	if now := f.c.v.now(); at > f.rec.Mtime && at > f.rec.Ctime && now.Sub(time.Unix(0, at)) < 24*time.Hour {
		return
	}
	f.node.setHost(&SetAttr{Atime: &unix.Timespec{Nsec: unix.UTIME_NOW}})
}

// setHost does what setInode says to the host's inode.
func (n *Node) setHost(s *SetAttr) error {
	n.ns.ns.RLock()
	defer n.ns.ns.RUnlock()
	p, err := n.locate()
	if err != nil {
		return err
	}
	defer n.ns.release(p)
	path := p.path()
	if s.UID != nil || s.GID != nil || s.nothing() {
		uid, gid := -1, -1
		if s.UID != nil {
			uid = int(*s.UID)
		}
		if s.GID != nil {
			gid = int(*s.GID)
		}
		flag := unix.AT_SYMLINK_NOFOLLOW
		if p.magic {
			flag = 0
		}
		if err := unix.Fchownat(p.dirfd, p.name, uid, gid, flag); err != nil {
			return err
		}
	}
	mode := s.Mode
	if (s.KillSUID || s.nothing() && s.By != nil) && mode == nil && n.file != nil {
		var st unix.Stat_t
		if err := p.stat(&st); err != nil {
			return err
		}
		m := st.Mode & 0o7777 &^ unix.S_ISUID
		if m&unix.S_IXGRP != 0 || s.By != nil && s.By.GID != st.Gid {
			m &^= unix.S_ISGID
		}
		if m != st.Mode&0o7777 {
			mode = &m
		}
	}
	if mode != nil {
		if n.mode == unix.S_IFLNK {
			return unix.EOPNOTSUPP
		}
		if err := unix.Chmod(path, *mode&0o7777); err != nil {
			return err
		}
	}
	if s.Atime == nil && s.Mtime == nil {
		return nil
	}
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	if s.Atime != nil {
		ts[0] = *s.Atime
	}
	if s.Mtime != nil {
		ts[1] = *s.Mtime
	}
	flag := unix.AT_SYMLINK_NOFOLLOW
	if p.magic {
		flag = 0
	}
	return unix.UtimesNanoAt(p.dirfd, p.name, ts[:], flag)
}

// StatFS describes the disk that the store lies on.
func (ns *Names) StatFS() (unix.Statfs_t, error) {
	var st unix.Statfs_t
	err := unix.Fstatfs(ns.rootFd, &st)
	return st, err
}

// TimespecOf converts a time.
func TimespecOf(t time.Time) unix.Timespec { return unix.NsecToTimespec(t.UnixNano()) }
