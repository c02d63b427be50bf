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

// Reasons for which Evict leaves a file as it is.
const (
	SkipNotPacked = "not packed: `ckptfs sync` packs it"
	SkipOpen      = "open: it is evicted once nobody has it open"
	SkipInUse     = "in use: open or mapped; it is evicted once it is not"
	skipBusy      = "being hydrated: evict it again once it is"
	skipWriters   = "not packed: open for writing; it is packed once it is closed"
	skipWritten   = "being written: evict it again once it is packed"
)

// Evict drops the resident bytes of a packed file, which may be the only good ones: so the chunks that stand
// for them are proven first. A reason says why they were kept; "" and nil also when there are none.
func (f *File) Evict() (skip string, err error) {
	var proof error
	h, ok := provable(f)
	if ok {
		proof = f.c.prove(h)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.LoadLocked(); err != nil {
		return "", err
	}
	switch {
	case !f.rec.Packed() && f.users.writers > 0:
		return skipWriters, nil
	case !f.rec.Packed():
		return SkipNotPacked, nil
	case f.rec.Hollow || f.Dead():
		distrust{f}.dropLeftLocked()
		return "", nil
	case f.users.pass > 0:
		return SkipOpen, nil
	case f.local.hydrating:
		return skipBusy, nil
	}
	if !f.rec.Remote && (!ok || f.rec.Manifest != h) {
		return skipWritten, nil // it got another manifest meanwhile
	}
	e := eviction{f: f, lost: proof}
	if proof == nil {
		skip, err = e.runLocked()
	}
	if e.lost != nil {
		return e.keepLocked()
	}
	if skip != "" || err != nil {
		return skip, err
	}
	f.c.Count.EvictedFiles.Add(1)
	f.c.Count.EvictedBytes.Add(e.size)
	f.c.events.Resident(f, 0)
	f.local.kept = 0
	return "", nil
}

// eviction is the transition of a resident file to a hollow one. File.mu is held.
type eviction struct {
	f    *File
	size int64 // of the local copy
	lost error // why the file cannot be read by its manifest
}

// runLocked makes the file hollow, unless lost is set or skip says why not.
func (e *eviction) runLocked() (skip string, err error) {
	f := e.f
	if f.users.all() > 0 { // they will go on by the manifest
		if e.lost = f.c.readable(&f.rec); e.lost != nil {
			return "", nil
		}
		if err := openAsmLocked(f); err != nil {
			return "", err
		}
	}
	f.src.setRaw(nil, false)
	own, err := f.node.Open(unix.O_RDWR)
	if err != nil {
		return "", err
	}
	defer own.Close()
	release, err := tree.Alone(int(own.Fd()))
	switch {
	case err == nil:
		defer release()
	case errors.Is(err, tree.ErrInUse) || f.c.Passthrough.Load():
		// A process maps it. Readers here go on by the manifest, until the next open.
		return SkipInUse, nil
	}
	if f.users.all() == 0 { // else that was looked at
		if e.lost = f.c.readable(&f.rec); e.lost != nil {
			return "", nil
		}
	}
	return "", e.hollowLocked(own)
}

// hollowLocked makes a packed file hollow that no program has open. own is open for writing. An error says
// that the record stays as it was; if the bytes cannot be dropped, that is reported.
func (e *eviction) hollowLocked(own *os.File) error {
	f := e.f
	st, err := own.Stat()
	if err != nil {
		return err
	}
	e.size = st.Size()
	rec := f.rec
	rec.Hollow = true
	if err := f.c.Step("hollow: record"); err != nil {
		return err
	}
	if err := f.writeRecordLocked(rec); err != nil {
		return err
	}
	f.moved = true
	f.local.forget(f.c)
	f.dropBytesLocked(own, st.Size())
	return nil
}

// maxKept bounds how often a file is packed again in vain.
const maxKept = 3

// keepLocked has a packed file whose manifest is lost go on by its local copy: that becomes the file again,
// and is packed again, which stores afresh what is lost.
func (e *eviction) keepLocked() (skip string, err error) {
	f := e.f
	lost := fmt.Errorf("it cannot be read by its manifest: %w", e.lost)
	if !errors.Is(lost, cas.ErrCorrupt) && !errors.Is(lost, cas.ErrNotFound) || f.users.pass > 0 ||
		f.local.kept == maxKept {
		return "", lost
	}
	f.local.kept++
	f.c.Count.EvictErrs.Add(1)
	f.c.report(slog.LevelError,
		"the manifest of a packed file is damaged; the file is kept by its local copy, and packed again",
		"path", f.Path(), "reason", lost)
	if err := f.UnpackLocked(false); err != nil {
		return "", fmt.Errorf("%w; its local copy could not be made the file again: %w", lost, err)
	}
	if f.users.all() > 0 {
		if err := f.openRawLocked(false); err != nil {
			return "", err
		}
		f.src.closeAsm()
	}
	f.c.events.Dirty(f)
	return fmt.Sprintf("%v; it is kept by its local copy, and packed again", lost), nil
}

// dropBytesLocked makes holes of the bytes of a hollow file, which own is open on. A failure costs only
// space.
func (f *File) dropBytesLocked(own *os.File, size int64) {
	f.mu.AssertHeld()
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
		f.c.report(slog.LevelWarn, "a packed file keeps its local copy", "path", f.Path(), "reason", err)
	}
}
