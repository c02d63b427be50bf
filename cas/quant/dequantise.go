package quant

import (
	"fmt"
	"math"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/half"
)

// Dequantise sets x to the numbers that blocks stand for. Of FP8, whose scales' values must be given, the
// blocks are the codes of elements from Scales.At on. Blocks that are not those of as many elements are
// cas.ErrCorrupt.
func (q *Quantiser) Dequantise(x []float32, blocks []byte) error {
	if err := q.check(len(x)); err != nil {
		return err
	}
	if q.Format >= NF4 {
		return fmt.Errorf("%w: numbers of %v", cas.ErrNewer, q.Format)
	}
	if err := q.fits(blocks, len(x)); err != nil {
		return err
	}
	if q.Format.FP8() {
		numbers := q.Format.Numbers()
		q.Scales.runs(len(x), func(from, to, group int) {
			s := float32(1)
			if q.Scales.any() {
				s = q.Scales.Values[group]
			}
			times8(x[from:to], blocks[from:to], numbers, s)
		})
		return nil
	}
	elems, size := q.Format.Block()
	for i := range len(x) / elems {
		x, p := x[i*elems:(i+1)*elems], blocks[i*size:(i+1)*size]
		q.numbers(x, p)
		if q.special(p) {
			for i := range x {
				x[i] = number(x[i])
			}
		}
	}
	return nil
}

// Count is how many scales n elements have: as many as there are Groups. Scales that n elements cannot have
// are an error.
func (g *Scales) Count(n int) (int, error) {
	if n < 0 {
		return 0, fmt.Errorf("%w: %d elements", cas.ErrCorrupt, n)
	}
	if err := g.check(n); err != nil {
		return 0, err
	}
	return g.count(n), nil
}

// Append appends the numbers of a type that p has to x.
func (t Type) Append(x []float32, p []byte) []float32 {
	for size := t.size(); len(p) >= size; p = p[size:] {
		x = append(x, t.Number(p))
	}
	return x
}

// number is v, or, where that is none, the one that all processors make of it here.
func number(v float32) float32 {
	if v != v {
		return nan
	}
	return v
}

func times8(x []float32, codes []byte, numbers *[256]float32, s float32) {
	codes = codes[:len(x)]
	for i := range x {
		x[i] = number(float32(numbers[codes[i]] * s))
	}
}

// Numbers are those of the codes of a format of FP8.
func (f Format) Numbers() *[256]float32 {
	if f == F8E5M2 {
		return e5m2()
	}
	return e4m3()
}

var (
	e4m3 = sync.OnceValue(func() *[256]float32 { return F8E4M3.eights() })
	e5m2 = sync.OnceValue(func() *[256]float32 { return F8E5M2.eights() })
)

func (f Format) eights() *[256]float32 {
	t := new([256]float32)
	for c := range t {
		v := f.value8(byte(c))
		switch {
		case f == F8E4M3 && c&0x7f == 0x7f, f == F8E5M2 && c&0x7f > 0x7c:
			v = nan
		case f == F8E5M2 && c&0x7f == 0x7c:
			v = inf
		}
		if c >= 0x80 {
			v = math.Float32frombits(bits(v) | 1<<31)
		}
		t[c] = v
	}
	return t
}

// special reports whether a block has a scale, or an offset, that is infinite or no number.
func (q *Quantiser) special(p []byte) bool {
	const exponent = 0x7c00
	switch q.Format {
	case MXFP4:
		return false
	case Q4_1, Q5_1, Q2_K, Q4_K, Q5_K:
		if q.get16(p, 1)&exponent == exponent {
			return true
		}
	}
	return q.get16(p, 0)&exponent == exponent
}

