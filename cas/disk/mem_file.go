package disk

import (
	"bytes"
	"io"
	"os"
	"syscall"
)

// memFile is an open file of a Mem. It outlives its name, as an open file does.
type memFile struct {
	m      *Mem
	n      *inode
	name   string
	write  bool
	closed bool
}

func (f *memFile) beginLocked(kind OpKind, off, n int64) (*Fault, error) {
	if f.closed {
		return nil, pathError(kind.String(), f.name, os.ErrClosed)
	}
	if ft := f.m.stepLocked(kind, f.name, off, n); ft != nil {
		return ft, pathError(kind.String(), f.name, ft.Err)
	}
	if off < 0 || n < 0 {
		return nil, pathError(kind.String(), f.name, syscall.EINVAL)
	}
	if !f.write && (kind == OpWrite || kind == OpTruncate || kind == OpPunch) {
		return nil, pathError(kind.String(), f.name, syscall.EBADF)
	}
	return nil, nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if _, err := f.beginLocked(OpRead, off, int64(len(p))); err != nil {
		return 0, err
	}
	if off >= int64(len(f.n.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	ft, err := f.beginLocked(OpWrite, off, int64(len(p)))
	n := len(p)
	if err != nil {
		if ft == nil || ft.Short <= 0 {
			return 0, err
		}
		n = min(ft.Short, n)
	}
	if n > 0 {
		f.n.apply(dataOp{off: off, p: bytes.Clone(p[:n])})
	}
	return n, err
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if ft, err := f.beginLocked(OpSync, 0, 0); err != nil {
		if ft != nil {
			f.n.pending = nil // gone for good: reads still see them, no later Sync writes them
		}
		return err
	}
	for _, op := range f.n.pending {
		f.n.durable = op.apply(f.n.durable)
	}
	f.n.pending = nil
	return nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if _, err := f.beginLocked(OpTruncate, size, 0); err != nil {
		return err
	}
	f.n.apply(dataOp{off: size})
	return nil
}

func (f *memFile) PunchHole(off, n int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if _, err := f.beginLocked(OpPunch, off, n); err != nil {
		return err
	}
	if n = min(n, int64(len(f.n.data))-off); n > 0 {
		f.n.apply(dataOp{off: off, p: make([]byte, n)})
	}
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, pathError("stat", f.name, os.ErrClosed)
	}
	return int64(len(f.n.data)), nil
}

// Allocated counts the blocks that are not all zeros.
func (f *memFile) Allocated() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, pathError("stat", f.name, os.ErrClosed)
	}
	var n int64
	for p := f.n.data; len(p) > 0; p = p[min(BlockSize, len(p)):] {
		if len(bytes.Trim(p[:min(BlockSize, len(p))], "\x00")) > 0 {
			n += BlockSize
		}
	}
	return n, nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return pathError("close", f.name, os.ErrClosed)
	}
	f.closed = true
	return nil
}

// Forget may leave all that was not synced: it is on the disk, or will be.
func (f *memFile) Forget(off int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return pathError("forget", f.name, os.ErrClosed)
	}
	data := bytes.Clone(f.n.durable)
	for _, op := range f.n.pending {
		data = op.apply(data)
	}
	if off < int64(len(f.n.data)) {
		head := f.n.data[:off:off]
		f.n.data = append(head, data[min(off, int64(len(data))):]...)
	}
	return nil
}

func (f *memFile) WillRead(int64, int64) {}

func (f *memFile) ReadPast(p []byte, off int64) (int, error) { return f.ReadAt(p, off) }
