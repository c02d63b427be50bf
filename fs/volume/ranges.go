package volume

import (
	"golang.org/x/sys/unix"
)

// Fallocate is fallocate(2).
func (v *Volume) Fallocate(h *Handle, mode uint32, off, n int64) error {
	if !h.write {
		return unix.EBADF
	}
	f := h.Node.file
	f.mu.Lock()
	defer f.mu.Unlock()
	w, done, err := v.writable(h.Node)
	if err != nil {
		return err
	}
	defer done()
	if err := unix.Fallocate(int(w.Fd()), mode, off, n); err != nil {
		return err
	}
	if f.pass > 0 {
		f.stale = true
	} else if mode&^unix.FALLOC_FL_KEEP_SIZE != 0 {
		f.stale = true // what the kernel has of a punched or shifted range is dropped by it, not beyond
	}
	return nil
}

// Seek answers SEEK_DATA and SEEK_HOLE. What is packed counts as data throughout.
func (v *Volume) Seek(h *Handle, off int64, whence int) (int64, error) {
	n := h.Node
	if n.view != nil {
		return seekDense(off, whence, n.view.size)
	}
	f := n.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.raw != nil {
		// The descriptor's own position is never used: reads and writes give their offsets.
		return unix.Seek(int(f.raw.Fd()), off, whence)
	}
	size := int64(0)
	if f.asm != nil {
		size = f.asm.Size()
	}
	return seekDense(off, whence, size)
}

func seekDense(off int64, whence int, size int64) (int64, error) {
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

// CopyRange copies up to n bytes between two open files and returns how many it did; fewer than n is no error.
func (v *Volume) CopyRange(src *Handle, srcOff int64, dst *Handle, dstOff, n int64) (int64, error) {
	if dst.Node.file == nil || !dst.write {
		return 0, unix.EBADF
	}
	const most = 64 << 20 // an answer within a fraction of a second; the kernel asks again
	n = min(n, most)
	df := dst.Node.file
	df.mu.Lock()
	w, done, err := v.writable(dst.Node)
	if err != nil {
		df.mu.Unlock()
		return 0, err
	}
	if df.cached > 0 || df.direct > 0 {
		df.stale = true
	}
	df.mu.Unlock()
	defer done()
	buf := make([]byte, min(n, 1<<20))
	var copied int64
	for copied < n {
		k, err := v.Read(src, buf[:min(int64(len(buf)), n-copied)], srcOff+copied)
		if err != nil && copied == 0 {
			return 0, err
		}
		if k == 0 || err != nil {
			break
		}
		want := k
		k, err = pwrite(w, buf[:k], dstOff+copied)
		copied += int64(k)
		if err != nil || k < want {
			if copied == 0 {
				return 0, err
			}
			break
		}
	}
	if df.cachedNow() && copied > 0 {
		v.kernel.InvalidateData(dst.Node.id, dstOff, copied)
	}
	return copied, nil
}

func (f *file) cachedNow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cached > 0
}
