package content

import (
	"os"

	"golang.org/x/sys/unix"
)

// maxCopy bounds what one copy_file_range(2) copies: a fraction of a second. The kernel asks again.
const maxCopy = 64 << 20

// Source is what is copied from: a handle, or bytes that are synthesised.
type Source interface {
	Read(p []byte, off int64) (int, error)
	Size() (int64, error)
}

// CopyFrom copies up to n bytes of src to this file and returns how many it did; fewer than n is no error.
// thread is the caller's, as the kernel tells it, or 0.
//
// Of a packed file the bytes are not copied but the manifest, or its part: the target is packed at once, and
// hollow. That needs a target that is empty or packed, to whose end the bytes go, and whose writers this
// process serves: a later write makes it a plain file first.
func (h *Handle) CopyFrom(src Source, srcOff, dstOff, n int64, thread uint32) (int64, error) {
	if srcOff < 0 || dstOff < 0 || n < 0 {
		return 0, unix.EINVAL
	}
	if from, ok := src.(*Handle); ok {
		if done, err := h.clone(from, srcOff, dstOff, n, thread); done > 0 || err != nil {
			return done, err
		}
	}
	return h.copyBytes(src, srcOff, dstOff, min(n, maxCopy))
}

// copyBytes copies bytes, in the kernel where both files are plain.
func (h *Handle) copyBytes(src Source, srcOff, dstOff, n int64) (int64, error) {
	if size, err := src.Size(); err != nil || srcOff >= size {
		return 0, err
	}
	w, err := h.openToCopy()
	if err != nil {
		return 0, err
	}
	defer w.Close()
	var copied int64
	if from, ok := src.(*Handle); ok {
		copied, err = from.f.src.copyTo(w, srcOff, dstOff, n)
	}
	if copied == 0 && err == nil {
		copied, err = readAndWrite(src, srcOff, w, dstOff, n)
	}
	if copied > 0 {
		h.copied(dstOff, copied)
	}
	return copied, err
}

// openToCopy makes the file plain and opens it for writing: a descriptor of its own, since the source's raw
// may be closed once mu is free.
func (h *Handle) openToCopy() (*os.File, error) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := h.beginWriteLocked(); err != nil {
		return nil, err
	}
	w, err := f.node.Open(unix.O_RDWR)
	if err == nil && (f.users.cached > 0 || f.users.direct > 0) {
		f.users.stale = true
	}
	return w, err
}

// copied has the kernel drop what it has of n bytes at off.
func (h *Handle) copied(off, n int64) {
	f := h.f
	f.mu.Lock()
	cached := f.users.cached > 0
	f.mu.Unlock()
	if cached {
		f.c.Kernel().InvalidateData(f.node.ID(), off, n)
	}
}

func readAndWrite(src Source, srcOff int64, w *os.File, dstOff, n int64) (copied int64, err error) {
	buf := make([]byte, min(n, 1<<20))
	for copied < n {
		k, err := src.Read(buf[:min(int64(len(buf)), n-copied)], srcOff+copied)
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
	return copied, nil
}
