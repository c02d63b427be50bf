package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/numbers"
	"ckptfs/formats/zarr"
	"ckptfs/fs/control"
)

// tensors compares two tensors of one name.
func (d *differ) tensors(ctx context.Context, a *set, s *array, b *set, t *array) error {
	c := control.TensorChange{Name: t.Name, File: b.path, DTypeA: string(s.DType), DType: string(t.DType),
		ShapeA: shapeOf(&s.Tensor), Shape: shapeOf(&t.Tensor), Bytes: max(t.NumBytes(), 0)}
	same := s.DType == t.DType && s.sameStorage(t)
	if !slices.Equal(s.Shape, t.Shape) {
		c.SameBytes = same
		d.out.Reshaped = append(d.out.Reshaped, c)
		return nil
	}
	if same || s.DType == t.DType && s.NumBytes() == 0 {
		d.equal(&t.Tensor)
		return nil
	}
	if s.zarr != nil && t.zarr != nil {
		if same, err := d.sameSealed(ctx, s, t); err != nil {
			return err
		} else if same {
			d.equal(&t.Tensor)
			return nil
		}
	}
	sum, same, err := d.read(ctx, a, s, b, t)
	switch {
	case errors.Is(err, zarr.ErrUnread) && s.zarr != nil && t.zarr != nil:
		// All that is known is that they are stored in other bytes.
	case errors.Is(err, zarr.ErrUnread):
		d.out.Others = append(d.out.Others, control.OtherFile{Path: path.Join(b.rel, t.Name),
			What: "not compared: one of the two is " + zarr.ErrUnread.Error()})
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", b.path, err)
	}
	if same && s.DType == t.DType {
		d.equal(&t.Tensor)
		return nil
	}
	if sum != nil {
		c.Elements, c.ChangedElements, c.Special = t.NumElements(), sum.Changed, sum.Special
		maxAbs, rel, norm := control.Number(sum.MaxAbs), control.Number(sum.RelNorm()), sum.Norm()
		if sum.Elements < c.Elements {
			c.Sampled = sum.Elements
			norm *= math.Sqrt(float64(c.Elements) / float64(sum.Elements))
		}
		c.MaxAbs, c.RelNorm, c.Norm = &maxAbs, &rel, (*control.Number)(&norm)
		if sum.Elements > 0 {
			c.Share = float64(sum.Changed) / float64(sum.Elements)
		}
	}
	d.out.Changed = append(d.out.Changed, c)
	return nil
}

func (d *differ) equal(t *formats.Tensor) {
	d.out.Equal++
	d.out.EqualBytes += t.NumBytes()
}

// read compares the elements of two tensors of one shape. No sum: they are not numbers to this program, and
// same says all.
func (d *differ) read(ctx context.Context, a *set, s *array, b *set,
	t *array) (sum *numbers.Comparison, same bool, err error) {
	x, err := d.open(a, s)
	if err != nil {
		return nil, false, err
	}
	defer x.done()
	y, err := d.open(b, t)
	if err != nil {
		return nil, false, err
	}
	defer y.done()
	known := numbers.Known(s.DType) && numbers.Known(t.DType)
	if !known && s.DType != t.DType {
		return nil, false, nil
	}
	same = true
	if known {
		sum = &numbers.Comparison{}
	}
	const most = 1 << 16 // elements at a time
	step := int64(most)
	wa, wb := int64(s.DType.Bits()/8), int64(t.DType.Bits()/8)
	n := s.NumElements()
	if !known {
		n, wa, wb, step = s.NumBytes(), 1, 1, 1<<20
	}
	step = min(step, n)
	p, q := make([]byte, step*wa), make([]byte, step*wb)
	stride := step
	if known && d.sample > 0 && n*wb > d.sample {
		stride = max(step, n/max(d.sample/(step*wb), 1)/step*step)
	}
	for at := int64(0); at < n; at += stride {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		k := min(step, n-at)
		p, q := p[:k*wa], q[:k*wb]
		if err := x.read(p, at*wa); err != nil {
			return nil, false, err
		}
		if err := y.read(q, at*wb); err != nil {
			return nil, false, err
		}
		d.out.ReadBytes += int64(len(p) + len(q))
		if wa != wb || string(p) != string(q) {
			same = false
		}
		if known {
			sum.Add(s.DType, p, t.DType, q)
		}
		if d.report != nil {
			d.report(control.Progress{DoneBytes: d.out.ReadBytes, Current: b.path})
		}
	}
	return sum, same && stride == step, nil // their hashes differ, though the sample may not
}

func (d *differ) open(f *set, a *array) (*arrayReader, error) {
	r, err := d.ins.openArray(a)
	if err != nil {
		return nil, &fs.PathError{Op: "diff", Path: f.path, Err: fmt.Errorf("tensor %s: %w", a.Name, err)}
	}
	return r, nil
}

// sameSealed reports whether two arrays of one shape are stored as the same bytes, chunk by chunk.
func (d *differ) sameSealed(ctx context.Context, s, t *array) (same bool, err error) {
	byKey := func(a, b sealed) int { return strings.Compare(a.key, b.key) }
	x, y := slices.SortedFunc(slices.Values(s.sealed), byKey),
		slices.SortedFunc(slices.Values(t.sealed), byKey)
	same = len(x) == len(y) && s.DType == t.DType
	for i := 0; same && i < len(x); i++ {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if same = x[i].key == y[i].key; same {
			same, err = d.sameBytes(&x[i], &y[i])
		}
	}
	return same, err
}

// sameBytes compares two parts of files, by their hashes if they have some.
func (d *differ) sameBytes(a, b *sealed) (bool, error) {
	same, read, err := d.ins.compareBytes(a, b)
	d.out.ReadBytes += read
	return same, err
}

// compareBytes is sameBytes, and tells how many bytes were read.
func (ins *Inspector) compareBytes(a, b *sealed) (same bool, read int64, err error) {
	x, y := ins.storedAt(a.f, a.off, a.n), ins.storedAt(b.f, b.off, b.n)
	if a.n != b.n || !x.IsZero() && !y.IsZero() {
		return a.n == b.n && x == y, 0, nil
	}
	var r [2]io.ReaderAt
	for i, s := range []*sealed{a, b} {
		r[i] = bytes.NewReader(s.inline)
		if s.f == nil {
			continue
		}
		src, _, done, err := s.f.node.Open()
		if err != nil {
			return false, 0, &fs.PathError{Op: "diff", Path: s.f.path, Err: err}
		}
		defer done()
		r[i] = src
	}
	const most = 1 << 20
	p, q := make([]byte, min(most, a.n)), make([]byte, min(most, a.n))
	for at := int64(0); at < a.n; at += most {
		n := min(most, a.n-at)
		for i, s := range []*sealed{a, b} {
			if err := formats.ReadFull(r[i], [][]byte{p, q}[i][:n], s.off+at); err != nil {
				return false, read, fmt.Errorf("%s: %w", s.key, err)
			}
		}
		read += 2 * n
		if !bytes.Equal(p[:n], q[:n]) {
			return false, read, nil
		}
	}
	return true, read, nil
}
