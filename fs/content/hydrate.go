package content

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
)

// Hydrate restores the local copy of a packed file, if there is none, and returns its size; else 0.
func (f *File) Hydrate() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.LoadLocked(); err != nil {
		return 0, err
	}
	if !f.rec.Hollow || f.Dead() {
		return 0, nil
	}
	h := hydration{f: f}
	if err := h.runLocked(); err != nil {
		return 0, err
	}
	return f.UnpackedLocked(), nil
}

// DropPages has the kernel drop the pages of a file that nobody has any use for. What is open keeps them, and
// so does what is not packed yet. left: some stay though a rule says that the file is read once, since a
// program maps them or they are being written. No lock is held.
//
// Those that it read through the daemon have no use once there is a local copy: the next open is passed
// through to that. If the file is read once, neither have those of the local copy.
func DropPages(f *File) (left bool) {
	f.mu.Lock()
	once := ReadOnce(f)
	local := !f.rec.Hollow
	copied := f.users.all() == 0 && f.rec.Packed() && local
	f.mu.Unlock()
	if once && local {
		if own, err := f.node.Open(unix.O_RDONLY); err == nil {
			left = dropPages(int(own.Fd()))
			own.Close()
		}
	}
	if once || copied && f.c.Passthrough.Load() {
		f.c.Kernel().InvalidateData(f.node.ID(), 0, 0)
	}
	return left
}

// dropPages drops those of an open file. left: some stay. Linux before 6.5 cannot tell, and those of a
// filesystem in memory are the file.
func dropPages(fd int) (left bool) {
	var fs unix.Statfs_t
	var pages unix.Cachestat_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC &&
		unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) == nil &&
		unix.Cachestat(uint(fd), &unix.CachestatRange{}, &pages, 0) == nil && pages.Cache > 0
}

// ReadOnce reports whether a rule has a file leave memory, since nobody has it open. File.mu is held.
func ReadOnce(f *File) bool {
	f.mu.AssertHeld()
	return f.users.all() == 0 && f.c.readOnce(f) && !f.Dead() && (f.rec.Packed() || NeverPacked(f))
}

// hydration is the transition of a hollow file to a resident one.
type hydration struct {
	f    *File
	own  *os.File // the inode, open since before the first byte was written: it is told of all that fails
	of   tree.Record
	size int64 // of the file; known after fill, even one that failed
}

// runLocked restores the local copy, unless there is one. File.mu is held, but not while the bytes are
// written.
//
// Until the flag hollow goes, the manifest is read. When it goes the bytes are whole and durable.
func (h *hydration) runLocked() error {
	f := h.f
	f.mu.AssertHeld()
	for f.local.hydrating {
		f.cond.Wait()
	}
	if !f.rec.Hollow {
		return nil
	}
	if err := h.openLocked(); err != nil {
		return err
	}
	defer h.own.Close()
	if err := h.fillLocked(); err != nil {
		return err
	}
	if err := h.endLocked(); err != nil { // a record that failed to be written may have been, all the same
		return err
	}
	f.local.left = false
	f.local.came(f.c, durable, nil)
	if !f.Dead() {
		f.c.events.Resident(f, h.size)
	}
	if f.users.all() > 0 {
		return f.openRawLocked(false)
	}
	return nil
}

// errCopyInUse: programs read a local copy that the disk may not have taken. To write the bytes over it would
// not help, since a page that failed once may be lost again without a word, and no hole can be made under a
// reader.
var errCopyInUse = fmt.Errorf("programs have a local copy open that is not on the disk; close them first: %w", unix.EBUSY)

