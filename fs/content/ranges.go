package content

import (
	"golang.org/x/sys/unix"
)

// Fallocate is fallocate(2).
func (h *Handle) Fallocate(mode uint32, off, n int64) error {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := h.beginWriteLocked(); err != nil {
		return err
	}
	w, done, err := f.WritableLocked()
	if err != nil {
		return err
	}
	defer done()
	if err := unix.Fallocate(int(w.Fd()), mode, off, n); err != nil {
		return err
	}
	if f.users.pass > 0 {
		f.users.stale = true
	} else if mode&^unix.FALLOC_FL_KEEP_SIZE != 0 {
		f.users.stale = true // the kernel drops what it has of a punched or shifted range, not beyond
	}
	return nil
}

// Seek answers SEEK_DATA and SEEK_HOLE. What is packed counts as data throughout.
func (h *Handle) Seek(off int64, whence int) (int64, error) { return Seek(h.f, off, whence) }

// Seek is Handle.Seek of a file that is in use.
func Seek(f *File, off int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.src.raw != nil {
		// The descriptor's own position is never used: reads and writes give their offsets.
		return unix.Seek(int(f.src.raw.Fd()), off, whence)
	}
	size := int64(0)
	if f.src.asm != nil {
		size = f.src.asm.Size()
	}
	return SeekDense(off, whence, size)
}

// SeekDense is Seek in a file of this size without holes. ENXIO outside of it.
func SeekDense(off int64, whence int, size int64) (int64, error) {
	if off < 0 || off >= size {
		return 0, unix.ENXIO
	}
	switch whence {
	case unix.SEEK_DATA:
		return off, nil
	case unix.SEEK_HOLE:
		return size, nil
	}
	return 0, unix.EINVAL
}
