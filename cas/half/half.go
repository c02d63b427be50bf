// Package half rounds numbers of single precision to half precision, and back.
//
// Rounding is to the nearest, ties to even (IEEE 754 section 4.3.1). Infinities stay what they are, and what
// is too large becomes one. Subnormal numbers are rounded as others are. A NaN becomes 0x7fc0 in bfloat16. In
// binary16 it becomes quiet, and keeps its sign and the upper bits of its payload, as the processors' F16C
// has it.
package half

import (
	"encoding/binary"
	"math"
)

// Type is a type of half precision. The numbers are part of stored formats.
type Type byte

// The types: eight bits of exponent and seven of mantissa, or five and ten.
const (
	BF16 Type = 1
	F16  Type = 2
)

var le = binary.LittleEndian

// IsNaN reports whether a number of single precision with the bits x is none.
func IsNaN(x uint32) bool { return x&0x7fffffff > 0x7f800000 }

// roundPortable sets dst, of 2 bytes a number, to the numbers that src begins with, of 4 bytes each, rounded.
func roundPortable(dst, src []byte, to Type) {
	one := ToF16
	if to == BF16 {
		one = ToBF16
	}
	for i := 0; i+2 <= len(dst); i += 2 {
		le.PutUint16(dst[i:], one(le.Uint32(src[2*i:])))
	}
}

// widenPortable sets dst to the numbers that src begins with, of bfloat16.
func widenPortable(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 { // four in a load
		v, d := le.Uint64(src), dst[:4]
		d[0] = math.Float32frombits(uint32(v) << 16)
		d[1] = math.Float32frombits(uint32(v) &^ 0xffff)
		d[2] = math.Float32frombits(uint32(v>>32) << 16)
		d[3] = math.Float32frombits(uint32(v>>32) &^ 0xffff)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = FromBF16(le.Uint16(src[2*i:]))
	}
}

// ToBF16 rounds a number of single precision with the bits x to bfloat16.
func ToBF16(x uint32) uint16 {
	if IsNaN(x) {
		return 0x7fc0
	}
	return uint16((x + 0x7fff + x>>16&1) >> 16)
}

// ToF16 rounds a number of single precision with the bits x to binary16. The exponents 1 to 30 of binary16
// come of moving the bias from 127 to 15; smaller numbers are counted in steps of 2^-24.
func ToF16(x uint32) uint16 {
	sign := uint16(x >> 16 & 0x8000)
	x &= 0x7fffffff
	switch {
	case x > 0x7f800000:
		return sign | 0x7e00 | uint16(x>>13&0x3ff)
	case x >= 0x47800000: // 2^16 and more
		return sign | 0x7c00
	case x >= 0x38800000: // 2^-14 and more; a carry goes into the exponent, at last that of infinity
		x -= (127 - 15) << 23
		return sign | uint16((x+0xfff+x>>13&1)>>13)
	case x < 0x33000000: // less than 2^-25
		return sign
	}
	exp := x >> 23
	m := x&0x7fffff | 0x800000
	shift := 126 - exp // of the mantissa, so that its lowest bit is 2^-24; 14 to 24
	half := uint32(1) << (shift - 1)
	return sign | uint16((m+half-1+m>>shift&1)>>shift)
}

// FromBF16 is the number h of bfloat16.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// FromF16 is the number h of binary16.
func FromF16(h uint16) float32 {
	sign, exp, m := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&0x3ff)
	switch exp {
	case 0:
		return math.Float32frombits(sign | math.Float32bits(float32(m)*0x1p-24))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | m<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | m<<13)
}
