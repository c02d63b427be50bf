package content

import (
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
	u := unpacking{f}
	if empty {
		return u.emptyLocked()
	}
	return u.wholeLocked()
}

// unpacking is the transition of a packed file to a plain one. File.mu is held.
type unpacking struct{ f *File }

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

// wholeLocked keeps the bytes: they are hydrated, and durable before the record loses the manifest.
func (u unpacking) wholeLocked() error {
	f := u.f
	if f.rec.Hollow {
		h := hydration{f: f}
		if err := h.runLocked(); err != nil {
			return err
		}
	}
	own, err := f.OpenQuietly()
	if err != nil {
		return err
	}
	defer own.Close()
	if err := u.syncLocked(own); err != nil {
		return err
	}
	literal, err := f.c.looksHollow(own)
	if err != nil {
		return err
	}
	if err := f.c.Step("unpack: record"); err != nil {
		return err
	}
	if err := f.writeRecordLocked(tree.Record{ViewHidden: f.rec.ViewHidden, Literal: literal}); err != nil {
		return err
	}
	if err := u.endLocked(); err != nil || f.Dead() {
		return err
	}
	if err := f.c.Step("unpack: sync record"); err != nil {
		return err
	}
	// What a program writes over the bytes and makes durable by fdatasync(2), O_DSYNC or msync(2) would be
	// lost to the manifest by a power cut: of the inode these wait for the size alone.
	return own.Sync()
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
	return own.Sync()
}

// endLocked has readers that are at it read the bytes of the inode from now on.
func (u unpacking) endLocked() error {
	f := u.f
	f.moved = true
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
