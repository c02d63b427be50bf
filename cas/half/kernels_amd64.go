package half

import "ckptfs/cas/simd"

// Widen sets dst to the numbers that src begins with, of bfloat16.
func Widen(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	if n := len(dst) / 16; n > 0 && simd.Has(simd.AVX2) {
		simd.Widest(widenBF16AVX2, widenBF16AVX512)(&dst[0], &src[0], n)
		dst, src = dst[16*n:], src[32*n:]
	}
	widenPortable(dst, src)
}

// Round sets dst, of 2 bytes a number, to the numbers that src begins with, of 4 bytes each, rounded.
func Round(dst, src []byte, to Type) {
	kernel := simd.Widest(roundF16AVX2, roundF16AVX512)
	if to == BF16 {
		kernel = simd.Widest(roundBF16AVX2, roundBF16AVX512)
	}
	src = src[:2*len(dst)]
	for {
		n := simd.Blocks(simd.AVX2, len(src))
		if n > 0 {
			k := n - kernel(&dst[0], &src[0], n)
			dst, src, n = dst[k*simd.Block/2:], src[k*simd.Block:], n-k
		}
		if n == 0 {
			break
		}
		roundPortable(dst[:simd.Block/2], src, to) // with a NaN
		dst, src = dst[simd.Block/2:], src[simd.Block:]
	}
	roundPortable(dst, src, to)
}
