package codec

import "ckptfs/cas/simd"

// Each function takes as much as there is in the largest blocks, the rest in smaller ones, and what is left
// one by one. Kernels in AVX-512 and AVX2 take blocks of 64 elements, or bytes of planes; those in SSE2 take
// 16.
const sseBlock = 16

func split2(p0, p1, src []byte, rot int) {
	if n := simd.Blocks(simd.AVX2, len(src)/2); n > 0 {
		k := n * simd.Block
		_, _ = p0[:k], p1[:k] // the kernels check nothing
		simd.Widest(split2AVX2, split2AVX512)(&src[0], &p0[0], &p1[0], n, uint64(rot))
		src, p0, p1 = src[2*k:], p0[k:], p1[k:]
	}
	n := len(src) / 2 / sseBlock
	if k := n * sseBlock; n > 0 {
		_, _ = p0[:k], p1[:k]
		split2SSE(&src[0], &p0[0], &p1[0], n, rot)
		src, p0, p1 = src[2*k:], p0[k:], p1[k:]
	}
	split2Portable(p0, p1, src, rot)
}

func merge2(dst, p0, p1 []byte, rot int) {
	if n := simd.Blocks(simd.AVX2, len(dst)/2); n > 0 {
		k := n * simd.Block
		_, _ = p0[:k], p1[:k] // the kernels check nothing
		simd.Widest(merge2AVX2, merge2AVX512)(&dst[0], &p0[0], &p1[0], n, uint64(rot))
		dst, p0, p1 = dst[2*k:], p0[k:], p1[k:]
	}
	n := len(dst) / 2 / sseBlock
	if k := n * sseBlock; n > 0 {
		_, _ = p0[:k], p1[:k]
		merge2SSE(&dst[0], &p0[0], &p1[0], n, rot)
		dst, p0, p1 = dst[2*k:], p0[k:], p1[k:]
	}
	merge2Portable(dst, p0, p1, rot)
}

func split4(p0, p1, p2, p3, src []byte, rot int) {
	if n := simd.Blocks(simd.AVX2, len(src)/4); n > 0 {
		k := n * simd.Block
		_, _, _, _ = p0[:k], p1[:k], p2[:k], p3[:k] // the kernels check nothing
		simd.Widest(split4AVX2, split4AVX512)(&src[0], &p0[0], &p1[0], &p2[0], &p3[0], n, uint64(rot))
		src, p0, p1, p2, p3 = src[4*k:], p0[k:], p1[k:], p2[k:], p3[k:]
	}
	n := len(src) / 4 / sseBlock
	if k := n * sseBlock; n > 0 {
		_, _, _, _ = p0[:k], p1[:k], p2[:k], p3[:k]
		split4SSE(&src[0], &p0[0], &p1[0], &p2[0], &p3[0], n, rot)
		src, p0, p1, p2, p3 = src[4*k:], p0[k:], p1[k:], p2[k:], p3[k:]
	}
	split4Portable(p0, p1, p2, p3, src, rot)
}

func merge4(dst, p0, p1, p2, p3 []byte, rot int) {
	if n := simd.Blocks(simd.AVX2, len(dst)/4); n > 0 {
		k := n * simd.Block
		_, _, _, _ = p0[:k], p1[:k], p2[:k], p3[:k] // the kernels check nothing
		simd.Widest(merge4AVX2, merge4AVX512)(&dst[0], &p0[0], &p1[0], &p2[0], &p3[0], n, uint64(rot))
		dst, p0, p1, p2, p3 = dst[4*k:], p0[k:], p1[k:], p2[k:], p3[k:]
	}
	n := len(dst) / 4 / sseBlock
	if k := n * sseBlock; n > 0 {
		_, _, _, _ = p0[:k], p1[:k], p2[:k], p3[:k]
		merge4SSE(&dst[0], &p0[0], &p1[0], &p2[0], &p3[0], n, rot)
		dst, p0, p1, p2, p3 = dst[4*k:], p0[k:], p1[k:], p2[k:], p3[k:]
	}
	merge4Portable(dst, p0, p1, p2, p3, rot)
}

func split8(p *[8][]byte, src []byte, rot int) {
	n := mergeBlocks(len(src), 8, p)
	if k := n * simd.Block; n > 0 {
		split8AVX2(&src[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], &p[4][0], &p[5][0], &p[6][0], &p[7][0], n,
			uint64(rot))
		rest := from(p, 8, k)
		src, p = src[8*k:], &rest
	}
	split8Portable(p, src, rot)
}

func merge8(dst []byte, p *[8][]byte, rot int) {
	n := mergeBlocks(len(dst), 8, p)
	if k := n * simd.Block; n > 0 {
		merge8AVX2(&dst[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], &p[4][0], &p[5][0], &p[6][0], &p[7][0], n,
			uint64(rot))
		rest := from(p, 8, k)
		dst, p = dst[8*k:], &rest
	}
	merge8Portable(dst, p, rot)
}

