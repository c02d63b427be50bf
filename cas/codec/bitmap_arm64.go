package codec

import "ckptfs/cas/simd"

// ones is onesPortable.
func ones(p []byte) int {
	n := 0
	if k := simd.Blocks(simd.NEON, len(p)); k > 0 {
		n, p = onesNEON(&p[0], k), p[k*simd.Block:]
	}
	return n + onesPortable(p)
}

// pack is packPortable.
func pack(dst, bitmap, p []byte) []byte {
	n := 0
	if k := simd.Blocks(simd.NEON, len(p)); k > 0 {
		_, _ = dst[len(p)+8:], bitmap[8*k-1] // the kernels check nothing
		n = packNEON(&dst[0], &bitmap[0], &p[0], k, &shuffles().compress[0][0])
		bitmap, p = bitmap[8*k:], p[64*k:]
	}
	return dst[:n+len(packPortable(dst[n:], bitmap, p))]
}

// union is unionPortable, from the first byte on.
func union(any, zero []byte, planes [][]byte) {
	k := simd.Blocks(simd.NEON, len(any))
	if k > 0 {
		var at [8]*byte
		for i, p := range planes {
			_ = p[64*k-1]
			at[i] = &p[0]
		}
		_ = zero[64*k-1]
		unionNEON(&any[0], &zero[0], &at[0], len(planes), k)
	}
	unionPortable(any, zero, planes, 64*k)
}

// scatter is scatterPortable.
func scatter(p, bitmap []byte, rest *[maxPlane + 8]byte) {
	n := 0
	if k := simd.Blocks(simd.NEON, len(p)); k > 0 {
		_, _ = bitmap[8*k-1], rest[:64*k+8]
		n = spreadNEON(&p[0], &bitmap[0], &rest[0], k, &shuffles().expand[0][0])
		bitmap, p = bitmap[8*k:], p[64*k:]
	}
	scatterPortable(p, bitmap, rest, n)
}

// onesNEON counts the bits that are set in blocks times 64 bytes.
//
//go:noescape
func onesNEON(p *byte, blocks int) (n int)

// packNEON undoes spreadNEON, and makes the bitmap. It writes up to 8 bytes past what it puts.
//
//go:noescape
func packNEON(dst, bitmap, src *byte, blocks int, compress *byte) (put int)

// unionNEON is unionPortable for blocks times 64 bytes of n planes.
//
//go:noescape
func unionNEON(any, zero *byte, planes **byte, n, blocks int)

// spreadNEON sets blocks times 64 bytes of dst to the next ones of src where bitmap has bits set, to zeros
// elsewhere. It reads up to 8 bytes past what it uses.
//
//go:noescape
func spreadNEON(dst, bitmap, src *byte, blocks int, expand *byte) (used int)
