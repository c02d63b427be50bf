package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/orbax"
	"ckptfs/fs/control"
)

// showFolder lists the arrays of an Orbax checkpoint: of the folder that it is in, or of a step, whose items are folders in that. An
// item's arrays are called by the item, too.
func (v *Volume) showFolder(ctx context.Context, n *Node, p string, out *control.File) error {
	arrays, err := v.orbaxArrays(p)
	prefix := ""
	if errors.Is(err, fs.ErrNotExist) {
		var names []DirEntry
		if names, err = v.listQuietly(n); err != nil {
			return err
		}
		err = errNotRegular
		for _, e := range names {
			if e.Mode != unix.S_IFDIR || e.Name == "." || e.Name == ".." {
				continue
			}
			item, ierr := v.orbaxArrays(path.Join(p, e.Name))
			if errors.Is(ierr, fs.ErrNotExist) {
				continue
			}
			if err = ierr; err != nil {
				return fmt.Errorf("%s: %w", e.Name, err)
			}
			prefix = e.Name + "/"
			out.Tensors = append(out.Tensors, orbaxTensors(item, prefix)...)
		}
	}
	if err != nil {
		return err
	}
	out.Format = "orbax"
	out.Tensors = append(out.Tensors, orbaxTensors(arrays, "")...)
	out.Size = 0
	return v.walkNode(ctx, p, n, func(_ string, n *Node) error {
		a, err := v.Stat(n)
		out.Size += a.Size
		return err
	})
}

func orbaxTensors(arrays []formats.Tensor, prefix string) []control.Tensor {
	out := make([]control.Tensor, len(arrays))
	for i := range arrays {
		t := &arrays[i]
		out[i] = control.Tensor{Name: prefix + t.Name, DType: string(t.DType), Shape: t.Shape, Bytes: max(t.NumBytes(), 0), SharedWith: []string{}}
		if t.Shape == nil {
			out[i].Shape = []int64{}
		}
	}
	return out
}

// orbaxArrays lists the arrays of the folder at a path; fs.ErrNotExist when it has none by Orbax.
func (v *Volume) orbaxArrays(dir string) ([]formats.Tensor, error) {
	meta, err := v.resolve(path.Join(dir, orbax.Metadata))
	if err != nil {
		return nil, err
	}
	v.unref(meta, 1)
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
