package codec

import (
	"bytes"
	"fmt"

	"ckptfs/cas"
)

// Delta is the number of what EncodeDelta makes. It is no Codec: to decode it the base is needed, which the record names.
//
// Floats are mapped to integers of the same order (IEEE 754's totalOrder): the sign bit is inverted, and with it all others
// of a negative number. A step of training moves a weight by few places in that order, across zero and powers of two as
// well, where XOR would change most of the bits. The differences, modulo 2^(8w), are zigzag-coded, 0 -1 1 -2 to 0 1 2 3,
// and stored as planes:
//
//	0  1  kind: 1 the elements are floats, 0 integers, which are subtracted as they are
//	1     the differences as Planes stores them, not rotated; its width of an element is that of the differences. Bytes that
//	      make no whole element are the raw ones
const Delta byte = 3

// EncodeDelta appends raw to dst as its difference from base, which must be as long. It returns dst as it was and false
// unless that takes at most the given number of bytes. What was encoded has been decoded again and compared.
func EncodeDelta(dst, raw, base []byte, h Hint, most int) ([]byte, bool) {
	w, kind := numbers(h)
	if kind == notNumbers || len(raw) != len(base) || len(raw) < minLen || len(raw) > cas.MaxChunk {
		return dst, false
	}
	p := scratch.Get().(*[]byte)
	defer scratch.Put(p)
	d, err := grow((*p)[:0], len(raw))
	if err != nil {
		return dst, false
	}
	d = d[:len(raw)]
	*p = d
	diff(d, raw, base, w, kind == floats)
	n := len(dst)
	var flag byte
	if kind == floats {
		flag = 1
	}
	out := planesCodec{}.Encode(append(dst, flag), d, integersOf(w))
	if len(out)-n > most {
		return out[:n], false
	}
	got, err := DecodeDelta(d[:0], out[n:], base, len(raw))
	if err != nil || !bytes.Equal(got, raw) {
		return out[:n], false
	}
	return out, true
}

// integersOf is the hint for integers of w bytes.
func integersOf(w int) Hint {
	if w == 1 {
		return Hint{DType: "U8", Elem: 1}
	}
	return Hint{Elem: w}
}

// DecodeDelta undoes EncodeDelta: it appends the len(base) bytes that stored holds to dst, which must not lie in base.
// Its errors and bounds are those of Codec.Decode; base of another length than rawLen is cas.ErrCorrupt.
func DecodeDelta(dst, stored, base []byte, rawLen int) ([]byte, error) {
	if len(base) != rawLen {
		return dst, fmt.Errorf("delta: %d bytes against a base of %d: %w", rawLen, len(base), cas.ErrCorrupt)
	}
	if len(stored) < 2 || stored[0] > 1 {
		return dst, fmt.Errorf("delta: no kind: %w", cas.ErrCorrupt)
	}
	w := int(stored[1])
	if w != 1 && w != 2 && w != 4 && w != 8 { // which excludes rotated ones
		return dst, fmt.Errorf("delta: shape %#02x: %w", stored[1], cas.ErrCorrupt)
	}
	out, err := planesCodec{}.Decode(dst, stored[1:], rawLen)
	if err != nil {
		return dst, fmt.Errorf("delta: %w", err)
	}
	undiff(out[len(dst):], base, w, stored[0] == 1)
	return out, nil
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

// undiffPortable undoes diffPortable in place.
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

// order maps the low bits of x, a float, to an integer of the same order; higher ones are not looked at or left well.
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

// Estimate tells from a sample of 8192 elements which share of raw's bytes would be stored of it alone, and of its
// difference from base: 1 for what cannot be told, or is shorter than the sample.
func Estimate(raw, base []byte, h Hint) (alone, delta float64) {
	w, kind := numbers(h)
	const elems = samples * sampleLen
	if kind == notNumbers || len(raw) != len(base) || len(raw) < elems*w {
		return 1, 1
	}
	var a, b, d, p [elems * 8]byte
	n := elems * w
	step := (len(raw)/w - elems/samples) / (samples - 1) * w
	for i := range samples {
		copy(a[i*sampleLen*w:][:sampleLen*w], raw[i*step:])
		copy(b[i*sampleLen*w:][:sampleLen*w], base[i*step:])
	}
	rot := 0
	if kind == floats && w > 1 {
		rot = 1
	}
	var planes [8][]byte
	for k := range w {
		planes[k] = p[k*elems:][:elems]
	}
	share := func(src []byte, rot int) float64 {
		split(&planes, src, w, rot)
		var sum float64
		for k := range w {
			bits := sampleBits(planes[k])
			if bits > huffBits {
				bits = 8
			}
			sum += bits
		}
		return sum / float64(8*w)
	}
	diff(d[:n], a[:n], b[:n], w, kind == floats)
	return share(a[:n], rot), share(d[:n], 0)
}
