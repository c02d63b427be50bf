package inspect

import (
	"encoding/binary"

	"ckptfs/index/manifest"
)

// stretch is bytes of a tensor's elements.
type stretch struct{ off, n int64 }

// pieces are the stretches in which two tensors of one type and shape may differ, size bytes long, each at
// most patchPiece: all but the chunks that both have.
func (ins *Inspector) pieces(s, t *array, size int64) (all []stretch) {
	add := func(from, to int64) {
		for ; from < to; from += patchPiece {
			all = append(all, stretch{from, min(patchPiece, to-from)})
		}
	}
	from := int64(0)
	for _, same := range ins.alike(s, t) {
		to := min(same.off, size)
		if from < to {
			add(from, to)
		}
		from = max(from, same.off+same.n)
	}
	add(from, size)
	return all
}

// alike are the stretches in which two tensors have equal chunks, ascending, each a multiple of 16 bytes from
// such a place on. None: nothing is known.
func (ins *Inspector) alike(s, t *array) (all []stretch) {
	x, y := ins.chunks(s), ins.chunks(t)
	var at, other int64 // where x[0] and y[0] begin
	for len(x) > 0 && len(y) > 0 {
		if at == other && x[0] == y[0] {
			from, to := (at+15)&^15, (at+int64(x[0].Len))&^15
			if n := len(all); n > 0 && all[n-1].off+all[n-1].n == from {
				all[n-1].n = to - all[n-1].off
			} else if from < to {
				all = append(all, stretch{from, to - from})
			}
		}
		if xEnd, yEnd := at+int64(x[0].Len), other+int64(y[0].Len); xEnd <= yEnd {
			at, x = xEnd, x[1:]
			if xEnd == yEnd {
				other, y = yEnd, y[1:]
			}
		} else {
			other, y = yEnd, y[1:]
		}
	}
	return all
}

// chunks are those of a packed tensor whose elements are one object; nil: it is none.
func (ins *Inspector) chunks(a *array) []manifest.Span {
	if len(a.pieces) != 1 || a.grid != nil || a.zarr != nil || a.Region < 0 || a.Offset != 0 ||
		!a.Contiguous() {
		return nil
	}
	f := a.pieces[0].f
	region := f.layout.Regions[a.Region]
	if ins.storedAt(f, region.Off, region.Len).IsZero() {
		return nil
	}
	o := f.stored[region.Off]
	spans, err := ins.spans(f.whole, &o)
	if err != nil {
		return nil // what cannot be known of is read, and fails there
	}
	return spans
}

// maxPatched is the width in bytes of the widest elements that are compared one by one.
const maxPatched = 8

// appendChanged appends the positions and the bytes of the elements of q, width bytes each, that are others
// than those of p: 1, 2, 4 or 8. The first element is first.
func appendChanged(idx []int32, values, p, q []byte, width int, first int32) ([]int32, []byte) {
	per := 8 / width
	lane := ^uint64(0) >> (64 - 8*width)
	i := 0
	for ; i+8 <= len(q); i += 8 {
		d := binary.LittleEndian.Uint64(p[i:]) ^ binary.LittleEndian.Uint64(q[i:])
		if d == 0 {
			continue
		}
		at := first + int32(i/width)
		for k := range per {
			if d&lane != 0 {
				idx = append(idx, at+int32(k))
				values = append(values, q[i+k*width:i+(k+1)*width]...)
			}
			if width < 8 {
				d >>= 8 * width
			}
		}
	}
	for ; i < len(q); i += width {
		if string(p[i:i+width]) != string(q[i:i+width]) {
			idx = append(idx, first+int32(i/width))
			values = append(values, q[i:i+width]...)
		}
	}
	return idx, values
}
