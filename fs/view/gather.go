package view

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"
)

const (
	// windowSize bounds one read of the source for elements that are not adjacent.
	windowSize = 512 << 10
	// maxGap is how many unwanted bytes are cheaper to read than to skip with another read.
	maxGap = 2 << 10
	// longRun is from where on adjacent elements are read straight to their place.
	longRun = 4 << 10
)

var windows = sync.Pool{New: func() any { return new([windowSize]byte) }}

// gatherer collects the elements of one strided tensor. It walks them in the order of the source, largest
// step outermost, whatever their order in the view: reads of the source then go forward, and each fetches all
// that is wanted near it.
type gatherer struct {
	src    io.ReaderAt
	elem   int64
	out    []byte // where the elements go
	buf    *[windowSize]byte
	lo, hi int64 // source bytes that buf holds
}

// gather fills p with the tensor's bytes from `from` on.
func gather(src io.ReaderAt, t *tensor, p []byte, from int64) error {
	s := t.strided
	g := gatherer{src: src, elem: s.elem, buf: windows.Get().(*[windowSize]byte)}
	defer windows.Put(g.buf)
	// Half an element at either end.
	if r := from % s.elem; r != 0 {
		q, err := g.window(t.base+s.at(from/s.elem), s.elem)
		if err != nil {
			return err
		}
		n := copy(p, q[r:])
		p, from = p[n:], from+int64(n)
	}
	if r := int64(len(p)) % s.elem; r != 0 {
		n := int64(len(p)) - r
		q, err := g.window(t.base+s.at((from+n)/s.elem), s.elem)
		if err != nil {
			return err
		}
		copy(p[n:], q)
		p = p[:n]
	}
	if len(p) == 0 {
		return nil
	}
	g.out = p
	lo := from / s.elem
	return s.boxes(lo, lo+int64(len(p))/s.elem, func(axes []axis, src, dst int64) error {
		slices.SortFunc(axes, func(a, b axis) int { return int(min(max(b.src-a.src, -1), 1)) })
		return g.box(axes, t.base+src, dst)
	})
}

// box gathers what axes, outermost first, run over.
func (g *gatherer) box(axes []axis, src, dst int64) error {
	if len(axes) == 1 && axes[0].src == g.elem && axes[0].dst == g.elem && axes[0].n*g.elem >= longRun {
		_, err := readFull(g.src, g.out[dst:dst+axes[0].n*g.elem], src)
		return err
	}
	span, dense := g.extent(axes)
	if dense && span <= windowSize {
		q, err := g.window(src, span)
		if err == nil {
			g.scatter(axes, q, dst)
		}
		return err
	}
	a, rest := axes[0], axes[1:]
	inner, _ := g.extent(rest)
	if dense && inner <= windowSize && a.src > 0 {
		part := slices.Clone(axes)
		for m := (windowSize-inner)/a.src + 1; a.n > 0; a.n -= part[0].n {
			part[0].n = min(m, a.n)
			if err := g.box(part, src, dst); err != nil {
				return err
			}
			src += part[0].n * a.src
			dst += part[0].n * a.dst
		}
		return nil
	}
	for range a.n {
		if err := g.box(rest, src, dst); err != nil {
			return err
		}
		src += a.src
		dst += a.dst
	}
	return nil
}

// extent is how many source bytes the axes span, and whether no gap among them is worth skipping.
func (g *gatherer) extent(axes []axis) (span int64, dense bool) {
	span, dense = g.elem, true
	for i := len(axes) - 1; i >= 0; i-- {
		if a := axes[i]; a.n > 1 {
			dense = dense && a.src-span <= maxGap
			span += (a.n - 1) * a.src
		}
	}
	return span, dense
}

// window is the n source bytes at off, from the last read if that had them.
func (g *gatherer) window(off, n int64) ([]byte, error) {
	if off < g.lo || off+n > g.hi {
		g.lo, g.hi = off, off
		if _, err := readFull(g.src, g.buf[:n], off); err != nil {
			return nil, err
		}
		g.hi = off + n
	}
	return g.buf[off-g.lo : off-g.lo+n], nil
}

// scatter copies elements from q, which begins with the axes' first, to their places.
func (g *gatherer) scatter(axes []axis, q []byte, dst int64) {
	switch len(axes) {
	case 0:
		copy(g.out[dst:dst+g.elem], q)
		return
	case 1:
		g.scatterRun(axes[0], q, g.out[dst:])
		return
	}
	for i := range axes[0].n {
		g.scatter(axes[1:], q[i*axes[0].src:], dst+i*axes[0].dst)
	}
}

func (g *gatherer) scatterRun(a axis, q, out []byte) {
	if a.src == g.elem && a.dst == g.elem {
		copy(out[:a.n*g.elem], q)
		return
	}
	var s, d int64
	switch g.elem {
	case 1:
		for range a.n {
			out[d] = q[s]
			s, d = s+a.src, d+a.dst
		}
	case 2:
		for range a.n {
			binary.NativeEndian.PutUint16(out[d:], binary.NativeEndian.Uint16(q[s:]))
			s, d = s+a.src, d+a.dst
		}
	case 4:
		for range a.n {
			binary.NativeEndian.PutUint32(out[d:], binary.NativeEndian.Uint32(q[s:]))
			s, d = s+a.src, d+a.dst
		}
	case 8:
		for range a.n {
			binary.NativeEndian.PutUint64(out[d:], binary.NativeEndian.Uint64(q[s:]))
			s, d = s+a.src, d+a.dst
		}
	default:
		for range a.n {
			copy(out[d:d+g.elem], q[s:])
			s, d = s+a.src, d+a.dst
		}
	}
}
