package half

import "ckptfs/cas/simd"

// Round sets dst, of 2 bytes a number, to the numbers that src begins with, of 4 bytes each, rounded.
func Round(dst, src []byte, to Type) {
	kernel := kernelOf(to)
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

// kernelOf is the kernel that rounds to a type, where one runs.
func kernelOf(to Type) func(dst, src *byte, blocks int) (left int) {
	switch {
	case simd.Has(simd.AVX512) && to == BF16:
		return roundBF16AVX512
	case simd.Has(simd.AVX512):
		return roundF16AVX512
	case to == BF16:
		return roundBF16AVX2
	}
	return roundF16AVX2
}
