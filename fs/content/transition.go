package content

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/tree"
)

// Reasons for which evict leaves a file as it is.
const (
	SkipNotPacked = "not packed"
	SkipOpen      = "open"
	SkipInUse     = "in use: open or mapped; it is evicted once it is not"
	skipBusy      = "being hydrated"
)

// Evict gives up the bytes in place of a packed file. A reason says why they were kept; "" and nil also when there are
// none.
func (f *File) Evict() (skip string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.LoadLocked(); err != nil {
		return "", err
	}
	switch {
	case !f.rec.Packed():
		return SkipNotPacked, nil
	case f.rec.Hollow || f.node.Dead():
		return "", nil
	case f.pass > 0:
		return SkipOpen, nil
	case f.hydrating:
		return skipBusy, nil
	}
	if f.users() > 0 { // they will go on by the manifest
		if _, err := f.c.Complete(f.rec.Manifest); err != nil {
			return f.keep(err)
		}
		if err := f.openAsm(); err != nil {
			return "", err
		}
	}
	f.setRaw(nil, false)
	size, skip, lost, err := f.evictAlone()
	if lost != nil {
		return f.keep(lost)
	}
	if skip != "" || err != nil {
		return skip, err
	}
	f.c.Count.EvictedFiles.Add(1)
	f.c.Count.EvictedBytes.Add(size)
	f.c.events.Resident(f, 0)
	f.kept = 0
	return "", nil
}

// evictAlone makes a packed file hollow if nobody else has it open. lost says why it cannot be read by its manifest. f.mu is
// held.
func (f *File) evictAlone() (size int64, skip string, lost, err error) {
	own, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		return 0, "", nil, err
	}
	defer own.Close()
	release, err := tree.Alone(int(own.Fd()))
	switch {
	case err == nil:
		defer release()
	case errors.Is(err, tree.ErrInUse) || f.c.Passthrough.Load():
		// Somebody maps it. Readers here go on by the manifest, until the next open.
		return 0, SkipInUse, nil, nil
	}
	if f.users() == 0 { // else that was looked at
		if _, lost := f.c.Complete(f.rec.Manifest); lost != nil {
			return 0, "", lost, nil
		}
	}
	size = f.UnpackedLocked()
	return size, "", nil, f.hollow(own)
}

// maxKept bounds how often a file is packed again in vain.
const maxKept = 3

// keep has a packed file whose manifest does not serve, as lost says, go on by its bytes in place: they become the file again,
// and it is packed anew, which stores afresh what is lost. f.mu is held.
func (f *File) keep(lost error) (skip string, err error) {
	lost = fmt.Errorf("it cannot be read by its manifest: %w", lost)
	if !errors.Is(lost, cas.ErrCorrupt) && !errors.Is(lost, cas.ErrNotFound) || f.pass > 0 || f.kept == maxKept {
		return "", lost
	}
	f.kept++
	f.c.Count.EvictErrs.Add(1)
	f.c.report(slog.LevelError, "the manifest of a packed file is damaged; the file is kept by its bytes in place, and packed again",
		"path", f.node.Path(), "reason", lost)
	if err := f.UnpackLocked(false); err != nil {
		return "", fmt.Errorf("%w; its bytes in place could not be made the file again: %w", lost, err)
	}
	if f.users() > 0 {
		if err := f.openRaw(false); err != nil {
			return "", err
		}
		f.closeAsm()
	}
	f.c.events.Dirty(f)
	return fmt.Sprintf("%v; it is kept by its bytes in place, and packed again", lost), nil
}

// hollow makes a packed file that nobody else has open hollow. own is open for writing. An error says that the record
// stays as it was; if the bytes cannot be given up, that is reported. f.mu is held.
func (f *File) hollow(own *os.File) error {
	st, err := own.Stat()
	if err != nil {
		return err
	}
	rec := f.rec
	rec.Hollow = true
	if err := f.c.Step("hollow: record"); err != nil {
		return err
	}
	if err := f.WriteRecordLocked(rec); err != nil {
		return err
	}
	f.moved = true
	f.giveUp(own, st.Size())
	return nil
}

// giveUp makes holes of the bytes of a hollow file. A failure costs only space. f.mu is held.
func (f *File) giveUp(own *os.File, size int64) {
	err := f.c.Step("hollow: punch")
	if err == nil {
		err = tree.HollowOut(int(own.Fd()), &tree.Header{Store: f.c.ID, Record: f.rec, Size: size})
	}
	if err == nil {
		err = f.c.Step("hollow: mtime")
	}
	if err == nil {
		err = tree.SetMtime(int(own.Fd()), f.rec.Mtime)
	}
	if err != nil {
		f.c.report(slog.LevelWarn, "the bytes of a packed file stay in place", "path", f.node.Path(), "reason", err)
	}
}

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
		f.c.report(slog.LevelError, "the manifest of a packed file cannot be read; its bytes stay in place and are not believed", "path", f.node.Path(), "reason", err)
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

// HeadedLocked reports whether a hollow file of this size has the header that says so. f.mu is held.
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
// empty. f.mu is held; it is given up while the file is filled in.
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
	if err := f.unpacked(); err != nil || f.node.Dead() {
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
	if f.node.Dead() {
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
