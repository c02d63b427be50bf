package half

import "ckptfs/cas/simd"

// Widen sets dst to the numbers that src begins with, of bfloat16.
func Widen(dst []float32, src []byte) { widenPortable(dst, src[:2*len(dst)]) }

// Round sets dst, of 2 bytes a number, to the numbers that src begins with, of 4 bytes each, rounded.
func Round(dst, src []byte, to Type) {
	src = src[:2*len(dst)]
	if n := simd.Blocks(simd.NEON, len(src)); n > 0 {
		if to == BF16 {
			roundBF16NEON(&dst[0], &src[0], n)
		} else {
			roundF16NEON(&dst[0], &src[0], n)
		}
		dst, src = dst[n*simd.Block/2:], src[n*simd.Block:]
	}
	roundPortable(dst, src, to)
}

// roundBF16NEON sets 32 bytes of dst for each block of 64 of src, rounded to bfloat16.
//
//go:noescape
func roundBF16NEON(dst, src *byte, blocks int)

// roundF16NEON sets 32 bytes of dst for each block of 64 of src, rounded to binary16.
//
//go:noescape
func roundF16NEON(dst, src *byte, blocks int)
