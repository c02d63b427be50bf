package quant

import (
	"math"

	"ckptfs/cas/half"
)

// greatest is the greatest number of a type.
func (f Format) greatest() float32 {
	if f == F8E4M3 {
		return 448
	}
	return 57344
}

// magnitudePortable is the greatest one of x, as bits, of those that are finite.
func magnitudePortable(x []float32) (top uint32) {
	for _, v := range x {
		if m := bits(v) &^ (1 << 31); m < 0xff<<23 {
			top = max(top, m)
		}
	}
	return top
}

func (q *Quantiser) f8Portable(codes []byte, x []float32, s float32) {
	s = q.factor8(s)
	x = x[:len(codes)]
	for i, x := range x {
		codes[i] = q.Format.round8(q.unrounded8(x, s))
	}
}

// factor8 is what unrounded8 divides or multiplies by.
func (q *Quantiser) factor8(s float32) float32 {
	switch q.Variant {
	case Times:
		return 1 / s
	case TimesBF16:
		return toBF16(1 / s)
	case Times127:
		return 127 / s
	}
	return s
}

// unrounded8 is what is rounded to the type.
func (q *Quantiser) unrounded8(x, s float32) float32 {
	switch q.Variant {
	case DivideBF16:
		return toBF16(x / s)
	case Times, Times127:
		return float32(x * s)
	case TimesBF16:
		return toBF16(float32(x * s))
	case DivideF16:
		return half.FromF16(f16(x / s))
	}
	return x / s
}

func toBF16(x float32) float32 { return half.FromBF16(half.ToBF16(bits(x))) }

// round8 rounds to the type, to the nearest, ties to even, after a clamp; what is none becomes 0.
func (f Format) round8(v float32) byte {
	// The mantissa keeps m bits. Numbers below the least normal one are counted in steps of the least there
	// is, by a sum in which that is the last bit.
	m, bias, top, small := uint32(3), uint32(7), bits(448), bits(0x1p14) // 2^(24-1-9)
	if f == F8E5M2 {
		m, bias, top, small = 2, 15, bits(57344), bits(0x1p7)
	}
	u := bits(v)
	sign := byte(u >> 24 & 0x80)
	u &^= 1 << 31
	switch {
	case u > 0xff<<23:
		return 0
	case u > top:
		u = top
	}
	if least := (128 - bias) << 23; u < least {
		return sign | byte(bits(math.Float32frombits(u)+math.Float32frombits(small))-small)
	}
	drop := 23 - m
	u += 1<<(drop-1) - 1 + u>>drop&1
	return sign | byte(u>>drop-(127-bias)<<m)
}

// value8 is the number of a code without its sign.
func (f Format) value8(code byte) float32 {
	m, bias := 3, 7
	if f == F8E5M2 {
		m, bias = 2, 15
	}
	code &= 0x7f
	exp, fraction := int(code>>m), float32(code&(1<<m-1))
	if exp == 0 {
		exp = 1
	} else {
		fraction += float32(int(1) << m)
	}
	return float32(fraction * math.Float32frombits(uint32(exp-bias-m+127)<<23))
}

// distance8 is distance for FP8: of two magnitudes.
func (f Format) distance8(v float32, code byte) (group int, up bool) {
	if v < 0 {
		v = -v
	}
	code &= 0x7f
	d := v - f.value8(code)
	at := code
	if d < 0 && code > 0 {
		at--
	}
	return groupOf(d / (f.value8(at+1) - f.value8(at)))
}
