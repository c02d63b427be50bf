package codec

import (
	"errors"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/rans"
)

// Delta is the number of what EncodeDelta makes.
//
// Floats are mapped to integers of the same order (IEEE 754's totalOrder): the sign bit is inverted, and with
// it all others of a negative number. A step of training moves a weight by few places in that order, across
// zero and powers of two as well, where XOR would change most of the bits. The differences, the content less
// the base, modulo 2^(8w), are zigzag-coded, 0 -1 1 -2 to 0 1 2 3, and stored as planes:
//
//	0  1  kind: 1 the elements are floats, 0 integers, which are subtracted as they are
//	1  1  the width w of an element in bytes, 1, 2, 4 or 8
//	2     slabs as in Planes, of the differences, not rotated
//	   t  the rawLen mod w bytes that make no whole element, as they are
//
// Before each slab is said how its elements are sorted:
//
//	0  1  groups g, 1 to 6; more than 1 only where w is 2 or 4
//	      where g > 1:
//	1  1  s, from 8w-9 to 8w-2
//	2  1  top
//
// How many places a number moves depends on its exponent most of all. Let e be the base's element without
// its sign bit, shifted right by s bits. The element is of group min(max(top - e, 0), g - 1). Where g > 1,
// each plane is its bytes of group 0, in order, then those of group 1, and so on, each group as a part unless
// it is empty. But where the code of the first part has its highest bit set, the plane is one part, not
// sorted, and its code is in the other bits.
const Delta byte = 4

// EncodeDelta appends raw to dst as its difference from base, which must be as long. It returns dst as it was
// and false unless that takes at most the given number of bytes. What was encoded has been decoded again and
// compared.
func EncodeDelta(dst, raw, base []byte, h Hint, most int) (out []byte, ok bool) {
	_, kind := numbers(h)
	if kind == notNumbers || len(raw) != len(base) || len(raw) < minLen || len(raw) > cas.MaxChunk {
		return dst, false
	}
	s := planeStates.get()
	defer planeStates.put(s)
	n := len(dst)
	out, ok = s.encodeDelta(dst, raw, base, h, most)
	if !ok || s.decodeDelta(output{p: raw, verify: true}, out[n:], base) != nil {
		return out[:n], false
	}
	return out, true
}

// encodeDelta is EncodeDelta for numbers and a base as long. The result is not yet verified.
func (s *planeState) encodeDelta(dst, raw, base []byte, h Hint, most int) (out []byte, ok bool) {
	w, kind := numbers(h)
	n := len(dst)
	var flag byte
	if kind == floats {
		flag = 1
	}
	out = append(dst, flag, byte(w))
	for a, b := raw, base; len(a) > 0; {
		k := min(len(a)/w, slabElems(w)) * w
		if k == 0 {
			out = append(out, a...)
			break
		}
		splitDiff(s.planes(k/w, w), s.diffs[:], a[:k], b[:k], w, kind == floats)
		out = s.encodeDeltas(out, b[:k], w, exponentAt(h))
		a, b = a[k:], b[k:]
		if len(out)-n > most {
			return out, false
		}
	}
	return out, len(out)-n <= most
}

// encodeDeltas appends the slab of differences from base whose planes are in s.bufs. shift is the place of
// the exponent's lowest bit; 0 where elements have no exponent.
func (s *planeState) encodeDeltas(dst, base []byte, w, shift int) []byte {
	if shift > 0 && len(base)/w >= minGrouped {
		if shape := chooseGroups(base, w, shift); shape.n > 1 {
			g := s.sortBy(shape, base, w)
			return s.encodeSlab(append(dst, byte(shape.n), byte(shape.shift), byte(shape.top)), w, g)
		}
	}
	return s.encodeSlab(append(dst, 1), w, nil)
}

// minGrouped is how many elements there must be for more frequencies to pay.
const minGrouped = 4096

// exponentAt is how many bits are below the exponent, for types that are sorted by it; 0 for others.
func exponentAt(h Hint) int {
	switch h.DType {
	case "F32", "C64":
		return 23
	case "BF16":
		return 7
	case "F16":
		return 10
	}
	return 0
}