// numbers sets x to those of a block. All products are exact in single precision but those of what is
// infinite, so that it is of no matter whether a processor rounds them before it adds.
func (q *Quantiser) numbers(x []float32, p []byte) {
	var sc, mn [16]byte
	switch f := q.Format; f {
	case Q8_0:
		d := half.FromF16(q.get16(p, 0))
		for i, c := range p[2 : 2+len(x)] {
			x[i] = d * float32(int8(c))
		}
	case Q4_0, Q4_1, IQ4_NL, MXFP4:
		q.nibbles(x, p)
	case Q5_0, Q5_1:
		var codes [32]byte
		f.unpack(codes[:], p)
		d, m, zero := half.FromF16(q.get16(p, 0)), float32(0), int32(16)
		if f == Q5_1 {
			m, zero = half.FromF16(q.get16(p, 1)), 0
		}
		for i, c := range codes {
			x[i] = float32(d * float32(int32(c)-zero))
			if f == Q5_1 {
				x[i] += m
			}
		}
	case Q4_K, Q5_K:
		q.split(p, &sc, &mn)
		d, m := half.FromF16(q.get16(p, 0)), half.FromF16(q.get16(p, 1))
		low := p[shapes[f].bytes-128:]
		for j := range 8 {
			a, b := float32(d*float32(sc[j])), float32(m*float32(mn[j]))
			x, low, shift := x[32*j:32*j+32], low[j/2*32:j/2*32+32], j%2*4
			if f == Q4_K {
				for l, c := range low {
					x[l] = float32(a*float32(c>>shift&15)) - b
				}
				continue
			}
			for l, c := range low {
				x[l] = float32(a*float32(c>>shift&15|p[16+l]>>j&1<<4)) - b
			}
		}
	case Q6_K:
		d := half.FromF16(q.get16(p, 0))
		for j := range 16 {
			a := float32(d * float32(int8(p[192+j])))
			at := j % 8 * 16 // in 128 elements
			low, high := p[j/8*64+at%64:][:16], p[128+j/8*32+at%32:][:16]
			x, down, up := x[16*j:16*j+16], at/64*4, at/32*2
			for l, c := range low {
				x[l] = float32(a * float32(int32(c>>down&15|high[l]>>up&3<<4)-32))
			}
		}
	case Q2_K, Q3_K:
		q.split(p, &sc, &mn)
		var codes [256]byte
		f.unpack(codes[:], p)
		d, m, less, zero := half.FromF16(q.get16(p, 0)), float32(0), int32(0), int32(0)
		if f == Q2_K {
			m = half.FromF16(q.get16(p, 1))
		} else {
			less, zero = 32, 4
		}
		for j := range 16 {
			a, b := float32(d*float32(int32(sc[j])-less)), float32(m*float32(mn[j]))
			for i := 16 * j; i < 16*j+16; i++ {
				x[i] = float32(a * float32(int32(codes[i])-zero))
				if f == Q2_K {
					x[i] -= b
				}
			}
		}
	case IQ4_XS:
		q.split(p, &sc, nil)
		d := half.FromF16(q.get16(p, 0))
		for j := range 8 {
			a := float32(d * float32(int32(sc[j])-32))
			for l, c := range p[8+16*j : 24+16*j] {
				x[32*j+l], x[32*j+l+16] = float32(a*table[c&15]), float32(a*table[c>>4])
			}
		}
	}
}

// nibbles is numbers for formats of one scale whose codes have four bits.
func (q *Quantiser) nibbles(x []float32, p []byte) {
	var t [16]float32
	switch q.Format {
	case MXFP4:
		// Twice the numbers lie in the table.
		d := math.Float32frombits(0x00200000 << p[0])
		if p[0] > 1 {
			d = math.Float32frombits(uint32(p[0]-1) << 23)
		}
		for c, v := range [8]float32{0, 1, 2, 3, 4, 6, 8, 12} {
			t[c], t[c+8] = float32(v*d), float32((0-v)*d)
		}
	default:
		d := half.FromF16(q.get16(p, 0))
		for c := range t {
			switch q.Format {
			case Q4_0:
				t[c] = float32(d * float32(int32(c)-8))
			case Q4_1:
				t[c] = float32(d*float32(c)) + half.FromF16(q.get16(p, 1))
			case IQ4_NL:
				t[c] = float32(d * table[c])
			}
		}
	}
	for l, c := range p[shapes[q.Format].bytes-16:] {
		x[l], x[l+16] = t[c&15], t[c>>4]
	}
}