// diff is diffPortable.
func diff(d, a, base []byte, w int, floats bool) {
	n := len(a) / 16
	if k := 16 * n; n > 0 && (w == 2 || w == 4) {
		_, _ = d[:k], base[:k]
		if w == 2 {
			diff2SSE(&d[0], &a[0], &base[0], n, mask(floats))
		} else {
			diff4SSE(&d[0], &a[0], &base[0], n, mask(floats))
		}
		d, a, base = d[k:], a[k:], base[k:]
	}
	diffPortable(d, a, base, w, floats)
}

// undiff is undiffPortable.
func undiff(d, base []byte, w int, floats bool) {
	n := len(d) / 16
	if k := 16 * n; n > 0 && (w == 2 || w == 4) {
		_ = base[:k]
		if w == 2 {
			undiff2SSE(&d[0], &d[0], &base[0], n, mask(floats))
		} else {
			undiff4SSE(&d[0], &d[0], &base[0], n, mask(floats))
		}
		d, base = d[k:], base[k:]
	}
	undiffPortable(d, base, w, floats)
}

// deltaBlocks is how many blocks the kernels of splitDiff and mergeUndiff take of n bytes. It checks that
// there is room.
func deltaBlocks(n, w int, p *[8][]byte, base []byte) int {
	k := mergeBlocks(n, w, p)
	_ = base[:k*simd.Block*w]
	return k
}

// mergeBlocks is how many blocks the kernels take of n bytes. It checks that their planes are as long.
func mergeBlocks(n, w int, p *[8][]byte) int {
	if w == 1 {
		return 0
	}
	k := simd.Blocks(simd.AVX2, n/w)
	for _, p := range p[:w] {
		_ = p[:k*simd.Block]
	}
	return k
}

// splitDiff is split of what diff makes of src and base. d has room for that.
func splitDiff(p *[8][]byte, d, src, base []byte, w int, floats bool) {
	n := deltaBlocks(len(src), w, p, base)
	switch {
	case n == 0:
	case w == 2:
		simd.Widest(splitDiff2AVX2, splitDiff2AVX512)(&src[0], &base[0], &p[0][0], &p[1][0], n, mask(floats))
	case w == 4:
		simd.Widest(splitDiff4AVX2, splitDiff4AVX512)(
			&src[0], &base[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], n, mask(floats))
	default:
		splitDiff8AVX2(&src[0], &base[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], &p[4][0], &p[5][0],
			&p[6][0], &p[7][0], n, mask(floats))
	}
	splitDiffPortable(p, d, src, base, w, n*simd.Block, floats)
}

// mergeUndiff is merge, then undiff.
func mergeUndiff(dst []byte, p *[8][]byte, base []byte, w int, floats bool) {
	n := deltaBlocks(len(dst), w, p, base)
	switch {
	case n == 0:
	case w == 2:
		simd.Widest(mergeUndiff2AVX2, mergeUndiff2AVX512)(
			&dst[0], &base[0], &p[0][0], &p[1][0], n, mask(floats))
	case w == 4:
		simd.Widest(mergeUndiff4AVX2, mergeUndiff4AVX512)(
			&dst[0], &base[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], n, mask(floats))
	default:
		mergeUndiff8AVX2(&dst[0], &base[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], &p[4][0], &p[5][0],
			&p[6][0], &p[7][0], n, mask(floats))
	}
	mergeUndiffPortable(dst, p, base, w, n*simd.Block, floats)
}

// same reports whether the first n bytes of want, whole elements, are what merge makes of p.
func same(want []byte, p *[8][]byte, w, rot int) (n int, ok bool) {
	n = mergeBlocks(len(want), w, p)
	switch {
	case n == 0:
		return 0, true
	case w == 2:
		ok = simd.Widest(same2AVX2, same2AVX512)(&want[0], &p[0][0], &p[1][0], n, uint64(rot))
	case w == 4:
		ok = simd.Widest(same4AVX2, same4AVX512)(
			&want[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], n, uint64(rot))
	default:
		ok = same8AVX2(&want[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], &p[4][0], &p[5][0], &p[6][0],
			&p[7][0], n, uint64(rot))
	}
	return n * simd.Block * w, ok
}

// sameUndiff is same for mergeUndiff.
func sameUndiff(want []byte, p *[8][]byte, base []byte, w int, floats bool) (n int, ok bool) {
	n = deltaBlocks(len(want), w, p, base)
	switch {
	case n == 0:
		return 0, true
	case w == 2:
		ok = simd.Widest(sameUndiff2AVX2, sameUndiff2AVX512)(
			&want[0], &base[0], &p[0][0], &p[1][0], n, mask(floats))
	case w == 4:
		ok = simd.Widest(sameUndiff4AVX2, sameUndiff4AVX512)(
			&want[0], &base[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], n, mask(floats))
	default:
		ok = sameUndiff8AVX2(&want[0], &base[0], &p[0][0], &p[1][0], &p[2][0], &p[3][0], &p[4][0], &p[5][0],
			&p[6][0], &p[7][0], n, mask(floats))
	}
	return n * simd.Block * w, ok
}
