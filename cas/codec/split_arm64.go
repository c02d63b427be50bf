package codec

import "ckptfs/cas/simd"

// The kernels take blocks of 64 elements and the twins what is left.

func split2(p0, p1, src []byte, rot int) {
	if n := simd.Blocks(simd.NEON, len(src)/2); n > 0 {
		k := n * simd.Block
		_, _ = p0[:k], p1[:k] // the kernels check nothing
		split2NEON(&src[0], &p0[0], &p1[0], n, rot)
		src, p0, p1 = src[2*k:], p0[k:], p1[k:]
	}
	split2Portable(p0, p1, src, rot)
}

func merge2(dst, p0, p1 []byte, rot int) {
	if n := simd.Blocks(simd.NEON, len(dst)/2); n > 0 {
		k := n * simd.Block
		_, _ = p0[:k], p1[:k] // the kernels check nothing
		merge2NEON(&dst[0], &p0[0], &p1[0], n, rot)
		dst, p0, p1 = dst[2*k:], p0[k:], p1[k:]
	}
	merge2Portable(dst, p0, p1, rot)
}

func split4(p0, p1, p2, p3, src []byte, rot int) {
	if n := simd.Blocks(simd.NEON, len(src)/4); n > 0 {
		k := n * simd.Block
		_, _, _, _ = p0[:k], p1[:k], p2[:k], p3[:k] // the kernels check nothing
		split4NEON(&src[0], &p0[0], &p1[0], &p2[0], &p3[0], n, rot)
		src, p0, p1, p2, p3 = src[4*k:], p0[k:], p1[k:], p2[k:], p3[k:]
	}
	split4Portable(p0, p1, p2, p3, src, rot)
}

func merge4(dst, p0, p1, p2, p3 []byte, rot int) {
	if n := simd.Blocks(simd.NEON, len(dst)/4); n > 0 {
		k := n * simd.Block
		_, _, _, _ = p0[:k], p1[:k], p2[:k], p3[:k] // the kernels check nothing
		merge4NEON(&dst[0], &p0[0], &p1[0], &p2[0], &p3[0], n, rot)
		dst, p0, p1, p2, p3 = dst[4*k:], p0[k:], p1[k:], p2[k:], p3[k:]
	}
	merge4Portable(dst, p0, p1, p2, p3, rot)
}

func split8(p *[8][]byte, src []byte, rot int) { split8Portable(p, src, rot) }

func merge8(dst []byte, p *[8][]byte, rot int) { merge8Portable(dst, p, rot) }

// same reports whether the first n bytes of want, whole elements, are what merge makes of p.
func same(want []byte, p *[8][]byte, w, rot int) (n int, ok bool) {
	if w != 2 && w != 4 {
		return 0, true
	}
	k := simd.Blocks(simd.NEON, len(want)/w)
	if k == 0 {
		return 0, true
	}
	for _, p := range p[:w] {
		_ = p[:k*simd.Block] // the kernels check nothing
	}
	var differ uint64
	if w == 2 {
		differ = same2NEON(&want[0], &p[0][0], &p[1][0], k, rot)
	} else {
		differ = same4NEON(&want[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], k, rot)
	}
	return k * simd.Block * w, differ == 0
}

// split2NEON rotates blocks times 64 elements left by rot bits, 0 or 1, and takes them apart into planes.
//
//go:noescape
func split2NEON(src, p0, p1 *byte, blocks, rot int)

// split4NEON is split2NEON for 4 bytes.
//
//go:noescape
func split4NEON(src, p0, p1, p2, p3 *byte, blocks, rot int)

// merge2NEON makes blocks times 64 elements of their planes and rotates each right by rot bits, 0 or 1.
//
//go:noescape
func merge2NEON(dst, p0, p1 *byte, blocks, rot int)

// merge4NEON is merge2NEON for 4 bytes.
//
//go:noescape
func merge4NEON(dst, p0, p1, p2, p3 *byte, blocks, rot int)

// same2NEON is 0 if there are at want blocks times 64 elements of their planes, each rotated right by rot
// bits, 0 or 1.
//
//go:noescape
func same2NEON(want, p0, p1 *byte, blocks, rot int) (differ uint64)

// same4NEON is same2NEON for 4 bytes.
//
//go:noescape
func same4NEON(want, p0, p1, p2, p3 *byte, blocks, rot int) (differ uint64)
