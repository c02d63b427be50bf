package names

import (
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// atPlace calls do with the node's place, while names are held.
func (n *Node) atPlace(do func(p place) error) error {
	n.ns.ns.RLock()
	defer n.ns.ns.RUnlock()
	p, err := n.locateLocked()
	if err != nil {
		return err
	}
	defer n.ns.release(p)
	return do(p)
}

// ReadRecord reads the inode's record; tree.ErrNoRecord when it has none.
func (n *Node) ReadRecord() (rec tree.Record, err error) {
	err = n.atPlace(func(p place) (err error) {
		if p.magic {
			rec, err = tree.ReadRecord(p.path())
		} else {
			rec, err = tree.ReadRecordAt(p.dirfd, p.name)
		}
		return err
	})
	return rec, err
}

// WriteRecord stores a record in the inode.
func (n *Node) WriteRecord(rec *tree.Record) error {
	defer n.ns.o.Recorded(n.ino)
	return n.atPlace(func(p place) error { return tree.WriteRecord(p.path(), rec) })
}

// Open opens the inode. A daemon without privileges opens one too whose mode denies its owner. A file's mu is
// held: with a lease taken under it the open would wait, with names held.
func (n *Node) Open(flags int) (f *os.File, err error) {
	err = n.atPlace(func(p place) error {
		fd, err := n.ns.opening(func() (int, error) { return p.open(flags) })
		if err == unix.EACCES && !n.ns.privileged {
			err = tree.WithOwnerBits(p.path(), func() (err error) {
				fd, err = p.open(flags)
				return err
			})
		}
		if err == nil {
			f = os.NewFile(uintptr(fd), p.name)
		}
		return err
	})
	return f, err
}

// Stat describes the inode itself.
func (n *Node) Stat(st *unix.Stat_t) error {
	return n.atPlace(func(p place) error { return p.stat(st) })
}

// Dead reports whether no name leads to the node.
func (n *Node) Dead() bool {
	n.ns.tab.mu.Lock()
	defer n.ns.tab.mu.Unlock()
	return n.dead
}

// SetHost changes the inode's mode, owner and times as s says.
func (n *Node) SetHost(s *tree.SetAttr) error {
	return n.atPlace(func(p place) error { return n.setAt(p, s) })
}

func (n *Node) setAt(p place, s *tree.SetAttr) error {
	path := p.path()
	if s.UID != nil || s.GID != nil || s.Nothing() {
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
	if (s.KillSUID || s.Nothing() && s.By != nil) && mode == nil && n.file != nil {
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

// OpenBeside opens what a path below the mount's root leads to. Symlinks are not followed.
func (n *Node) OpenBeside(path string, flags int) (*os.File, error) {
	fd, err := tree.OpenBelow(n.ns.rootFd, path, uint64(flags))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Readlink is the target of a symbolic link.
func (n *Node) Readlink() (string, error) { return n.ReadlinkFor(tree.Caller{}) }

// ReadlinkFor is Readlink for a caller.
func (n *Node) ReadlinkFor(c tree.Caller) (string, error) {
	if n.synth != nil {
		return n.synth.Readlink(c)
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
