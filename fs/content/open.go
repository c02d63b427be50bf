package content

import (
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// openedToExecute is the flag that the kernel opens a program with; open(2) has none for it.
const openedToExecute = 0x20

// Open opens the file for a thread, as the kernel tells it, or 0. flags are open(2)'s; the kernel has checked
// the permissions. The errors are EROFS, ETXTBSY, EIO for what is damaged, and the host's.
func (f *File) Open(flags, thread uint32) (*Handle, error) {
	if flags&unix.O_TRUNC == 0 {
		Reach(f)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.LoadLocked(); err != nil {
		return nil, err
	}
	if flags&unix.O_TRUNC == 0 {
		if err := f.VetLocked(); err != nil {
			return nil, err
		}
	}
	if f.damaged != nil && flags&unix.O_TRUNC == 0 {
		f.c.report(slog.LevelError, "damaged file", "path", f.Path(), "reason", f.damaged)
		return nil, unix.EIO
	}
	write := flags&unix.O_ACCMODE != unix.O_RDONLY
	if write || flags&unix.O_TRUNC != 0 {
		if f.c.readOnly {
			return nil, unix.EROFS
		}
		if f.users.programs > 0 && !write { // the kernel refuses a writer, but not a reader that truncates
			return nil, unix.ETXTBSY
		}
		if err := f.makeWritableLocked(flags&unix.O_TRUNC != 0); err != nil {
			return nil, err
		}
	}
	h, err := newHandleLocked(f, flags, thread)
	if err != nil {
		f.abandonedLocked()
	}
	return h, err
}

// OpenNew opens a file that was made just now and that raw is open on, for writing too if rw is set.
func (f *File) OpenNew(raw *os.File, rw bool, flags, thread uint32) (*Handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.NewLocked()
	if f.src.raw == nil {
		f.src.setRaw(raw, rw)
	} else { // another open was first
		raw.Close()
	}
	f.changedLocked()
	return newHandleLocked(f, flags, thread)
}

// newHandleLocked makes a handle of a file whose state fits flags.
func newHandleLocked(f *File, flags, thread uint32) (*Handle, error) {
	f.mu.AssertHeld()
	f.users.stale = f.users.stale || outsideLocked(f)
	served := f.c.isTarget(flags, thread, f.rec.Packed())
	access := flags & unix.O_ACCMODE
	h := asOpened(f, flags)
	if err := f.openSourceLocked(); err != nil {
		f.closeSourceLocked()
		return nil, f.OpenFailed(err)
	}
	h.Mode = f.users.mode(access, f.src.raw != nil, f.c.Passthrough.Load() && !served)
	if h.Mode == Passthrough && f.users.pass == 0 {
		id, err := f.c.Kernel().RegisterBacking(int(f.src.raw.Fd()))
		if err != nil {
			f.c.report(slog.LevelWarn, "passthrough refused for one file; the daemon serves it",
				"path", f.Path(), "reason", err)
			h.Mode = Cached
		} else {
			f.users.backing = id
		}
	}
	if h.Mode != Passthrough && h.Writes {
		if err := f.openRawLocked(true); err != nil {
			f.closeSourceLocked()
			return nil, err
		}
	}
	enterLocked(f, h)
	if f.rec.Packed() && !f.c.readOnly {
		f.local.opens++
		f.c.events.Opened(f, f.local.opens)
	}
	return h, nil
}

// Reopen makes the handle again that an earlier process gave to the kernel: flags are open(2)'s, mode and
// backing what the kernel was told. The file is neither truncated nor made plain: what the kernel has of it
// goes on as it was. No other call has been made for the file in this process, but other Reopens.
func Reopen(f *File, flags uint32, mode Mode, backing int32) (*Handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.LoadLocked(); err != nil {
		return nil, err
	}
	h := asOpened(f, flags)
	h.Mode = mode
	if mode == Passthrough {
		f.users.backing = backing
	}
	err := f.openSourceLocked()
	if err == nil && h.Writes && mode != Passthrough && !f.rec.Packed() {
		err = f.openRawLocked(true)
	}
	if err != nil {
		f.closeSourceLocked()
		return nil, f.OpenFailed(err)
	}
	if h.Writes {
		f.changedLocked()
	}
	enterLocked(f, h)
	f.users.stale = true // it is not known since when the kernel has its pages
	return h, nil
}

// asOpened is the Handle of an open with these flags, without its mode.
func asOpened(f *File, flags uint32) *Handle {
	return &Handle{
		f: f, Writes: flags&unix.O_ACCMODE != unix.O_RDONLY, sync: flags & (unix.O_SYNC | unix.O_DSYNC),
		program: flags&openedToExecute != 0, noatime: flags&unix.O_NOATIME != 0,
		since: f.c.now().Add(-clockTick),
	}
}

// enterLocked counts a handle in.
func enterLocked(f *File, h *Handle) {
	if !f.users.open() {
		f.c.Count.OpenFiles.Add(1)
	}
	if firstWriter := f.users.enter(h); firstWriter {
		f.c.events.Writing(f)
	}
	f.node.Pin()
	f.c.Count.Opens[h.Mode].Add(1)
	f.c.Count.Handles.Add(1)
}

// makeWritableLocked prepares a file for a writer.
func (f *File) makeWritableLocked(truncate bool) (err error) {
	defer func() {
		if err != nil {
			f.abandonedLocked()
		}
	}()
	f.node.Changes(f.bytes.gen + 1)
	if err := f.UnpackLocked(truncate); err != nil {
		return err
	}
	if truncate {
		if err := f.truncateRawLocked(0); err != nil {
			return err
		}
		f.bytes.emptied++
		// What comes is another checkpoint, and the old one's damage is gone with it.
		if f.damaged != nil || f.rec != (tree.Record{}) {
			if err := f.writeRecordLocked(tree.Record{}); err != nil {
				return err
			}
		}
		f.damaged, f.vetted = nil, true
	}
	f.changedLocked()
	return nil
}

// truncateRawLocked sets the length of a plain file.
func (f *File) truncateRawLocked(size int64) error {
	w, done, err := f.WritableLocked()
	if err != nil {
		return err
	}
	defer done()
	if err := w.Truncate(size); err != nil {
		return err
	}
	f.users.stale = f.users.stale || f.users.pass > 0
	return nil
}

// WritableLocked returns the inode open for writing, until done is called.
func (f *File) WritableLocked() (w *os.File, done func(), err error) {
	f.mu.AssertHeld()
	if f.src.rw {
		return f.src.raw, func() {}, nil
	}
	w, err = f.node.Open(unix.O_RDWR)
	if err != nil {
		return nil, nil, err
	}
	return w, func() { w.Close() }, nil
}

// abandonedLocked has a file packed that was made plain for a writer that does not come: there is no last
// close.
func (f *File) abandonedLocked() {
	f.mu.AssertHeld()
	if f.users.writers == 0 && f.bytes.dirty && !f.rec.Packed() {
		f.writersGoneLocked()
	}
}

// writersGoneLocked has the file queued (Events.Dirty), or finds that it stays as it is (small.go). When its
// turn comes, Packing.staysPlain may still find so.
func (f *File) writersGoneLocked() {
	f.mu.AssertHeld()
	if f.Dead() {
		return
	}
	if f.src.raw != nil {
		// A program that asked for durable writes past this process, by O_SYNC or msync(2), may have been
		// told of a failure that no later descriptor is told of.
		if err := f.c.Failed(int(f.src.raw.Fd())); err != nil {
			distrust{f}.noteLocked(err)
		}
	}
	if !f.rec.Packed() {
		keepUnsyncedLocked(f)
	}
	if !f.settleSmallLocked() {
		f.c.events.Dirty(f)
	}
	if f.src.rw && f.users.all() > 0 { // a reader that stays must not look like a writer
		if raw, err := f.node.Open(unix.O_RDONLY); err == nil {
			f.src.setRaw(raw, false)
		}
	}
}
