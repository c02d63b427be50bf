// Package anchor has marks by which a tensor is known again: in another type, as a slice, joined with others,
// with its rows in another order, inside a flat buffer, slightly changed, or quantised. They are hashes of
// places that the numbers themselves choose: the least of all. The least of a part are among the least of the
// whole, so that nothing needs to be known of where the part lies.
//
// Elements are looked at as numbers of bfloat16: those of single precision and of binary16 are rounded to it,
// to the nearest, ties to even.
//
// # Windows
//
// A window is 8 successive elements, as 16 bytes a and b of 8, little-endian. Its order is the high half of
// (a^k1)*(b^k2), a product of 128 bits, xor its low half; the hash of it is the same with k3 and k4, and its
// highest 40 bits are the anchor. The order decides which are kept, the hash is what they are known by, so
// that anchors lie evenly among all numbers of 40 bits though they are the least. Windows in which fewer than
// 6 of the 7 neighbours differ are left out: zeros and steps are alike everywhere.
//
// A base (New) keeps the 62 least windows at multiples of 8 elements; a target (NewTarget) looks at all of
// its windows, and keeps as many as it is told to. One in eight of those is where its base looked. Rows do
// not matter: windows go on from one row to the next, where rows are not multiples of 8.
//
// # Groups
//
// What is quantised has no number in common with its base. Groups are known by the places and signs of the
// three greatest magnitudes in 1024 successive elements of a row (512 or 256 where rows are shorter, 1024 of
// all where they are shorter still), the first ones of equal magnitudes. The first group of every four of a
// row is looked at, in a base and in a target, as far as it is whole. Places and signs, of 16 bits each, in
// the order of the places, are hashed as the windows are. A base keeps the 16 least. Groups of 256 everywhere
// would not tell a million tensors apart: of three among 256 places and signs there are 2^24, of 1024 there
// are 2^30.
//
// Blocks are dequantised first (blocks.go), with the scales that they have in themselves; numbers of FP8 are
// taken as they are, since in most tensors a row has one scale.
package anchor

import (
	"math"
	"math/bits"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
)

// Kind is what an anchor is a hash of.
type Kind byte

// The kinds.
const (
	Windows Kind = iota
	Groups

	kinds = 2
)

// How many anchors a base keeps of each kind.
const (
	BaseWindows = 62
	BaseGroups  = 16
)

// MinElements is how many elements a tensor has at least for it to have anchors.
const MinElements = 32 << 10

// Key is an anchor, a number of 40 bits. Those of different kinds are different.
type Key uint64

// KeyBits is how many bits a Key has.
const KeyBits = 40

const (
	width = 8 // elements of a window

	k1 = 0x9e3779b97f4a7c15
	k2 = 0xbf58476d1ce4e5b9
	k3 = 0x94d049bb133111eb
	k4 = 0xd6e8feb86659fd93
)

// order is what the marks of 16 bytes are sorted by.
func order(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^k1, b^k2)
	return hi ^ lo
}

// keyOf is the anchor of 16 bytes.
func keyOf(a, b uint64) Key {
	hi, lo := bits.Mul64(a^k3, b^k4)
	return Key((hi ^ lo) >> (64 - KeyBits))
}

// Numbers say how the bytes of a tensor are numbers.
type Numbers struct {
	size   int          // bytes of an element; 0: of blocks
	float  byte         // one of the types below
	format quant.Format // of blocks, and FP8
}

const (
	bf16 byte = 1 + iota
	f16
	f32
)

// NumbersOf are those of a type of elements, as formats name it; ok is false where it has no anchors.
func NumbersOf(dtype string) (n Numbers, ok bool) {
	switch dtype {
	case "BF16":
		return Numbers{size: 2, float: bf16}, true
	case "F16":
		return Numbers{size: 2, float: f16}, true
	case "F32":
		return Numbers{size: 4, float: f32}, true
	}
	f, ok := quant.ByName(dtype)
	return Numbers{format: f}, ok
}

// Quantised reports whether there are groups only.
func (n Numbers) Quantised() bool { return n.float == 0 }

// block is how many elements there are in so many bytes.
func (n Numbers) block() (elems, size int64) {
	if n.size > 0 {
		return 1, int64(n.size)
	}
	e, s := n.format.Block()
	return int64(e), int64(s)
}

// AsBF16 are the elements of p, numbers that are not quantised, as bfloat16. They are in buf, which has room
// for them, where they are not bfloat16 already.
func (n Numbers) AsBF16(buf, p []byte) []byte {
	switch n.float {
	case bf16:
		return p[:len(p)/2*2]
	case f32:
		p = p[:len(p)/4*4]
		buf = buf[:len(p)/2]
		half.Round(buf, p, half.BF16)
	case f16:
		p = p[:len(p)/2*2]
		buf = buf[:len(p)]
		fromF16(buf, p)
	}
	return buf
}

const (
	ones  = 0x0001000100010001 // in each of four numbers of 16 bits
	signs = 0x8000 * ones
)

// fromF16 rounds numbers of binary16, four at a time where all of these are normal: of the mantissa seven
// bits stay, of ten, and the bias becomes 127, which was 15.
func fromF16(dst, src []byte) {
	i := 0
	for ; i+8 <= len(src); i += 8 {
		h := le.Uint64(src[i:])
		m := h &^ signs
		if (m+0x0400*ones)&signs != 0 || (m+0x7c00*ones)&signs != signs {
			rounded(dst[i:i+8], src[i:])
			continue
		}
		m = (m+3*ones+m>>3&ones)>>3&(0x1fff*ones) + 112<<7*ones
		le.PutUint64(dst[i:], m|h&signs)
	}
	rounded(dst[i:], src[i:])
}

// rounded is fromF16, one at a time.
func rounded(dst, src []byte) {
	for i := 0; i+2 <= len(dst); i += 2 {
		le.PutUint16(dst[i:], half.ToBF16(math.Float32bits(half.FromF16(le.Uint16(src[i:])))))
	}
}
