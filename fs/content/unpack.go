package content

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// UnpackLocked makes a file plain: afterwards its bytes lie in the inode, and it has no manifest. With empty
// set, it is empty. mu is released while the file is hydrated.
func (f *File) UnpackLocked(empty bool) error {
	f.mu.AssertHeld()
	for f.local.hydrating {
		f.cond.Wait()
	}
	if !f.rec.Packed() {
		return f.unsumLocked()
	}
	f.c.events.Unpacked(f, f.rec.Manifest)
	u := unpacking{f: f}
	if empty {
		return u.emptyLocked()
	}
	return u.wholeLocked()
}

// UnpackInPlace is UnpackLocked of a local copy that the caller has compared with the manifest. Where
// it is not known whether the disk has it, the disk is asked before the bytes are written again: what is
// packed may have rotted since.
func UnpackInPlace(f *File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.local.hydrating {
		f.cond.Wait()
	}
	if !f.rec.Packed() {
		return f.unsumLocked()
	}
	f.c.events.Unpacked(f, f.rec.Manifest)
	return unpacking{f: f, inPlace: true}.wholeLocked()
}

// unpacking is the transition of a packed file to a plain one. File.mu is held.
type unpacking struct {
	f       *File
	inPlace bool // the local copy was compared with the manifest
}

// emptyLocked drops the bytes: a program truncates the file.
func (u unpacking) emptyLocked() error {
	f := u.f
	if err := f.c.Step("empty: begin"); err != nil {
		return err
	}
	if err := f.writeRecordLocked(tree.Record{Emptying: true}); err != nil {
		return err
	}
	if err := u.finishEmptyingLocked(); err != nil {
		f.loaded = false // the next to come tries again
		return err
	}
	return u.endLocked()
}

// finishEmptyingLocked ends what emptyLocked began, perhaps before a crash.
func (u unpacking) finishEmptyingLocked() error {
	f := u.f
	own, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		return err
	}
	defer own.Close()
	if err := f.c.Step("empty: truncate"); err != nil {
		return err
	}
	if err := own.Truncate(0); err != nil {
		return err
	}
	f.moved = true
	if err := f.c.Step("empty: record"); err != nil {
		return err
	}
	return f.writeRecordLocked(tree.Record{})
}

// wholeLocked keeps the bytes: they are hydrated, unless the local copy is known to be durable, and durable
// before the record loses the manifest. An error leaves the file hollow.
func (u unpacking) wholeLocked() error {
	f := u.f
	own, err := u.openLocked()
	if err != nil {
		return err
	}
	defer own.Close()
	err = u.syncLocked(own)
	var literal bool
	if err == nil {
		literal, err = f.c.looksHollow(own)
	}
	if err == nil {
		err = f.c.Step("unpack: record")
	}
	if err != nil {
		u.abandonLocked(own, err)
		return err
	}
	before := f.rec
	err = f.writeRecordLocked(tree.Record{
		ViewHidden: before.ViewHidden, Literal: literal, Lost: before.Lost,
	})
	if err == nil && !f.Dead() {
		// What a program writes over the bytes and makes durable by fdatasync(2), O_DSYNC or msync(2) would
		// be lost to the manifest by a power cut: of the inode these wait for the size alone.
		if err = f.c.Step("unpack: sync record"); err == nil {
			err = f.c.Fsync(int(own.Fd()), false)
		}
	}
	if err != nil { // it may have been written, all the same
		if werr := f.writeRecordLocked(before); werr == nil {
			u.abandonLocked(own, err)
			return err
		} else if f.rec.Packed() {
			return errors.Join(err, werr)
		}
	}
	return errors.Join(err, u.endLocked())
}

// openLocked opens the inode once its bytes are whole, and no failure to write them can have been told to
// others alone: on the descriptor that they were hydrated by, or the local copy is known to be durable, or it
// was read from the disk.
func (u unpacking) openLocked() (*os.File, error) {
	f := u.f
	switch {
	case f.rec.Hollow:
	case f.local.durable(f.c):
		return f.OpenQuietly()
	case f.users.pass > 0:
		return u.verifiedLocked()
	case u.inPlace:
		if own, err := u.verifiedLocked(); !errors.Is(err, errCopyInUse) {
			return own, err
		}
		if !f.rec.Hollow && (f.c.wholly(&f.rec) != nil || (distrust{f}).rejectLocked() != nil) {
			return f.OpenQuietly() // it is all there is
		}
	case (distrust{f}).rejectLocked() != nil: // it is all there is
		return f.OpenQuietly()
	}
	h := hydration{f: f}
	if err := h.openLocked(); err != nil {
		return nil, err
	}
	if err := h.fillLocked(); err != nil {
		h.own.Close()
		return nil, err
	}
	return h.own, nil
}

// abandonLocked has a file that stays packed be read by its manifest.
func (u unpacking) abandonLocked(own *os.File, why error) {
	f := u.f
	st, err := own.Stat()
	if err == nil && f.rec.Hollow {
		distrust{f}.dropHydratedLocked(own, st.Size())
	}
	distrust{f}.noteLocked(why)
}

// syncLocked gives the inode, which own is open on, the file's times, and makes its bytes durable: the record
// must not lose the manifest before.
func (u unpacking) syncLocked(own *os.File) error {
	f := u.f
	var st unix.Stat_t
	if err := unix.Fstat(int(own.Fd()), &st); err != nil {
		return err
	}
	if ns, ok := tree.Nanoseconds(st.Mtim); !ok || ns != f.rec.Mtime {
		if err := tree.SetMtime(int(own.Fd()), f.rec.Mtime); err != nil {
			return err
		}
	}
	if err := f.c.Step("unpack: sync"); err != nil {
		return err
	}
	if f.Dead() {
		return nil
	}
	return f.c.Fsync(int(own.Fd()), false)
}

// endLocked has readers that are at it read the bytes of the inode from now on.
func (u unpacking) endLocked() error {
	f := u.f
	f.moved, f.local.left = true, false
	f.local.forget(f.c)
	f.c.events.Resident(f, 0)
	f.changedLocked()
	if f.src.asm == nil {
		return nil
	}
	if err := f.openRawLocked(false); err != nil {
		return err
	}
	f.src.closeAsm()
	return nil
}

// looksHollow reports whether a file that is not hollow begins like one that is: a part of a packed file that
// was copied by its manifest may.
func (c *Files) looksHollow(own *os.File) (bool, error) {
	var head [tree.HeaderSize]byte
	k, err := own.ReadAt(head[:], 0)
	if err == io.EOF {
		err = nil
	}
	return tree.LooksHollow(head[:k], c.ID), err
}

// wholly reads all of a packed file by its manifest.
func (c *Files) wholly(rec *tree.Record) error {
	src, err := c.openPacked(rec)
	if err != nil {
		return err
	}
	defer src.Close()
	buf := c.copyBufs.Get().(*[]byte)
	defer c.copyBufs.Put(buf)
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.NewSectionReader(src, 0, src.Size()), *buf)
	return err
}
