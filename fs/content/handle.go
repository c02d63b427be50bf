package content

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/assemble"
	"ckptfs/fs/tree"
)

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
	flushed bool         // a descriptor was closed; guarded by File.mu
	since   time.Time    // see wroteLocked; guarded by File.mu
	read    atomic.Int64 // bytes
}

// Flush notes a close(2) of one of a writer's descriptors, and returns how many bytes of the file are not
// packed. killed: no program called it, but a signal ended one. What was written since then is torn.
func (h *Handle) Flush(killed bool) (unpacked int64) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if !h.flushed {
		h.flushed = true
		f.users.flushed++
	}
	switch {
	case !killed:
		h.since = f.c.now()
	case h.wroteLocked():
		f.users.torn = true
	}
	return f.UnpackedLocked()
}

// clockTick is by how much the times that the kernel gives to files may be behind.
const clockTick = 10 * time.Millisecond

// wroteLocked reports whether the file may have been written to since the handle was opened, or since a
// program closed a descriptor of it. A child of a program that saves may have copies of its descriptors, and
// be killed when the file is whole.
func (h *Handle) wroteLocked() bool {
	var st unix.Stat_t
	return h.f.node.Stat(&st) != nil || time.Unix(0, st.Mtim.Nano()).After(h.since)
}

// Sync is fsync(2), of whichever descriptor: see File.Sync. As long as bytes of the file are known to be lost
// it fails with EIO. The kernel told of them once, and it may have told another.
func (h *Handle) Sync() error {
	if err := h.f.Sync(); err != nil {
		return err
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.f.rec.Lost {
		return unix.EIO
	}
	return nil
}

// Release ends the handle.
func (h *Handle) Release() {
	f := h.f
	f.c.Count.Handles.Add(-1)
	f.mu.Lock()
	lastWriter := f.users.leave(h)
	if !f.users.open() {
		f.c.Count.OpenFiles.Add(-1)
	}
	if h.Mode == Passthrough && f.users.pass == 0 {
		f.c.Kernel().UnregisterBacking(f.users.backing)
	}
	if lastWriter {
		f.c.events.Written(f, f.users.torn)
		f.users.torn = false
		f.writersGoneLocked()
	}
	if h.Writes {
		f.cond.Broadcast()
	}
	if !f.c.readOnly && h.Mode == Cached && f.rec.Hollow && f.src.asm != nil {
		f.c.events.Closed(f, h.read.Load())
	}
	f.closeSourceLocked()
	if f.users.all() == 0 {
		distrust{f}.dropLeftLocked()
		f.c.events.Idle(f)
	}
	f.mu.Unlock()
	f.node.Unpin()
}

// Read reads into p at off. Fewer bytes than asked for mean the end of the file. What cannot be read is
// reported; the error is EIO.
func (h *Handle) Read(p []byte, off int64) (int, error) {
	k, packed, err := h.f.src.read(p, off)
	if err == errNoSource {
		k, packed, err = h.readAgain(p, off)
	}
	if err != nil {
		return 0, h.f.ReadFailed(off, err)
	}
	h.wasRead(k, packed)
	return k, nil
}

// readAgain is a read of a file that is being made another's copy: afterwards there is something to read.
func (h *Handle) readAgain(p []byte, off int64) (k int, packed bool, err error) {
	f := h.f
	for {
		f.mu.Lock()
		err := f.openSourceLocked()
		f.mu.Unlock()
		if err != nil {
			return 0, false, err
		}
		if k, packed, err = f.src.read(p, off); err != errNoSource {
			return k, packed, err
		}
	}
}

// Lend is Read of n bytes without a copy; nil: they are not lent, but can be read.
func (h *Handle) Lend(n int, off int64) (*assemble.Loan, int, error) {
	l, k, err := h.f.src.lend(n, off)
	if err != nil {
		return nil, 0, h.f.ReadFailed(off, err)
	}
	if l != nil {
		h.wasRead(k, true)
	}
	return l, k, nil
}

// wasRead notes that k bytes were read.
func (h *Handle) wasRead(k int, packed bool) {
	if packed {
		h.f.c.Count.ReadPacked.Add(k)
	} else {
		h.f.c.Count.ReadLocal.Add(k)
	}
	if first := h.read.Add(int64(k)) == int64(k); first && k > 0 && !h.noatime {
		h.accessed()
	}
}

// accessed moves the access time of a hollow file that was read: the host does it for what it reads itself.
// As on a filesystem mounted with relatime, it moves once a day, or after a change. A failure
// loses nothing else.
func (h *Handle) accessed() {
	f := h.f
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

// Write writes p at off; the kernel has resolved O_APPEND.
func (h *Handle) Write(p []byte, off int64) (int, error) {
	f := h.f
	k, err := f.src.write(p, off, h.sync)
	if err == errNotPlain {
		k, err = h.writePacked(p, off)
	}
	if bad, ok := err.(*syncError); ok {
		err = bad.err
		f.mu.Lock()
		distrust{f}.noteLocked(err)
		f.mu.Unlock()
	}
	if h.Mode == Direct && k > 0 {
		f.mu.Lock()
		shared := f.users.cached > 0
		f.users.stale = true
		f.mu.Unlock()
		if shared {
			f.c.Kernel().InvalidateData(f.node.ID(), off, int64(k))
		}
	}
	if k > 0 {
		return k, nil
	}
	return k, err
}

// writePacked writes to a file that a copy has packed since the handle was opened.
func (h *Handle) writePacked(p []byte, off int64) (int, error) {
	f := h.f
	for h.Writes {
		f.mu.Lock()
		err := h.beginWriteLocked()
		if err == nil {
			err = f.openRawLocked(true)
		}
		f.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if k, err := f.src.write(p, off, h.sync); err != errNotPlain {
			return k, err
		}
	}
	return 0, unix.EBADF
}

// beginWriteLocked makes a file plain that became packed by a copy while its writers had it open.
func (h *Handle) beginWriteLocked() error {
	f := h.f
	if !f.rec.Packed() {
		return nil
	}
	if err := f.UnpackLocked(false); err != nil {
		return err
	}
	return f.openRawLocked(true)
}

// Size is the present length of the file.
func (h *Handle) Size() (int64, error) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.src.raw == nil {
		if err := f.openSourceLocked(); err != nil {
			return 0, f.OpenFailed(err)
		}
	}
	if f.src.raw == nil {
		return f.src.asm.Size(), nil
	}
	st, err := f.src.raw.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}