// DecodeDelta undoes EncodeDelta: it appends the len(base) bytes that stored holds to dst, which must not lie
// in base. Its errors and bounds are those of Codec.Decode; base of another length than rawLen is
// cas.ErrCorrupt.
func DecodeDelta(dst, stored, base []byte, rawLen int) ([]byte, error) {
	s := planeStates.get()
	defer planeStates.put(s)
	return decodeTo(dst, rawLen, "delta", func(dst []byte) error {
		return s.decodeDelta(output{p: dst}, stored, base)
	})
}

func (s *planeState) decodeDelta(o output, stored, base []byte) error {
	w, floats, err := deltaHead(stored, base, len(o.p))
	if err != nil {
		return err
	}
	tail, err := slabs(len(o.p), stored[2:], w, func(at, n int, stored []byte) ([]byte, error) {
		g, stored, err := s.openGroups(stored, base[at:at+n], w)
		if err != nil {
			return nil, err
		}
		s.dec.Written = o.next(at, n)
		if stored, err = s.decodeSlab(stored, n/w, w, g); err != nil {
			return nil, err
		}
		return stored, s.put(o, at, n, w, undiffer{base, w, floats})
	})
	if err != nil {
		return err
	}
	return o.tail(tail)
}

// undiffer is the joiner of elements of w bytes that splitDiff took from base and apart.
type undiffer struct {
	base   []byte
	w      int
	floats bool
}

func (u undiffer) join(dst []byte, p *[8][]byte, at int) {
	mergeUndiff(dst, p, u.base[at:], u.w, u.floats)
}

func (u undiffer) same(want []byte, p *[8][]byte, at int) (int, bool) {
	return sameUndiff(want, p, u.base[at:], u.w, u.floats)
}

// deltaHead reads the kind and the width that stored begins with.
func deltaHead(stored, base []byte, rawLen int) (w int, floats bool, err error) {
	if len(base) != rawLen {
		return 0, false, fmt.Errorf("%d bytes against a base of %d", rawLen, len(base))
	}
	if len(stored) < 2 || stored[0] > 1 {
		return 0, false, errors.New("no kind")
	}
	if w = int(stored[1]); w != 1 && w != 2 && w != 4 && w != 8 {
		return 0, false, fmt.Errorf("shape %#02x", stored[1])
	}
	return w, stored[0] == 1, nil
}

// openGroups reads how the elements of a slab are sorted, and returns what follows. The groups are nil where
// they are not sorted.
func (s *planeState) openGroups(stored, base []byte, w int) (*groups, []byte, error) {
	if len(stored) == 0 {
		return nil, nil, errEnds
	}
	n := int(stored[0])
	if n == 1 {
		return nil, stored[1:], nil
	}
	if len(stored) < 3 {
		return nil, nil, errEnds
	}
	shape := groupShape{n: n, shift: int(stored[1]), top: int(stored[2])}
	if n == 0 || n > maxGroups || w != 2 && w != 4 || shape.shift < 8*w-9 || shape.shift > 8*w-2 {
		return nil, nil, fmt.Errorf("%d groups from bit %d on, of %d bytes", n, shape.shift, w)
	}
	return s.sortBy(shape, base, w), stored[3:], nil
}

// diffPortable sets d to the zigzag-coded differences of a and base, elements of w bytes. All are as long.
func diffPortable(d, a, base []byte, w int, floats bool) {
	bits := uint(8 * w)
	for i := 0; i+w <= len(a); i += w {
		x, b := loadElem(a[i:], w), loadElem(base[i:], w)
		if floats {
			x, b = order(x, bits), order(b, bits)
		}
		v := int64((x-b)<<(64-bits)) >> (64 - bits)
		storeElem(d[i:], uint64(v<<1^v>>63), w)
	}
	whole := len(a) / w * w
	copy(d[whole:], a[whole:])
}

