package codec

import (
	"bytes"
	"errors"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/half"
)

// Rounded is the number of what EncodeRounded makes: half-precision numbers that are those of the base, in single precision,
// each rounded to the nearest, ties to even (IEEE 754 section 4.3.1). Nothing is stored but to which type:
//
//	0  1  1: bfloat16, 2: binary16
//
// Infinities stay what they are, and what is too large becomes one; subnormal numbers are rounded as others are. A NaN
// becomes 0x7fc0 in bfloat16; in binary16 it is quiet, and keeps its sign and the upper bits of its payload, as F16C has it.
//
// RoundedNaNs is the number of what has NaNs that became something else: PyTorch makes 0xffff of them in bfloat16, or on a GPU
// 0x7fff. It is stored as
//
//	0  1  1: bfloat16, 2: binary16
//	1  2  what every NaN of the base becomes; or, as often as it has NaNs, what each becomes
//
// Numbers that were rounded in another way are not stored so.
const (
	Rounded     byte = 7
	RoundedNaNs byte = 8
)

// roundedTo is the type of h as Rounded has it; 0: it is none.
func roundedTo(h Hint) half.Type {
	switch h.DType {
	case "BF16":
		return half.BF16
	case "F16":
		return half.F16
	}
	return 0
}

// MayBeRounded reports whether numbers of that type can be the rounding of others.
func MayBeRounded(h Hint) bool { return roundedTo(h) != 0 }

// IsRounding reports whether codec id stores the rounding of a base that is twice as long.
func IsRounding(id byte) bool { return id == Rounded || id == RoundedNaNs }

// IsRounded reports whether raw, numbers as h says, is the rounding of base, numbers in single precision; of NaNs it may have
// what it will.
func IsRounded(raw, base []byte, h Hint) bool {
	_, ok := nansOf(raw, base, roundedTo(h), nil)
	return ok
}

// nansOf appends to nans what raw has where base has NaNs, and reports whether all else in it is base, rounded. It appends
// nothing where the NaNs are what Rounded makes of them.
func nansOf(raw, base []byte, to half.Type, nans []byte) (_ []byte, ok bool) {
	if to == 0 || len(raw) == 0 || len(raw)%2 != 0 || len(base) != 2*len(raw) {
		return nans, false
	}
	var buf [4096]byte
	usual := true
	for at := 0; at < len(raw); at += len(buf) {
		part := raw[at:min(at+len(buf), len(raw))]
		half.Round(buf[:len(part)], base[2*at:], to)
		if usual && bytes.Equal(buf[:len(part)], part) {
			continue
		}
		if usual { // so far
			usual = false
			nans = appendNaNs(nans, raw[:at], base)
		}
		nans = appendNaNs(nans, part, base[2*at:])
		for i := 0; i < len(part); i += 2 {
			if (buf[i] != part[i] || buf[i+1] != part[i+1]) && !half.IsNaN(le.Uint32(base[2*(at+i):])) {
				return nans, false
			}
		}
	}
	return nans, true
}

// appendNaNs appends what raw has where base has NaNs.
func appendNaNs(nans, raw, base []byte) []byte {
	for i := 0; i < len(raw); i += 2 {
		if half.IsNaN(le.Uint32(base[2*i:])) {
			nans = append(nans, raw[i], raw[i+1])
		}
	}
	return nans
}

// EncodeRounded appends raw to dst as the rounding of base. It returns dst as it was and false unless it is that, NaNs aside,
// bit by bit.
func EncodeRounded(dst, raw, base []byte, h Hint) (id byte, out []byte, ok bool) {
	if len(raw) > cas.MaxChunk {
		return 0, dst, false
	}
	to := roundedTo(h)
	nans, ok := nansOf(raw, base, to, nil)
	switch {
	case !ok:
		return 0, dst, false
	case len(nans) == 0:
		return Rounded, append(dst, byte(to)), true
	case len(nans) == 2 || bytes.Equal(nans[2:], nans[:len(nans)-2]):
		nans = nans[:2]
	case !pays(8*len(nans), len(raw)):
		return 0, dst, false
	}
	return RoundedNaNs, append(append(dst, byte(to)), nans...), true
}

// decodeRounded undoes EncodeRounded: it appends the rawLen bytes that stored, by codec id, and base stand for to dst, which must
// not lie in base. Its errors and bounds are those of Codec.Decode.
func decodeRounded(dst []byte, id byte, stored, base []byte, rawLen int) ([]byte, error) {
	return decodeTo(dst, rawLen, "rounded", func(dst []byte) error {
		if len(stored) == 0 || rawLen%2 != 0 || len(base) != 2*rawLen {
			return fmt.Errorf("%d bytes from %d", rawLen, len(base))
		}
		to := half.Type(stored[0])
		if to != half.BF16 && to != half.F16 {
			return fmt.Errorf("rounded to type %d", to)
		}
		half.Round(dst, base, to)
		if nans := stored[1:]; id == RoundedNaNs {
			return putNaNs(dst, base, nans)
		} else if len(nans) > 0 {
			return errLonger
		}
		return nil
	})
}

var errLonger = errors.New("longer than it should be")

// putNaNs sets what is NaN in base to nans: all to the first, if it is the only one.
func putNaNs(dst, base, nans []byte) error {
	if len(nans) == 0 || len(nans)%2 != 0 {
		return errEnds
	}
	all := len(nans) == 2
	for i := 0; i < len(dst); i += 2 {
		if !half.IsNaN(le.Uint32(base[2*i:])) {
			continue
		}
		if len(nans) == 0 {
			return errEnds
		}
		if copy(dst[i:i+2], nans); !all {
			nans = nans[2:]
		}
	}
	if !all && len(nans) > 0 {
		return errLonger
	}
	return nil
}
