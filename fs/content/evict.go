package content

import (
	"errors"
	"fmt"
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

// Evict drops the resident bytes of a packed file. A reason says why they were kept; "" and nil also when there are
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
	case f.rec.Hollow || f.Dead():
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
// and it is packed again, which stores afresh what is lost. f.mu is held.
func (f *File) keep(lost error) (skip string, err error) {
	lost = fmt.Errorf("it cannot be read by its manifest: %w", lost)
	if !errors.Is(lost, cas.ErrCorrupt) && !errors.Is(lost, cas.ErrNotFound) || f.pass > 0 || f.kept == maxKept {
		return "", lost
	}
	f.kept++
	f.c.Count.EvictErrs.Add(1)
	f.c.report(slog.LevelError, "the manifest of a packed file is damaged; the file is kept by its bytes in place, and packed again",
		"path", f.Path(), "reason", lost)
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
// stays as it was; if the bytes cannot be dropped, that is reported. f.mu is held.
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
		f.c.report(slog.LevelWarn, "the bytes of a packed file stay in place", "path", f.Path(), "reason", err)
	}
}
