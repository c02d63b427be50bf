package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"ckptfs/formats"
	"ckptfs/formats/orbax"
)

// orbax is the arrays of the folder that Orbax wrote.
func (r *reach) orbax(_ context.Context, dir string) (*collection, error) {
	arrays, err := r.v.orbaxArrays(dir)
	if err != nil {
		return nil, err
	}
	c := &collection{path: dir, format: "orbax", arrays: make([]array, len(arrays))}
	for i := range arrays {
		c.arrays[i] = array{Tensor: arrays[i], sealed: []sealed{}}
	}
	return c, nil
}

// orbaxArrays lists the arrays of the folder at a path, which has the metadata.
func (v *Volume) orbaxArrays(dir string) ([]formats.Tensor, error) {
	arrays, err := orbax.Arrays(func(p string, off, n, limit int64) ([]byte, error) {
		r, size, done, err := v.perusePath(path.Join(dir, p))
		if err != nil {
			return nil, err
		}
		defer done()
		if n < 0 {
			off, n = 0, size
		}
		if n > limit || off > size || n > size-off {
			return nil, fmt.Errorf("%s: bytes %d+%d of %d: %w", p, off, n, size, formats.ErrNotFormat)
		}
		b := make([]byte, n)
		if _, err := r.ReadAt(b, off); err != nil && err != io.EOF {
			return nil, err
		}
		return b, nil
	})
	if errors.Is(err, fs.ErrNotExist) { // of what the metadata names
		err = fmt.Errorf("%v: %w", err, formats.ErrNotFormat)
	}
	return arrays, err
}
