package codec

import "ckptfs/cas/simd"

// ones is onesPortable.
func ones(p []byte) int {
	n := 0
	if k := simd.Blocks(simd.AVX2, len(p)); k > 0 {
		n, p = onesPOPCNT(&p[0], k), p[k*simd.Block:]
	}
	return n + onesPortable(p)
}

// pack is packPortable. It may write 63 more bytes of dst.
func pack(dst, bitmap, p []byte) []byte {
	n := 0
	if k := simd.Blocks(simd.AVX2, len(p)); k > 0 {
		_, _ = dst[len(p)+64:], bitmap[8*k-1] // the kernels check nothing
		n = simd.Widest(packAVX2, packAVX512)(&dst[0], &bitmap[0], &p[0], k)
		bitmap, p = bitmap[8*k:], p[64*k:]
	}
	return dst[:n+len(packPortable(dst[n:], bitmap, p))]
}

// union is unionPortable, from the first byte on.
func union(any, zero []byte, planes [][]byte) {
	k := simd.Blocks(simd.AVX2, len(any))
	if k > 0 {
		var at [8]*byte
		for i, p := range planes {
			_ = p[64*k-1]
			at[i] = &p[0]
		}
		_ = zero[64*k-1]
		if simd.Has(simd.AVX512) {
			unionAVX512(&any[0], &zero[0], &at[0], len(planes), k)
		} else {
			unionAVX2(&any[0], &zero[0], &at[0], len(planes), k)
		}
	}
	unionPortable(any, zero, planes, 64*k)
}

// scatter is scatterPortable.
func scatter(p, bitmap []byte, rest *[maxPlane + 8]byte) {
	n := 0
	if k := simd.Blocks(simd.AVX2, len(p)); k > 0 {
		_, _ = bitmap[8*k-1], rest[:64*k+8]
		n = simd.Widest(spreadAVX2, spreadAVX512)(&p[0], &bitmap[0], &rest[0], k)
		bitmap, p = bitmap[8*k:], p[64*k:]
	}
	scatterPortable(p, bitmap, rest, n)
}
