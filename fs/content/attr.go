package content

import (
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// AttrLocked replaces in a, which is the inode's, what the record decides.
func (f *File) AttrLocked(a *tree.Attr) error {
	if err := f.LoadLocked(); err != nil {
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

// ResizeLocked is truncate(2).
func (f *File) ResizeLocked(size int64) error {
	if size != 0 {
		if err := f.VetLocked(); err != nil {
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

// SetInodeLocked applies everything but the size.
func (f *File) SetInodeLocked(s *tree.SetAttr) error {
	if !f.rec.Packed() {
		if err := f.unsum(); err != nil {
			return err
		}
		return f.node.SetHost(s)
	}
	mtime := f.rec.Mtime
	if s.Mtime != nil {
		if s.Mtime.Nsec == unix.UTIME_NOW { // the host's hand may not stay where it is put
			c := *s
			now := tree.TimespecOf(f.c.now())
			c.Mtime = &now
			s = &c
		}
		var ok bool
		if mtime, ok = tree.Nanoseconds(*s.Mtime); !ok { // no record holds it
			if err := f.makeWritable(false); err != nil {
				return err
			}
			err := f.node.SetHost(s)
			if f.writers == 0 {
				f.writersGone()
			}
			return err
		}
	}
	if err := f.node.SetHost(s); err != nil {
		return err
	}
	if s.Mtime != nil && !f.hydrating { // the host may have rounded it
		var st unix.Stat_t
		if err := f.node.Stat(&st); err != nil {
			return err
		}
		mtime, _ = tree.Nanoseconds(st.Mtim)
	}
	rec := f.rec
	rec.Mtime = mtime
	rec.Ctime = f.c.now().UnixNano()
	return f.WriteRecordLocked(rec)
}

// accessed moves the access time of a hollow file that was read: the host does it for what it reads itself. As on a
// filesystem mounted with relatime, it moves once a day, or after a change. A failure is nobody's loss.
func (f *File) accessed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var st unix.Stat_t
	if !f.rec.Hollow || f.rec.Ctime == 0 || f.c.readOnly || f.node.Stat(&st) != nil {
		return
	}
	at := st.Atim.Nano()
	if now := f.c.now(); at > f.rec.Mtime && at > f.rec.Ctime && now.Sub(time.Unix(0, at)) < 24*time.Hour {
		return
	}
	f.node.SetHost(&tree.SetAttr{Atime: &unix.Timespec{Nsec: unix.UTIME_NOW}})
}
