package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/orbax"
)

// orbax is the arrays of the folder that Orbax wrote. They are compressed: that they are equal is known by
// their parts, for the rest they have to be decoded.
func (r *reach) orbax(ctx context.Context, dir string) (*set, error) {
	arrays, err := r.ins.orbaxArrays(dir)
	if err != nil {
		return nil, err
	}
	c := &set{path: dir, format: "orbax", arrays: make([]array, len(arrays))}
	folders := map[string]*array{}
	for i := range arrays {
		x, a := &arrays[i], &c.arrays[i]
		*a = array{Tensor: x.Tensor, zarr: x.Zarr,
			sealed: []sealed{{inline: x.Metadata, n: int64(len(x.Metadata))}}}
		for _, k := range x.Chunks {
			s := sealed{key: k.Key, inline: k.Inline, off: k.Off, n: k.Len}
			if k.Path == "" {
				s.n = int64(len(k.Inline))
			} else if s.f, err = r.file(path.Join(dir, k.Path)); err != nil {
				return nil, err
			}
			a.sealed = append(a.sealed, s)
		}
		if x.Folder != "" {
			folders[x.Folder] = a
		}
	}
	err = r.ins.files.Walk(ctx, dir, func(p string, n File) error {
		rel := strings.TrimPrefix(p, strings.Trim(dir, "/")+"/")
		top, _, _ := strings.Cut(rel, "/")
		own := rel == "manifest.ocdbt" || top == "d" || strings.HasPrefix(top, "ocdbt.process_")
		var a *array
		folder := path.Dir(rel)
		for folder != "." && folders[folder] == nil {
			folder = path.Dir(folder)
		}
		if a = folders[folder]; a == nil && !own {
			return nil
		}
		f, err := r.look(p, n)
		if err != nil {
			return err
		}
		c.files = append(c.files, f)
		if a != nil {
			a.sealed = append(a.sealed, sealed{key: rel[len(folder):], f: f, n: f.size})
		}
		return nil
	})
	return c, err
}

// orbaxArrays lists the arrays of the folder at a path, which has the metadata.
func (ins *Inspector) orbaxArrays(dir string) ([]orbax.Array, error) {
	arrays, err := orbax.Arrays(func(p string, off, n, limit int64) ([]byte, error) {
		r, size, done, err := OpenPath(ins.files, path.Join(dir, p))
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
