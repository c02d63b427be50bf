package view

import "ckptfs/formats"

// shape is a strided tensor with as few dimensions as say the same: none of size one, none that its neighbour
// continues.
type shape struct {
	elem  int64   // bytes of an element
	dims  []int64 // elements, outermost first
	step  []int64 // bytes in the source from one index to the next
	inner []int64 // elements of the view from one index to the next
}

func newShape(t *formats.Tensor) *shape {
	s := &shape{elem: int64(t.DType.Bits() / 8)}
	for i, n := range t.Shape {
		step := t.Stride[i] * s.elem
		last := len(s.dims) - 1
		switch {
		case n == 1:
		case last >= 0 && s.step[last] == step*n:
			s.dims[last] *= n
			s.step[last] = step
		default:
			s.dims = append(s.dims, n)
			s.step = append(s.step, step)
		}
	}
	s.inner = make([]int64, len(s.dims))
	n := int64(1)
	for i := len(s.dims) - 1; i >= 0; i-- {
		s.inner[i] = n
		n *= s.dims[i]
	}
	return s
}

// at is the source byte, relative to element 0, of element e.
func (s *shape) at(e int64) int64 {
	var off int64
	for i := range s.dims {
		off += e / s.inner[i] * s.step[i]
		e %= s.inner[i]
	}
	return off
}

// axis is one loop of a box.
type axis struct {
	n        int64
	src, dst int64 // bytes from one index to the next in the source, in the view
}

// boxes calls f for boxes that together are the elements [lo, hi), in order. A box has no more axes than
// dimensions, its elements are adjacent in the view, and src and dst are its first element's bytes relative
// to the tensor's element 0 and to element lo. axes is f's to reorder, and valid during the call.
func (s *shape) boxes(lo, hi int64, f func(axes []axis, src, dst int64) error) error {
	b := boxer{shape: s, f: f, axes: make([]axis, 0, len(s.dims))}
	return b.split(0, lo, hi, 0)
}

type boxer struct {
	*shape
	f    func(axes []axis, src, dst int64) error
	axes []axis
	dst  int64
}

// split cuts the elements [lo, hi) of the sub-array of dimensions dim and up, whose element 0 is at src.
func (b *boxer) split(dim int, lo, hi, src int64) error {
	in := b.inner[dim]
	first, last := lo/in, hi/in // whole indices are [first, last), after a partial one
	if r := lo % in; r != 0 {
		end := min(in, hi-first*in)
		if err := b.split(dim+1, r, end, src+first*b.step[dim]); err != nil {
			return err
		}
		first++
	}
	if first < last {
		b.axes = append(b.axes[:0], axis{last - first, b.step[dim], in * b.elem})
		for i := dim + 1; i < len(b.dims); i++ {
			b.axes = append(b.axes, axis{b.dims[i], b.step[i], b.inner[i] * b.elem})
		}
		if err := b.f(b.axes, src+first*b.step[dim], b.dst); err != nil {
			return err
		}
		b.dst += (last - first) * in * b.elem
	}
	if r := hi % in; r != 0 && last >= first {
		return b.split(dim+1, 0, r, src+last*b.step[dim])
	}
	return nil
}
