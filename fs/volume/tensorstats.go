package volume

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"ckptfs/formats"
	"ckptfs/formats/npy"
	"ckptfs/formats/numbers"
	"ckptfs/fs/control"
)

// statsPiece is how many bytes of a tensor a worker looks at at a time; a multiple of every element's width.
const statsPiece = 4 << 20

// tensorStats fills in out[k].Stats, of the tensors order[k] of f. It takes statsPiece of memory a core.
func (v *Volume) tensorStats(ctx context.Context, f *comparand, order []int, out []control.Tensor, progress func(control.Progress)) error {
	_, _, done, err := v.peruse(f.node) // once, so that the pieces need not
	if err != nil {
		return err
	}
	defer done()
	p := control.Progress{TotalFiles: 1, Current: f.path}
	for _, i := range order {
		if t := &f.layout.Tensors[i]; numbers.Known(t.DType) {
			p.TotalBytes += t.NumBytes()
		}
	}
	var mu sync.Mutex // guards sums and p
	sums := make([]*numbers.Summary, len(order))
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for k, i := range order {
		if !numbers.Known(f.layout.Tensors[i].DType) {
			continue
		}
		t := asStored(&f.layout.Tensors[i])
		sums[k] = numbers.NewSummary()
		size := t.NumBytes()
		for off := int64(0); off < size && inner.Err() == nil; off += statsPiece {
			g.Go(func() error {
				s, err := v.summarise(inner, f, t, off, min(statsPiece, size-off))
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				sums[k].Merge(s)
				p.DoneBytes += min(statsPiece, size-off)
				if progress != nil {
					progress(p)
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for k, s := range sums {
		if s != nil {
			out[k].Stats = statsOf(s)
		}
	}
	return nil
}

// asStored is the tensor with its dimensions in the order of the storage: the same elements in another order, that of reading forwards.
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

func statsOf(s *numbers.Summary) *control.TensorStats {
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

var statsPieces = sync.Pool{New: func() any { return new([statsPiece]byte) }}

// summarise describes n bytes of a tensor's elements.
func (v *Volume) summarise(ctx context.Context, f *comparand, t *formats.Tensor, off, n int64) (*numbers.Summary, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r, err := v.openTensor(f, t)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %s: %w", f.path, t.Name, err)
	}
	defer r.done()
	buf := statsPieces.Get().(*[statsPiece]byte)
	defer statsPieces.Put(buf)
	if err := r.read(buf[:n], off); err != nil {
		return nil, err
	}
	s := numbers.NewSummary()
	s.Add(t.DType, buf[:n])
	return s, nil
}

// Tensor opens one tensor of a file: its elements row-major, behind the header of a .npy if that is wanted.
func (v *Volume) Tensor(_ context.Context, path, name string, withHeader bool) (*control.TensorData, error) {
	fail := func(err error) (*control.TensorData, error) {
		return nil, &fs.PathError{Op: "cat-tensor", Path: path, Err: err}
	}
	n, err := v.resolve(path)
	if err != nil {
		return fail(err)
	}
	defer v.unref(n, 1) // what is open keeps itself
	f, err := v.comparandOf(path, n)
	if err != nil {
		return fail(err)
	}
	for i := range f.layout.Tensors {
		t := &f.layout.Tensors[i]
		if t.Name != name {
			continue
		}
		var head []byte
		if withHeader {
			if head, err = npy.AppendHeader(nil, t); err != nil {
				return fail(fmt.Errorf("tensor %s: %w", name, err))
			}
		}
		r, err := v.openTensor(f, t)
		if err != nil {
			return fail(fmt.Errorf("tensor %s: %w", name, err))
		}
		size := t.NumBytes()
		v.ref(f.node)
		body := io.NewSectionReader(elementsOf{r}, 0, size)
		return &control.TensorData{Size: int64(len(head)) + size, ReadCloser: &openTensorData{
			Reader: io.MultiReader(bytes.NewReader(head), body),
			done:   func() { r.done(); v.unref(f.node, 1) },
		}}, nil
	}
	return fail(fmt.Errorf("%w: no tensor called %q; `ckptfs show` lists them", fs.ErrNotExist, name))
}

// elementsOf reads a tensor's elements.
type elementsOf struct{ r *tensorReader }

func (e elementsOf) ReadAt(p []byte, off int64) (int, error) {
	if err := e.r.read(p, off); err != nil {
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

var _ control.Tensors = (*Volume)(nil)
