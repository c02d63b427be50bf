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
	v.ns.RLock()
	p, err := v.locate(n)
	if err != nil {
		v.ns.RUnlock()
		return Attr{}, err
	}
	err = p.stat(&st)
	v.release(p)
	v.ns.RUnlock()
	if err != nil {
		return Attr{}, err
	}
	a := attrOf(&st)
	if n.file == nil {
		return a, nil
	}
	return a, v.fileAttr(n, &a)
}

// fileAttr replaces in a, which is the stub's, what the file's bytes decide. f.mu is held.
func (v *Volume) fileAttr(n *Node, a *Attr) error {
	f := n.file
	if err := v.load(n); err != nil {
		return err
	}
	a.Blocks = (a.Size + 511) / 512 // tools take fewer blocks for holes
	if f.rec.Packed() || !f.resident {
		return nil
	}
	var c unix.Stat_t
	var err error
	if f.raw != nil {
		err = unix.Fstat(int(f.raw.Fd()), &c)
	} else {
		err = v.content.Stat(f.rec.ID, &c)
	}
	if err != nil {
		return err
	}
	a.Size, a.Blocks, a.Mtime, a.Atime = c.Size, c.Blocks, c.Mtim, c.Atim
	if later(c.Ctim, a.Ctime) {
		a.Ctime = c.Ctim
	}
	a.Settled = f.writers == 0 && !f.dirty
	return nil
}

func later(a, b unix.Timespec) bool { return a.Sec > b.Sec || a.Sec == b.Sec && a.Nsec > b.Nsec }

// settleStub gives the stub the size and times of the raw file. f.mu is held. An error costs nothing but that the next
// unclean start looks at the raw file again.
func (v *Volume) settleStub(n *Node) {
	f := n.file
	var c unix.Stat_t
	if v.content.Stat(f.rec.ID, &c) != nil {
		return
	}
	v.ns.RLock()
	defer v.ns.RUnlock()
	p, err := v.locate(n)
	if err != nil {
		return
	}
	defer v.release(p)
	tree.SettleStub(p.path(), c.Size, c.Atim, c.Mtim)
}

// SetAttr is a change of attributes; nil fields stay as they are.
type SetAttr struct {
	Mode     *uint32
	UID, GID *uint32
	Size     *int64
	Atime    *unix.Timespec // Nsec may be UTIME_NOW
	Mtime    *unix.Timespec
	KillSUID bool // clear set-user-id and, for an executable, set-group-id
}

// Setattr changes a node's attributes and returns the new ones. h may be nil.
func (v *Volume) Setattr(n *Node, s *SetAttr) (Attr, error) {
	if v.readOnly {
		return Attr{}, unix.EROFS
	}
	if n.view != nil {
		return Attr{}, unix.EPERM
	}
	if n.file != nil {
		n.file.mu.Lock()
		defer n.file.mu.Unlock()
		if err := v.load(n); err != nil {
			return Attr{}, err
		}
	}
	if s.Size != nil {
		if err := v.resize(n, *s.Size); err != nil {
			return Attr{}, err
		}
	}
	if err := v.setStub(n, s); err != nil {
		return Attr{}, err
	}
	return v.statLocked(n)
}

// resize is truncate(2). f.mu is held.
func (v *Volume) resize(n *Node, size int64) error {
	if n.file == nil {
		return unix.EINVAL
	}
	f := n.file
	if f.damaged != nil && size != 0 {
		return unix.EIO
	}
	if err := v.makeWritable(n, size == 0); err != nil {
		return err
	}
	if err := v.openSource(f); err != nil {
		return err
	}
	var err error
	if size != 0 {
		err = v.truncateRaw(n, size)
	}
	v.closeSources(n)
	if f.writers == 0 {
		v.writersGone(n)
	}
	return err
}

// setStub applies everything but the size. f.mu is held if n is a file.
func (v *Volume) setStub(n *Node, s *SetAttr) error {
	v.ns.RLock()
	defer v.ns.RUnlock()
	p, err := v.locate(n)
	if err != nil {
		return err
	}
	defer v.release(p)
	path := p.path()
	if s.UID != nil || s.GID != nil {
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
	if s.KillSUID && mode == nil && n.file != nil {
		var st unix.Stat_t
		if err := p.stat(&st); err != nil {
			return err
		}
		m := st.Mode & 0o7777 &^ unix.S_ISUID
		if m&unix.S_IXGRP != 0 {
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
	if err := unix.UtimesNanoAt(p.dirfd, p.name, ts[:], flag); err != nil {
		return err
	}
	if f := n.file; f != nil && f.resident {
		if f.raw != nil {
			return unix.UtimesNanoAt(unix.AT_FDCWD, procFd(f.raw), ts[:], 0)
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, v.content.Path(f.rec.ID), ts[:], unix.AT_SYMLINK_NOFOLLOW)
	}
	return nil
}

// StatFS describes the disk that the store lies on.
func (v *Volume) StatFS() (unix.Statfs_t, error) {
	var st unix.Statfs_t
	err := unix.Fstatfs(v.rootFd, &st)
	return st, err
}

// TimespecOf converts a time.
func TimespecOf(t time.Time) unix.Timespec { return unix.NsecToTimespec(t.UnixNano()) }
