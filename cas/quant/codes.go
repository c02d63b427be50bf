package quant

import "math"

// predictPortable sets the codes of blocks, of which dst begins with so many, to those that follow from x and
// the factors of its parts.
func (q *Quantiser) predictPortable(dst []byte, x []float32, f *factors) {
	s := &shapes[q.Format]
	var codes [256]byte
	for i := 0; i*s.elems < len(x); i++ {
		p, x := dst[i*s.bytes:(i+1)*s.bytes], x[i*s.elems:(i+1)*s.elems]
		for j := 0; j < s.elems/s.sub; j++ {
			k := i*(s.elems/s.sub) + j
			q.part(codes[j*s.sub:(j+1)*s.sub], x[j*s.sub:], f.a[k], f.b[k])
		}
		q.Format.pack(p, codes[:s.elems])
	}
}

// part sets codes to those of one part.
func (q *Quantiser) part(codes []byte, x []float32, a, b float32) {
	x = x[:len(codes)]
	switch q.Format {
	case Q4_K, Q5_K, Q2_K, Q6_K, Q3_K:
		lo, hi := q.Format.bounds()
		if isFinite(a) && isFinite(b) {
			steps(codes, x, a, b, int64(lo), int64(hi))
			return
		}
		for i, x := range x {
			codes[i] = byte(round((x+b)/a, lo, hi) - int32(lo))
		}
	case IQ4_NL, IQ4_XS:
		for i, x := range x {
			codes[i] = tableCode(float32(x * a))
		}
	case MXFP4:
		for i, x := range x {
			codes[i] = e2m1(float32(x * a))
		}
	case Q8_0:
		for i, x := range x {
			codes[i] = away(float32(x * a))
		}
	default:
		_, hi := q.Format.bounds()
		for i, x := range x {
			codes[i] = byte(clamp(q.unrounded(x, a, b), 0, hi))
		}
	}
	if a != a {
		clear(codes)
	}
}

func isFinite(x float32) bool { return bits(x)<<1 < 0xff<<24 }

// steps are codes of what is divided, as round has them. All are numbers, and what comes of them is one, or
// infinite. So their bits compare as they do.
func steps(codes []byte, x []float32, a, b float32, lo, hi int64) {
	x = x[:len(codes)]
	for i, x := range x {
		n := int64(int32(bits((x+b)/a+magic))) - magicBits
		codes[i] = byte(min(max(n, lo), hi) - lo)
	}
}

// bounds are those of the numbers that codes stand for, or of the codes.
func (f Format) bounds() (lo, hi float32) {
	switch f {
	case Q6_K:
		return -32, 31
	case Q3_K:
		return -4, 3
	case Q8_0:
		return -128, 127
	}
	return 0, float32(int(1)<<shapes[f].bits - 1)
}

// unrounded is what the code of an element is rounded from. Of Q4_0, Q4_1, Q5_0 and Q5_1 it is cut off.
func (q *Quantiser) unrounded(x, a, b float32) float32 {
	switch q.Format {
	case Q4_K, Q5_K, Q2_K, Q6_K, Q3_K:
		return (x + b) / a
	case Q4_0:
		return q.sum(x, a, 8.5)
	case Q5_0:
		return q.sum(x, a, 16.5)
	case Q4_1, Q5_1:
		return q.sum(x-b, a, 0.5)
	}
	return float32(x * a)
}

// sum is x*a + c.
func (q *Quantiser) sum(x, a, c float32) float32 {
	if q.Variant == Fused {
		return fma(x, a, c)
	}
	return float32(x*a) + c
}

// clamp is v, at least lo and at most hi; lo of what is no number.
func clamp(v, lo, hi float32) float32 {
	if !(v > lo) {
		return lo
	}
	if v > hi {
		return hi
	}
	return v
}

// away rounds to a whole number, of two as near to that of the greater magnitude; to 0 what is none. What is
// added is the number before 0.5, since the sum may be rounded up.
func away(v float32) byte {
	const half = 0x3effffff
	if v != v {
		return 0
	}
	v = clamp(v, -128, 127)
	return byte(int32(v + math.Float32frombits(half|bits(v)&(1<<31))))
}

// table are the numbers that the codes of IQ4_NL and IQ4_XS stand for.
var table = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// above says, of a whole number n and n + 128, which is the first in table that is more.
var above = func() (above [256]uint8) {
	for i := range above {
		for above[i] < 15 && table[above[i]] <= float32(i-128) {
			above[i]++
		}
	}
	return above
}()

// tableCode is the code of the number in table that is nearest to v, of two as near the greater.
func tableCode(v float32) byte {
	if !(v > table[0]) {
		return 0
	}
	if v >= table[15] {
		return 15
	}
	n := int32(v)
	n += int32(bits(v-float32(n))) >> 31 // rounded down
	i := above[(n+128)&0xff] & 15
	before, after := bits(v-table[(i-1)&15]), bits(table[i]-v)
	return i - byte((before-after)>>31) // less 1 where before is less
}

// twiceE2M1 are twice the numbers of four bits that MXFP4 has, without their signs.
var twiceE2M1 = [8]float32{0, 1, 2, 3, 4, 6, 8, 12}

// e2m1 is the code of the number that is nearest to v, of two as near that of less magnitude; 0 has no sign.
// It is how many of the bounds between magnitudes v's is above: then the difference of their bits has a sign.
func e2m1(v float32) byte {
	m := bits(v) &^ (1 << 31)
	if m > 0xff<<23 {
		return 0
	}
	const t0, t1, t2, t3 = 0x3f000000, 0x3fc00000, 0x40200000, 0x40600000 // 0.5, 1.5, 2.5, 3.5
	const t4, t5, t6 = 0x40a00000, 0x40e00000, 0x41200000                 // 5, 7, 10
	n := (t0-m)>>31 + (t1-m)>>31 + (t2-m)>>31 + (t3-m)>>31 + (t4-m)>>31 + (t5-m)>>31 + (t6-m)>>31
	return byte(n | bits(v)>>28&8&-((0-n)>>31))
}
