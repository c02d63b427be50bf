package inspect

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"

	"ckptfs/formats/zarr"
)

// zarrReader reads the elements of an array that is stored as zarr has it: from one place in it on, or else
// from its beginning.
type zarrReader struct {
	*zarr.Reader
	a    *array
	open zarr.Open
	at   int64 // bytes that were read
}

// openZarr makes the elements of such an array readable until it is closed.
func (ins *Inspector) openZarr(a *array) (*zarrReader, error) {
	chunks := make(map[string]*sealed, len(a.sealed))
	for i := range a.sealed {
		if s := &a.sealed[i]; s.key != "" {
			chunks[s.key] = s
		}
	}
	r := &zarrReader{a: a, open: func(key string) (io.ReaderAt, int64, func(), error) {
		s := chunks["/"+key]
		switch {
		case s == nil:
			return nil, 0, nil, fs.ErrNotExist
		case s.f == nil:
			return bytes.NewReader(s.inline), s.n, func() {}, nil
		}
		src, _, done, err := s.f.node.Open()
		if err != nil {
			return nil, 0, nil, &fs.PathError{Op: "open", Path: s.f.path, Err: err}
		}
		return io.NewSectionReader(src, s.off, s.n), s.n, done, nil
	}}
	return r, r.rewind()
}

func (r *zarrReader) rewind() (err error) {
	r.Reader, err = r.a.zarr.Elements(r.open)
	r.at = 0
	return err
}

func (r *zarrReader) read(p []byte, off int64) error {
	if off < r.at {
		r.Close()
		if err := r.rewind(); err != nil {
			return err
		}
	}
	n, err := io.CopyN(io.Discard, r.Reader, off-r.at)
	if r.at += n; err == nil {
		var k int
		k, err = io.ReadFull(r.Reader, p)
		r.at += int64(k)
	}
	switch err {
	case nil:
		return nil
	case io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("tensor %s: %w", r.a.Name, err)
}