// openLocked opens the inode, which has holes then for all its bytes. The caller closes it.
func (h *hydration) openLocked() (err error) {
	f := h.f
	(distrust{f}).dropLeftLocked()
	if f.local.left || f.users.pass > 0 {
		return errCopyInUse
	}
	h.of = f.rec
	if h.own, err = openQuietly(f.node, unix.O_RDWR); err != nil {
		return err
	}
	f.c.Failed(int(h.own.Fd())) // what failed before says nothing of the bytes that come
	// ext4 forgets of a page that it failed to write that its blocks hold nothing yet: written once more, the
	// page reads as zeros when it comes from the disk, and no sync fails. A page of a hole is a new one.
	if err := f.c.Punch(int(h.own.Fd())); err != nil {
		h.own.Close()
		return err
	}
	return nil
}

// fillLocked writes the bytes and makes them durable. mu is released meanwhile, and local.hydrating is set. A
// file that is hollow and cannot be hydrated is given its holes again.
func (h *hydration) fillLocked() error {
	f := h.f
	f.local.hydrating, f.moved = true, true
	f.mu.Unlock()
	err := h.fill()
	dead := f.Dead()
	if err == nil && !dead {
		if err = f.c.Step("hydrate: sync"); err == nil {
			if err = f.c.Fsync(int(h.own.Fd()), true); err != nil {
				f.c.Count.NotWritten.Add(1)
			}
		}
	}
	f.mu.Lock()
	f.local.hydrating = false
	f.cond.Broadcast()
	if err != nil {
		distrust{f}.dropHydratedLocked(h.own, h.size)
		return err
	}
	if !dead {
		f.c.Count.HydratedFiles.Add(1)
		f.c.Count.HydratedBytes.Add(h.size)
	}
	return nil
}

// fill writes the packed file's bytes into the inode. No lock is held.
func (h *hydration) fill() error {
	c := h.f.c
	st, err := h.own.Stat()
	if err != nil {
		return err
	}
	h.size = st.Size()
	src, err := c.openPacked(&h.of)
	if err != nil {
		return h.f.OpenFailed(err)
	}
	defer src.Close()
	if err := c.Step("hydrate: bytes"); err != nil {
		return err
	}
	h.size = src.Size()
	if err := c.copyParallel(h.own, src, h.size); err != nil {
		var bad *sourceError
		if errors.As(err, &bad) {
			return h.f.ReadFailed(bad.off, bad.err)
		}
		return err
	}
	if st.Size() != h.size { // the store was changed from outside
		return h.own.Truncate(h.size)
	}
	return nil
}

// endLocked makes the file resident. File.mu is held.
func (h *hydration) endLocked() error {
	f := h.f
	if err := f.c.Step("hydrate: mtime"); err != nil {
		return err
	}
	if err := tree.SetMtime(int(h.own.Fd()), f.rec.Mtime); err != nil {
		return err
	}
	if err := f.c.Step("hydrate: record"); err != nil {
		return err
	}
	rec := f.rec
	rec.Hollow = false
	return f.writeRecordLocked(rec)
}

// sourceError tells a read that failed from a write that did.
type sourceError struct {
	off int64
	err error
}

func (e *sourceError) Error() string { return fmt.Sprintf("at %d: %v", e.off, e.err) }
func (e *sourceError) Unwrap() error { return e.err }

// ErrEnding: the store is closed before the file is hydrated.
var ErrEnding = errors.New("the store is being closed")

// copyParallel copies size bytes by a few workers, each in steps of 4 MiB.
func (c *Files) copyParallel(dst *os.File, src io.ReaderAt, size int64) error {
	const step = 4 << 20
	var g errgroup.Group
	g.SetLimit(4)
	for off := int64(0); off < size; off += step {
		g.Go(func() error {
			if c.Ending.Load() {
				return ErrEnding
			}
			buf := c.copyBufs.Get().(*[]byte)
			defer c.copyBufs.Put(buf)
			p := (*buf)[:min(step, size-off)]
			if k, err := src.ReadAt(p, off); k < len(p) {
				if err == nil || err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return &sourceError{off, err}
			}
			_, err := dst.WriteAt(p, off)
			return err
		})
	}
	return g.Wait()
}
