package codec

import (
	"bytes"
	"fmt"

	"ckptfs/cas"
)

// Rounded is the number of what EncodeRounded makes: half-precision numbers that are those of the base, in single precision,
// each rounded to the nearest, ties to even (IEEE 754 section 4.3.1). Nothing is stored but to which type:
//
//	0  1  1: bfloat16, 2: binary16
//
// Infinities stay what they are, and what is too large becomes one; subnormal numbers are rounded as others are. A NaN
// becomes 0x7fc0 in bfloat16; in binary16 it is quiet, and keeps its sign and the upper bits of its payload, as F16C has it. Numbers
// that were rounded in another way are not stored so.
const Rounded byte = 7

const (
	toBF16 = 1
	toF16  = 2
)

// roundedTo is the type of h as Rounded has it; 0: it is none.
func roundedTo(h Hint) byte {
	switch h.DType {
	case "BF16":
		return toBF16
	case "F16":
		return toF16
	}
	return 0
}

// MayBeRounded reports whether numbers of that type can be the rounding of others.
func MayBeRounded(h Hint) bool { return roundedTo(h) != 0 }

// IsRounded reports whether raw, numbers as h says, is the rounding of base, numbers in single precision.
func IsRounded(raw, base []byte, h Hint) bool {
	to := roundedTo(h)
	if to == 0 || len(raw) == 0 || len(raw)%2 != 0 || len(base) != 2*len(raw) {
		return false
	}
	var buf [4096]byte
	for at := 0; at < len(raw); at += len(buf) {
		part := raw[at:min(at+len(buf), len(raw))]
		round(buf[:len(part)], base[2*at:], to)
		if !bytes.Equal(buf[:len(part)], part) {
			return false
		}
	}
	return true
}

// EncodeRounded appends raw to dst as the rounding of base. It returns dst as it was and false unless it is that, bit by bit.
func EncodeRounded(dst, raw, base []byte, h Hint) ([]byte, bool) {
	if len(raw) > cas.MaxChunk || !IsRounded(raw, base, h) {
		return dst, false
	}
	return append(dst, roundedTo(h)), true
}

// DecodeRounded undoes EncodeRounded: it appends the rawLen bytes that stored and base stand for to dst, which must not lie in
// base. Its errors and bounds are those of Codec.Decode.
func DecodeRounded(dst, stored, base []byte, rawLen int) ([]byte, error) {
	if len(stored) != 1 || stored[0] != toBF16 && stored[0] != toF16 || rawLen%2 != 0 || len(base) != 2*rawLen {
		return dst, fmt.Errorf("rounded: %d bytes from %d: %w", rawLen, len(base), cas.ErrCorrupt)
	}
	d, err := grow(dst, rawLen)
	if err != nil {
		return dst, fmt.Errorf("rounded: %w", err)
	}
	n := len(d)
	d = d[:n+rawLen]
	round(d[n:], base, stored[0])
	return d, nil
}

// round sets dst to the first of src, rounded.
func round(dst, src []byte, to byte) {
	src = src[:2*len(dst)]
	if to == toBF16 {
		for ; len(dst) >= 8 && len(src) >= 16; dst, src = dst[8:], src[16:] {
			x, y := le.Uint64(src), le.Uint64(src[8:])
			if (x&magnitudes+aboveInf|y&magnitudes+aboveInf)&^magnitudes != 0 { // a NaN
				for i := range 4 {
					le.PutUint16(dst[2*i:], bf16(le.Uint32(src[4*i:])))
				}
				continue
			}
			x += 0x00007fff_00007fff + x>>16&0x00000001_00000001
			y += 0x00007fff_00007fff + y>>16&0x00000001_00000001
			le.PutUint64(dst, x>>16&0xffff|x>>32&0xffff0000|(y>>16&0xffff|y>>32&0xffff0000)<<32)
		}
		for i := 0; i+2 <= len(dst); i += 2 {
			le.PutUint16(dst[i:], bf16(le.Uint32(src[2*i:])))
		}
		return
	}
	for i := 0; i+2 <= len(dst); i += 2 {
		le.PutUint16(dst[i:], f16(le.Uint32(src[2*i:])))
	}
}

// Of two numbers in single precision: all but the signs, and what carries into these where there is a NaN.
const (
	magnitudes = 0x7fffffff_7fffffff
	aboveInf   = 0x007fffff_007fffff
)

func bf16(x uint32) uint16 {
	if x&0x7fffffff > 0x7f800000 {
		return 0x7fc0
	}
	return uint16((x + 0x7fff + x>>16&1) >> 16)
}

// f16 takes the exponents 1 to 30 of binary16 by moving the bias from 127 to 15, and counts what is smaller in steps of 2^-24.
func f16(x uint32) uint16 {
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
