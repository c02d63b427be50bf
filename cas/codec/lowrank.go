package codec

import (
	"fmt"

	"ckptfs/cas"
)

// LowRank is the number of what EncodeLowRank makes: numbers against a base to which the product of two factors is added first.
const LowRank byte = 11

// MaxRank is the most columns' factors that a tensor has.
const MaxRank = 64

// Stretch is a chunk of a tensor, and what the tensor that it may be stored against has there. At is the index in the tensor of the first element.
type Stretch struct {
	Raw, Base []byte
	At        int64
}

// ColumnsHint is what the content of a record that FactorColumns makes is, for Encode.
func ColumnsHint(h Hint) Hint {
	if h.DType == "F32" {
		return Hint{DType: "I32", Elem: 4}
	}
	return Hint{DType: "I16", Elem: 2}
}

// MayBeLowRank tells cheaply from some stretches of a tensor whether the difference is of low rank enough to pay.
func MayBeLowRank(s []Stretch, cols int, h Hint) bool { return false }

// FactorColumns makes the columns' factor from stretches, the content of a record; ok is false when it would not pay.
func FactorColumns(s []Stretch, cols int, h Hint) (columns []byte, ok bool) { return nil, false }

// EncodeLowRank appends raw to dst against base and what columns predict of the difference. It returns dst as it was and false unless that takes at
// most the given number of bytes. What was encoded has been decoded again and compared.
func EncodeLowRank(dst, raw, base, columns []byte, cols int, at int64, h Hint, most int) (out []byte, ok bool) {
	return dst, false
}

// DecodeLowRank undoes EncodeLowRank: it appends the rawLen bytes that stored, base and columns stand for to dst, which must lie in none of them.
// Its errors and bounds are those of Codec.Decode.
func DecodeLowRank(dst, stored, base, columns []byte, rawLen int) ([]byte, error) {
	return dst, fmt.Errorf("low rank: %w", cas.ErrCorrupt)
}
