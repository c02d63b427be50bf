package content

import (
	"errors"
	"log/slog"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ckptfs/fs/assemble"
	"ckptfs/fs/tree"
)

// Mode is how the kernel serves a handle's reads and writes.
type Mode int

const (
	// Cached: through the kernel's page cache, from this process.
	Cached Mode = iota
	// Direct: from this process, past the page cache.
	Direct
	// Passthrough: by the kernel from the inode in the tree, without this process.
	Passthrough
)

// openedToExecute is the flag that the kernel opens a program with; open(2) has none for it.
const OpenedToExecute = 0x20

// Handle is an open file.
type Handle struct {
	f         *File
	Mode      Mode
	Backing   int32 // in Passthrough
	KeepCache bool  // in Cached: what the kernel has of the file is still right

	Writes  bool
	program bool         // a process executes the file
	noatime bool         // O_NOATIME
	sync    uint32       // O_SYNC or O_DSYNC: what this process writes is durable before it answers
	flushed bool         // guarded by file.mu
	read    atomic.Int64 // bytes
}

// Open opens the file for a thread, as the kernel tells it, or 0. flags are open(2)'s; the kernel has checked the permissions.
func (f *File) Open(flags, thread uint32) (*Handle, error) {
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
		if f.programs > 0 && !write { // who opens it for writing is refused by the kernel; who only truncates is not
			return nil, unix.ETXTBSY
		}
		if err := f.makeWritable(flags&unix.O_TRUNC != 0); err != nil {
			return nil, err
		}
	}
	return f.attach(flags, f.noteOpen(flags, thread))
}

// OpenNew opens a file that was made just now and that raw is open on, for writing too if rw is set.
func (f *File) OpenNew(raw *os.File, rw bool, flags, thread uint32) (*Handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loaded, f.vetted = true, true
	if f.raw == nil {
		f.setRaw(raw, rw)
	} else { // somebody has opened it already
		raw.Close()
	}
	f.changed()
	return f.attach(flags, f.noteOpen(flags, thread))
}

// makeWritable prepares a file for a writer. f.mu is held.
func (f *File) makeWritable(truncate bool) error {
	if err := f.UnpackLocked(truncate); err != nil {
		return err
	}
	if truncate {
		if err := f.truncateRaw(0); err != nil {
			return err
		}
		// What comes is another checkpoint, and the old one's damage is gone with it.
		if f.damaged != nil || f.rec != (tree.Record{}) {
			if err := f.WriteRecordLocked(tree.Record{}); err != nil {
				return err
			}
		}
		f.damaged, f.vetted = nil, true
	}
	f.changed()
	return nil
}

// truncateRaw sets the length of a plain file. f.mu is held.
func (f *File) truncateRaw(size int64) error {
	w, done, err := f.WritableLocked()
	if err != nil {
		return err
	}
	defer done()
	if err := w.Truncate(size); err != nil {
		return err
	}
	f.stale = f.stale || f.pass > 0
	return nil
}

// WritableLocked returns the inode open for writing, until done is called.
func (f *File) WritableLocked() (w *os.File, done func(), err error) {
	if f.rw {
		return f.raw, func() {}, nil
	}
	w, err = f.node.Open(unix.O_RDWR)
	if err != nil {
		return nil, nil, err
	}
	return w, func() { w.Close() }, nil
}

// attach makes a handle of a file whose state fits flags. With served set it is not in passthrough, if it can be. f.mu is
// held.
func (f *File) attach(flags uint32, served bool) (*Handle, error) {
	access := flags & unix.O_ACCMODE
	h := &Handle{
		f: f, Writes: access != unix.O_RDONLY, sync: flags & (unix.O_SYNC | unix.O_DSYNC),
		program: flags&OpenedToExecute != 0, noatime: flags&unix.O_NOATIME != 0,
	}
	if err := f.OpenSourceLocked(); err != nil {
		f.CloseSourcesLocked()
		return nil, f.OpenFailed(err)
	}
	h.Mode = f.chooseMode(access, served)
	if h.Mode == Passthrough && f.pass == 0 {
		id, err := f.c.Kernel.RegisterBacking(int(f.raw.Fd()))
		if err != nil {
			f.c.report(slog.LevelWarn, "passthrough refused for one file; the daemon serves it", "path", f.Path(), "reason", err)
			h.Mode = Cached
		} else {
			f.backing = id
		}
	}
	if h.Mode != Passthrough && h.Writes {
		if err := f.openRaw(true); err != nil {
			f.CloseSourcesLocked()
			return nil, err
		}
	}
	switch h.Mode {
	case Passthrough:
		f.pass++
		h.Backing = f.backing
	case Cached:
		f.cached++
		h.KeepCache = !f.stale
		f.stale = false
	case Direct:
		f.direct++
	}
	if h.program {
		f.programs++
	}
	if h.Writes {
		if f.writers++; f.writers == 1 {
			f.c.events.Writing(f, true)
		}
		if h.Mode == Passthrough {
			f.stale = true
		}
	}
	f.opened()
	f.node.Pin()
	f.c.Count.Opens[h.Mode].Add(1)
	f.c.Count.Handles.Add(1)
	return h, nil
}

// chooseMode keeps to the kernel's rule: an inode is either in passthrough with one backing file, or cached.
func (f *File) chooseMode(access uint32, served bool) Mode {
	passthrough := f.c.Passthrough.Load() && !served
	switch {
	case f.pass > 0:
		return Passthrough
	case f.cached > 0:
		return Cached
	case f.direct == 0 && f.raw != nil && passthrough:
		return Passthrough
	case access == unix.O_WRONLY && !passthrough:
		return Direct // a handle that can't be mapped; half as fast again as through the page cache
	}
	return Cached
}

