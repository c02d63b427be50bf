package inspect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/npy"
	"ckptfs/formats/numbers"
	"ckptfs/formats/zarr"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// StatsPiece is how many bytes of a tensor a worker looks at at a time; a multiple of every element's width.
const StatsPiece = 4 << 20

// statsBytes is how many bytes arrayStats reads of an array.
func statsBytes(a *array) (n int64) {
	if !numbers.Known(a.DType) {
		return 0
	}
	if a.zarr != nil {
		n = a.NumBytes()
	}
	for _, x := range a.pieces {
		n += x.tensor().NumBytes()
	}
	return n
}

// arrayStats sets out[k].Stats, of arrays[k]. It takes StatsPiece of memory a core.
func (ins *Inspector) arrayStats(ctx context.Context, path string, arrays []array, out []control.Tensor,
	progress func(control.Progress)) error {
	p := control.Progress{TotalFiles: 1, Current: path}
	open := map[File]bool{} // each once, so that the pieces need not
	for i := range arrays {
		a := &arrays[i]
		if !numbers.Known(a.DType) {
			continue
		}
		for _, x := range a.pieces {
			if n := x.f.node; !open[n] {
				_, _, done, err := n.Open()
				if err != nil {
					return err
				}
				defer done()
				open[n] = true
			}
		}
	}
	var mu sync.Mutex // guards sums and p
	sums := make([]*numbers.Summary, len(arrays))
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(cas.Processors)
	for k := range arrays {
		if !numbers.Known(arrays[k].DType) || len(arrays[k].pieces) == 0 {
			continue
		}
		sums[k] = numbers.NewSummary()
		for _, x := range arrays[k].pieces {
			t := asStored(x.tensor())
			size := t.NumBytes()
			for off := int64(0); off < size && inner.Err() == nil; off += StatsPiece {
				g.Go(func() error {
					s, err := ins.summarise(inner, x.f, t, off, min(StatsPiece, size-off))
					if err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					sums[k].Merge(s)
					p.DoneBytes += min(StatsPiece, size-off)
					if progress != nil {
						progress(p)
					}
					return nil
				})
			}
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for k := range arrays {
		a := &arrays[k]
		if a.zarr == nil || !numbers.Known(a.DType) {
			continue
		}
		s, err := ins.summariseForwards(ctx, a, func(n int64) {
			if p.DoneBytes += n; progress != nil {
				progress(p)
			}
		})
		switch {
		case err == nil:
			sums[k] = s
		case !errors.Is(err, zarr.ErrUnread):
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for k, s := range sums {
		if s != nil {
			out[k].Stats = StatsOf(s)
		}
	}
	return nil
}

// asStored is the tensor with its dimensions in the order of the storage: the same elements in another order,
// that of reading forwards.
func asStored(t *formats.Tensor) *formats.Tensor {
	if t.Contiguous() {
		return t
	}
	dims := make([]int, len(t.Shape))
	for i := range dims {
		dims[i] = i
	}
	slices.SortStableFunc(dims, func(a, b int) int { return cmp.Compare(t.Stride[b], t.Stride[a]) })
	out := *t
	out.Shape, out.Stride = nil, nil
	for _, i := range dims {
		out.Shape = append(out.Shape, t.Shape[i])
		out.Stride = append(out.Stride, t.Stride[i])
	}
	return &out
}

// StatsOf is what is told of a tensor with such elements.
func StatsOf(s *numbers.Summary) *control.TensorStats {
	out := &control.TensorStats{
		Count: s.Count, NaN: s.NaN, Inf: s.Inf, Zero: s.Zero,
		Min: control.Number(s.Min), Max: control.Number(s.Max), Mean: control.Number(s.Mean()),
	}
	if s.Finite() == 0 {
		nan := control.Number(math.NaN())
		out.Min, out.Max, out.Mean = nan, nan, nan
	}
	return out
}

var statsPieces = sync.Pool{New: func() any { return new([StatsPiece]byte) }}

// summarise describes n bytes of a tensor's elements.
func (ins *Inspector) summarise(ctx context.Context, f *file, t *formats.Tensor, off,
	n int64) (*numbers.Summary, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r, err := ins.openTensor(f, t)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %s: %w", f.path, t.Name, err)
	}
	defer r.done()
	buf := statsPieces.Get().(*[StatsPiece]byte)
	defer statsPieces.Put(buf)
	if err := r.read(buf[:n], off); err != nil {
		return nil, err
	}
	s := numbers.NewSummary()
	s.Add(t.DType, buf[:n])
	return s, nil
}

// summariseForwards describes an array that is read from its beginning on: one at a time, for what that
// takes.
func (ins *Inspector) summariseForwards(ctx context.Context, a *array,
	done func(n int64)) (*numbers.Summary, error) {
	r, err := ins.openArray(a)
	if err != nil {
		return nil, err
	}
	defer r.done()
	buf := statsPieces.Get().(*[StatsPiece]byte)
	defer statsPieces.Put(buf)
	s := numbers.NewSummary()
	for off, size := int64(0), a.NumBytes(); off < size; off += StatsPiece {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p := buf[:min(StatsPiece, size-off)]
		if err := r.read(p, off); err != nil {
			return nil, err
		}
		s.Add(a.DType, p)
		done(int64(len(p)))
	}
	return s, nil
}

// Tensor opens one tensor of a file or a set: its elements row-major, behind the header of a .npy if that is
// wanted.
func (ins *Inspector) Tensor(ctx context.Context, path, name string,
	withHeader bool) (*control.TensorData, error) {
	r := newReach(ins)
	fail := func(err error) (*control.TensorData, error) {
		r.close()
		return nil, &fs.PathError{Op: "cat-tensor", Path: path, Err: err}
	}
	c, err := r.at(ctx, path)
	if err == tree.ErrNotRegular { // a folder without a set: it is the one checkpoint in it
		var file string
		if file, err = ins.only(path); err == nil {
			c, err = r.at(ctx, file)
		}
	}
	if err != nil {
		return fail(err)
	}
	a := c.find(name)
	if a == nil {
		return fail(control.NotFound("no tensor called %q; `ckptfs show` lists them", name))
	}
	var head []byte
	if withHeader {
		if head, err = npy.AppendHeader(nil, &a.Tensor); err != nil {
			return fail(fmt.Errorf("tensor %s: %w", name, err))
		}
	}
	x, err := ins.openArray(a)
	if err != nil {
		return fail(fmt.Errorf("tensor %s: %w", name, err))
	}
	size := a.NumBytes()
	body := io.NewSectionReader(elementsOf{x, path}, 0, size)
	return &control.TensorData{Size: int64(len(head)) + size, ReadCloser: &openTensorData{
		Reader: io.MultiReader(bytes.NewReader(head), body),
		done:   func() { x.done(); r.close() },
	}}, nil
}

// elementsOf reads the elements of an array of a path. Who asked for them is told that some are missing; the
// log says why.
type elementsOf struct {
	r    *arrayReader
	path string
}

func (e elementsOf) ReadAt(p []byte, off int64) (int, error) {
	if err := e.r.read(p, off); err != nil {
		e.r.ins.unread(e.path, e.r.a.Name, err)
		return 0, err
	}
	return len(p), nil
}

type openTensorData struct {
	io.Reader
	done func()
}

func (d *openTensorData) Close() error {
	d.done()
	return nil
}
