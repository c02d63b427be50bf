package codec

import (
	"bytes"
	"errors"
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/half"
)

// Rounded is the number of what EncodeRounded makes: numbers of half precision that are those of the base, in
// single precision, rounded (package half). Nothing is stored but to which type, and what became of NaNs:
//
//	0  1  1: bfloat16, 2: binary16
//	1     nothing, if NaNs became what package half makes of them;
//	      or the 2 bytes that every NaN of the base became;
//	      or, as often as the base has NaNs, the 2 bytes that each became
//
// PyTorch makes 0xffff of a NaN in bfloat16, or on a GPU 0x7fff. Numbers that were rounded in another way are
// not stored so.
const Rounded byte = 5

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

// IsRounded reports whether raw, numbers as h says, is the rounding of base, numbers in single precision.
// Where base has NaNs raw may have anything.
func IsRounded(raw, base []byte, h Hint) bool {
	_, ok := nansOf(raw, base, roundedTo(h), nil)
	return ok
}

// nansOf appends to nans what raw has where base has NaNs, and reports whether all else in it is base,
// rounded. It appends nothing where the NaNs are what Rounded makes of them.
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

// EncodeRounded appends raw to dst as the rounding of base. It returns dst as it was and false unless it is
// that, NaNs aside, bit by bit.
func EncodeRounded(dst, raw, base []byte, h Hint) (out []byte, ok bool) {
	if len(raw) > cas.MaxChunk {
		return dst, false
	}
	to := roundedTo(h)
	nans, ok := nansOf(raw, base, to, nil)
	switch {
	case !ok:
		return dst, false
	case len(nans) == 0:
		return append(dst, byte(to)), true
	case len(nans) == 2 || bytes.Equal(nans[2:], nans[:len(nans)-2]):
		nans = nans[:2]
	case !pays(8*len(nans), len(raw)):
		return dst, false
	}
	return append(append(dst, byte(to)), nans...), true
}

// decodeRounded undoes EncodeRounded: it appends the rawLen bytes that stored and base stand for to dst,
// which must not lie in base. Its errors and bounds are those of Codec.Decode.
func decodeRounded(dst, stored, base []byte, rawLen int) ([]byte, error) {
	return decodeTo(dst, rawLen, "rounded", func(dst []byte) error {
		if len(stored) == 0 || rawLen%2 != 0 || len(base) != 2*rawLen {
			return fmt.Errorf("%d bytes from %d", rawLen, len(base))
		}
		to := half.Type(stored[0])
		if to != half.BF16 && to != half.F16 {
			return fmt.Errorf("rounded to type %d", to)
		}
		half.Round(dst, base, to)
		if nans := stored[1:]; len(nans) > 0 {
			return putNaNs(dst, base, nans)
		}
		return nil
	})
}

var errLonger = errors.New("longer than it should be")

// putNaNs sets what is NaN in base to nans: all to the first, if it is the only one.
func putNaNs(dst, base, nans []byte) error {
	if len(nans)%2 != 0 {
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