// Release ends the handle.
func (h *Handle) Release() {
	f := h.f
	f.c.Count.Handles.Add(-1)
	f.mu.Lock()
	switch h.Mode {
	case Passthrough:
		if f.pass--; f.pass == 0 {
			f.c.Kernel.UnregisterBacking(f.backing)
		}
	case Cached:
		f.cached--
	case Direct:
		f.direct--
	}
	if h.program {
		f.programs--
	}
	if h.Writes {
		if h.flushed {
			f.flushed--
		}
		if f.writers--; f.writers == 0 {
			f.c.events.Writing(f, false)
			f.writersGone()
		}
		f.cond.Broadcast()
	}
	f.closed(h)
	f.CloseSourcesLocked()
	if f.users() == 0 {
		f.c.events.Idle(f)
	}
	f.mu.Unlock()
	f.node.Unpin()
}

// opened notes an open. f.mu is held.
func (f *File) opened() {
	if f.rec.Packed() && !f.c.readOnly {
		f.opens++
		f.c.events.Opened(f, f.opens)
	}
}

// closed notes the end of a handle. f.mu is held.
func (f *File) closed(h *Handle) {
	if !f.c.readOnly && h.Mode == Cached && f.rec.Hollow && f.asm != nil {
		f.c.events.Closed(f, h.read.Load())
	}
}

// writersGone has the file packed, or finds that it stays as it is. f.mu is held.
func (f *File) writersGone() {
	if f.Dead() {
		return
	}
	if !f.settleSmall() {
		f.c.events.Dirty(f)
	}
	if f.rw && f.users() > 0 { // who reads on must not look like a writer
		if raw, err := f.node.Open(unix.O_RDONLY); err == nil {
			f.setRaw(raw, false)
		}
	}
}

// Read reads into p at off. Fewer bytes than asked for mean the end of the file.
func (h *Handle) Read(p []byte, off int64) (int, error) {
	k, packed, err := h.f.read(p, off)
	if err == errNoSource {
		k, packed, err = h.f.readAgain(p, off)
	}
	if err != nil {
		return 0, h.f.ReadFailed(off, err)
	}
	h.wasRead(k, packed)
	return k, nil
}

// wasRead notes that k bytes were read.
func (h *Handle) wasRead(k int, packed bool) {
	if packed {
		h.f.c.Count.ReadPacked.Add(k)
	} else {
		h.f.c.Count.ReadPlace.Add(k)
	}
	if first := h.read.Add(int64(k)) == int64(k); first && k > 0 && !h.noatime {
		h.f.accessed()
	}
}

// Lend is Read of n bytes without a copy; nil: they are not lent, but can be read.
func (h *Handle) Lend(n int, off int64) (*assemble.Loan, int, error) {
	l, k, err := h.f.lend(n, off)
	if err != nil {
		return nil, 0, h.f.ReadFailed(off, err)
	}
	if l != nil {
		h.wasRead(k, true)
	}
	return l, k, nil
}

// readAgain is read of a file that is being made another's copy: afterwards there is something to read.
func (f *File) readAgain(p []byte, off int64) (k int, packed bool, err error) {
	for {
		f.mu.Lock()
		err := f.OpenSourceLocked()
		f.mu.Unlock()
		if err != nil {
			return 0, false, err
		}
		if k, packed, err = f.read(p, off); err != errNoSource {
			return k, packed, err
		}
	}
}

// Write writes p at off; the kernel has resolved O_APPEND.
func (h *Handle) Write(p []byte, off int64) (int, error) {
	f := h.f
	k, err := f.write(p, off, h.sync)
	if err == errNotPlain {
		k, err = h.writePacked(p, off)
	}
	if h.Mode == Direct && k > 0 {
		f.mu.Lock()
		shared := f.cached > 0
		f.stale = true
		f.mu.Unlock()
		if shared {
			f.c.Kernel.InvalidateData(f.node.ID(), off, int64(k))
		}
	}
	if k > 0 {
		return k, nil
	}
	return k, err
}

// errNotPlain: the file is not open here for writing.
var errNotPlain = errors.New("not plain")

// writePacked writes to a file that a copy has packed since the handle was opened.
func (h *Handle) writePacked(p []byte, off int64) (int, error) {
	f := h.f
	for h.Writes {
		f.mu.Lock()
		err := f.beginWrite()
		if err == nil {
			err = f.openRaw(true)
		}
		f.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if k, err := f.write(p, off, h.sync); err != errNotPlain {
			return k, err
		}
	}
	return 0, unix.EBADF
}

// write writes p at off, durably if sync has O_SYNC or O_DSYNC.
func (f *File) write(p []byte, off int64, sync uint32) (int, error) {
	f.io.RLock()
	defer f.io.RUnlock()
	if !f.rw {
		return 0, errNotPlain
	}
	k, err := pwrite(f.raw, p, off)
	if k > 0 && sync != 0 {
		if sync&unix.O_SYNC == unix.O_SYNC {
			err = unix.Fsync(int(f.raw.Fd()))
		} else {
			err = unix.Fdatasync(int(f.raw.Fd()))
		}
		if err != nil {
			return 0, err
		}
	}
	return k, err
}

// pwrite is pwrite(2): unlike WriteAt it tells how much was written before the disk was full.
func pwrite(w *os.File, p []byte, off int64) (int, error) {
	for {
		k, err := unix.Pwrite(int(w.Fd()), p, off)
		if err != unix.EINTR {
			return max(k, 0), err
		}
	}
}

// Flush notes a close(2) of one of a writer's descriptors, and returns how many bytes of the file are not packed.
func (h *Handle) Flush() (unpacked int64) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if !h.flushed {
		h.flushed = true
		f.flushed++
	}
	return f.UnpackedLocked()
}
