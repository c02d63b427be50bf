package content

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// DisbelieveLocked makes a packed file hollow whose bytes in place nobody can vouch for, or that was cut off on its way to
// be hollow, and gives it the manifest's size. f.mu is held.
func (f *File) DisbelieveLocked() error {
	own, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		return err
	}
	defer own.Close()
	if !f.rec.Hollow {
		rec := f.rec
		rec.Hollow = true
		if err := f.WriteRecordLocked(rec); err != nil {
			return err
		}
	}
	f.moved = true
	st, err := own.Stat()
	if err != nil {
		return err
	}
	m, err := f.c.asm.Manifest(f.rec.Manifest)
	if err != nil { // what lies in place may be all there is, for a repair to move aside
		f.c.report(slog.LevelError, "the manifest of a packed file cannot be read; its bytes stay in place and are not believed", "path", f.Path(), "reason", err)
		return nil
	}
	size := st.Size()
	if m.Size != size {
		if err := own.Truncate(m.Size); err != nil {
			return err
		}
		size = m.Size
	}
	f.giveUp(own, size)
	return nil
}

// HeadedLocked reports whether a hollow file of this size has the header that says so.
func (f *File) HeadedLocked(size int64) bool {
	raw, err := f.OpenQuietly()
	if err != nil {
		return false
	}
	defer raw.Close()
	head, err := readHead(raw, size)
	if err != nil {
		return false
	}
	h, err := tree.DecodeHeader(head)
	return err == nil && h.Size == size && h.Record.Manifest == f.rec.Manifest
}

// finishEmptying ends what empty began. f.mu is held.
func (f *File) finishEmptying() error {
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
	return f.WriteRecordLocked(tree.Record{})
}

// UnpackLocked makes a file plain: afterwards the bytes in place are the file, and it has no manifest. With empty set, it is
// empty. f.mu is held; it is released while the file is hydrated.
func (f *File) UnpackLocked(empty bool) error {
	for f.hydrating {
		f.cond.Wait()
	}
	if !f.rec.Packed() {
		return f.unsum()
	}
	f.c.events.Unpacked(f, f.rec.Manifest)
	if empty {
		if err := f.c.Step("empty: begin"); err != nil {
			return err
		}
		if err := f.WriteRecordLocked(tree.Record{Emptying: true}); err != nil {
			return err
		}
		if err := f.finishEmptying(); err != nil {
			f.loaded = false // the next to come tries again
			return err
		}
		return f.unpacked()
	}
	if f.rec.Hollow {
		if err := f.hydrateLocked(); err != nil {
			return err
		}
	}
	own, err := f.OpenQuietly()
	if err != nil {
		return err
	}
	defer own.Close()
	if err := f.makeWhole(own); err != nil {
		return err
	}
	literal, err := f.c.looksHollow(own)
	if err != nil {
		return err
	}
	if err := f.c.Step("unpack: record"); err != nil {
		return err
	}
	if err := f.WriteRecordLocked(tree.Record{ViewHidden: f.rec.ViewHidden, Literal: literal}); err != nil {
		return err
	}
	if err := f.unpacked(); err != nil || f.Dead() {
		return err
	}
	if err := f.c.Step("unpack: sync record"); err != nil {
		return err
	}
	// What a program writes over the bytes and makes durable by fdatasync(2), O_DSYNC or msync(2) would be lost to the
	// manifest by a power cut: of the inode these wait for the size alone.
	return own.Sync()
}

// looksHollow reports whether a file with its bytes in place begins like a hollow one: a part of a packed file that was copied by
// its manifest may.
func (c *Files) looksHollow(own *os.File) (bool, error) {
	var head [tree.HeaderSize]byte
	k, err := own.ReadAt(head[:], 0)
	if err == io.EOF {
		err = nil
	}
	return tree.LooksHollow(head[:k], c.ID), err
}

// makeWhole gives the inode of a packed file that is not hollow, which own is open on, the file's times, and makes its
// bytes durable: the record must not lose the manifest before. f.mu is held.
func (f *File) makeWhole(own *os.File) error {
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

// unpacked ends unpack: readers that are at it read the bytes in place from now on. f.mu is held.
func (f *File) unpacked() error {
	f.moved = true
	f.c.events.Resident(f, 0)
	f.changed()
	if f.asm == nil {
		return nil
	}
	if err := f.openRaw(false); err != nil {
		return err
	}
	f.closeAsm()
	return nil
}