// undiffPortable undoes diffPortable: d becomes the elements.
func undiffPortable(d, base []byte, w int, floats bool) {
	bits := uint(8 * w)
	for i := 0; i+w <= len(d); i += w {
		z, b := loadElem(d[i:], w), loadElem(base[i:], w)
		if floats {
			b = order(b, bits)
		}
		x := (z>>1 ^ -(z & 1)) + b
		if floats {
			x = disorder(x, bits)
		}
		storeElem(d[i:], x, w)
	}
}

// splitDiffPortable takes the differences of src and base from element i on, for which d has room, apart into
// planes.
func splitDiffPortable(p *[8][]byte, d, src, base []byte, w, i int, floats bool) {
	if i*w == len(src) {
		return
	}
	d = d[:len(src)-i*w]
	diff(d, src[i*w:], base[i*w:], w, floats)
	rest := from(p, w, i)
	split(&rest, d, w, 0)
}

// mergeUndiffPortable undoes splitDiffPortable.
func mergeUndiffPortable(dst []byte, p *[8][]byte, base []byte, w, i int, floats bool) {
	if i*w == len(dst) {
		return
	}
	rest := from(p, w, i)
	merge(dst[i*w:], &rest, w, 0)
	undiff(dst[i*w:], base[i*w:], w, floats)
}

// from is w planes from element i on.
func from(p *[8][]byte, w, i int) (rest [8][]byte) {
	for k := range w {
		rest[k] = p[k][i:]
	}
	return rest
}

// order maps the lowest bits of x, a float, to an integer of the same order. Higher bits of the result mean
// nothing.
func order(x uint64, bits uint) uint64 {
	if x>>(bits-1)&1 != 0 {
		return ^x
	}
	return x | 1<<(bits-1)
}

func disorder(x uint64, bits uint) uint64 {
	if x>>(bits-1)&1 != 0 {
		return x ^ 1<<(bits-1)
	}
	return ^x
}

func loadElem(p []byte, w int) uint64 {
	switch w {
	case 2:
		return uint64(le.Uint16(p))
	case 4:
		return uint64(le.Uint32(p))
	case 8:
		return le.Uint64(p)
	}
	return uint64(p[0])
}

func storeElem(p []byte, v uint64, w int) {
	switch w {
	case 2:
		le.PutUint16(p, uint16(v))
	case 4:
		le.PutUint32(p, uint32(v))
	case 8:
		le.PutUint64(p, v)
	default:
		p[0] = byte(v)
	}
}

// Estimate tells from a sample of 4096 elements which share of raw's bytes would be stored of it alone, and
// of its difference from base. It is 1 where that is not known, and for what is shorter than the sample.
func Estimate(raw, base []byte, h Hint) (alone, delta float64) {
	w, kind := numbers(h)
	const elems = rans.Samples * rans.SampleLen
	if kind == notNumbers || len(raw) != len(base) || len(raw) < elems*w {
		return 1, 1
	}
	s := planeStates.get()
	defer planeStates.put(s)
	step := (len(raw)/w - elems/rans.Samples) / (rans.Samples - 1) * w
	rot := 0
	if kind == floats && w > 1 {
		rot = 1
	}
	planes := s.planes(elems, w)
	for i := range rans.Samples {
		p := from(planes, w, i*rans.SampleLen)
		split(&p, raw[i*step:][:rans.SampleLen*w], w, rot)
	}
	alone = s.sampled(w)
	for i := range rans.Samples {
		p := from(planes, w, i*rans.SampleLen)
		now, before := raw[i*step:][:rans.SampleLen*w], base[i*step:][:rans.SampleLen*w]
		splitDiff(&p, s.diffs[:], now, before, w, kind == floats)
	}
	return alone, s.sampled(w)
}

// sampled is which share of the w planes in s.bufs would be stored.
func (s *planeState) sampled(w int) float64 {
	var sum float64
	for _, p := range s.bufs[:w] {
		bits := rans.SampleBits(p, rans.RandomBits)
		if bits > rans.RandomBits {
			bits = 8
		}
		sum += bits
	}
	return sum / float64(8*w)
}
