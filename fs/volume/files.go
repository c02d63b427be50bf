package volume

import (
	"fmt"
	"io"

	"ckptfs/index/runs"
)

// peruse makes the bytes of a file or a view readable to this process until done is called. size is what it had when it was
// opened.
func (v *Volume) peruse(n *Node) (r io.ReaderAt, size int64, done func(), err error) {
	if n.view != nil {
		if err := v.useView(n); err != nil {
			return nil, 0, nil, err
		}
		return n.view, n.view.size, func() { v.closeView(n) }, nil
	}
	f := n.file
	if f == nil {
		return nil, 0, nil, errNotRegular
	}
	a, err := v.Stat(n)
	if err != nil {
		return nil, 0, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(); err != nil {
		return nil, 0, nil, err
	}
	if err := f.vet(); err != nil {
		return nil, 0, nil, err
	}
	if err := f.openSource(); err != nil {
		f.closeSources()
		return nil, 0, nil, err
	}
	f.inside++
	return f, a.Size, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.inside--
		f.closeSources()
	}, nil
}

// perusePath is peruse of the file at a path.
func (v *Volume) perusePath(p string) (r io.ReaderAt, size int64, done func(), err error) {
	n, err := v.resolve(p)
	if err != nil {
		return nil, 0, nil, err
	}
	r, size, closeIt, err := v.peruse(n)
	if err != nil {
		n.unref(1)
		return nil, 0, nil, err
	}
	return r, size, func() { closeIt(); n.unref(1) }, nil
}

// readFile reads the first size bytes of a file.
func (v *Volume) readFile(n *Node, size int64) ([]byte, error) {
	r, _, done, err := v.peruse(n)
	if err != nil {
		return nil, err
	}
	defer done()
	p := make([]byte, size)
	k, err := r.ReadAt(p, 0)
	if err == io.EOF {
		err = nil
	}
	return p[:k], err
}

// readSmall reads a file of at most max bytes, packed or not, on the daemon's own account.
func (v *Volume) readSmall(p string, most int64) ([]byte, error) {
	r, size, done, err := v.perusePath(p)
	if err != nil {
		return nil, err
	}
	defer done()
	if size > most {
		return nil, fmt.Errorf("%d bytes, of at most %d: %w", size, most, runs.ErrInvalid)
	}
	b := make([]byte, size)
	k, err := r.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b[:k], err
}

// files is the tree as the daemon reads it for itself, for those that have no nodes.
type files struct{ *Volume }

// ReadSmall reads a file of at most so many bytes, packed or not.
func (f files) ReadSmall(path string, most int64) ([]byte, error) { return f.readSmall(path, most) }

// Read calls do with the bytes of a file or a view.
func (f files) Read(path string, do func(r io.ReaderAt, size int64) error) error {
	r, size, done, err := f.perusePath(path)
	if err != nil {
		return err
	}
	defer done()
	return do(r, size)
}
