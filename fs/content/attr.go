package content

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// AttrLocked replaces in a, which is the inode's, what the record decides.
func (f *File) AttrLocked(a *tree.Attr) error {
	f.mu.AssertHeld()
	if err := f.LoadLocked(); err != nil {
		return err
	}
	if !f.rec.Packed() {
		if f.rec.Emptying { // the store may not be changed
			a.Size, a.Blocks = 0, 0
		}
		a.Settled = f.users.writers == 0 && !f.bytes.dirty && !outsideLocked(f)
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
	if err := f.makeWritableLocked(size == 0); err != nil {
		return err
	}
	var err error
	if size != 0 {
		err = f.truncateRawLocked(size)
	}
	if f.users.writers == 0 {
		f.writersGoneLocked()
	}
	return err
}

// SetInodeLocked applies everything but the size.
func (f *File) SetInodeLocked(s *tree.SetAttr) error {
	if !f.rec.Packed() {
		if err := f.unsumLocked(); err != nil {
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
			if err := f.makeWritableLocked(false); err != nil {
				return err
			}
			err := f.node.SetHost(s)
			if f.users.writers == 0 {
				f.writersGoneLocked()
			}
			return err
		}
	}
	if err := f.node.SetHost(s); err != nil {
		return err
	}
	if s.Mtime != nil && !f.local.hydrating { // the host may have rounded it
		var st unix.Stat_t
		if err := f.node.Stat(&st); err != nil {
			return err
		}
		mtime, _ = tree.Nanoseconds(st.Mtim)
	}
	rec := f.rec
	rec.Mtime = mtime
	rec.Ctime = f.c.now().UnixNano()
	return f.writeRecordLocked(rec)
}

// TouchedLocked moves the change time that programs see to now, of a file whose record keeps it, after
// something that succeeded was done to its inode. A failure is reported. A file that was not packed for its
// attributes is packed now.
func (f *File) TouchedLocked() {
	err := f.LoadLocked()
	if f.noRoom && f.users.writers == 0 {
		f.noRoom, f.bytes.dirty = false, true
		f.c.events.Dirty(f)
	}
	switch {
	case err != nil:
	case f.rec.Packed():
		rec := f.rec
		rec.Ctime = f.c.now().UnixNano()
		err = f.writeRecordLocked(rec)
	case !f.Dead():
		err = f.unsumLocked() // which moves the inode's
	}
	if err != nil {
		f.c.report(slog.LevelWarn, "the change time of a file was not kept", "path", f.Path(), "reason", err)
	}
}
