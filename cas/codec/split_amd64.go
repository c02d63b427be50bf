package codec

// simdBlock is how many elements the kernels take at once.
const simdBlock = 16

func split2(p0, p1, src []byte, rot int) {
	n := len(src) / 2 / simdBlock
	if k := n * simdBlock; n > 0 {
		_, _ = p0[:k], p1[:k] // the kernels check nothing
		split2SSE(&src[0], &p0[0], &p1[0], n, rot)
		src, p0, p1 = src[2*k:], p0[k:], p1[k:]
	}
	split2Portable(p0, p1, src, rot)
}

func merge2(dst, p0, p1 []byte, rot int) {
	n := len(dst) / 2 / simdBlock
	if k := n * simdBlock; n > 0 {
		_, _ = p0[:k], p1[:k]
		merge2SSE(&dst[0], &p0[0], &p1[0], n, rot)
		dst, p0, p1 = dst[2*k:], p0[k:], p1[k:]
	}
	merge2Portable(dst, p0, p1, rot)
}

func split4(p0, p1, p2, p3, src []byte, rot int) {
	n := len(src) / 4 / simdBlock
	if k := n * simdBlock; n > 0 {
		_, _, _, _ = p0[:k], p1[:k], p2[:k], p3[:k]
		split4SSE(&src[0], &p0[0], &p1[0], &p2[0], &p3[0], n, rot)
		src, p0, p1, p2, p3 = src[4*k:], p0[k:], p1[k:], p2[k:], p3[k:]
	}
	split4Portable(p0, p1, p2, p3, src, rot)
}

func merge4(dst, p0, p1, p2, p3 []byte, rot int) {
	n := len(dst) / 4 / simdBlock
	if k := n * simdBlock; n > 0 {
		_, _, _, _ = p0[:k], p1[:k], p2[:k], p3[:k]
		merge4SSE(&dst[0], &p0[0], &p1[0], &p2[0], &p3[0], n, rot)
		dst, p0, p1, p2, p3 = dst[4*k:], p0[k:], p1[k:], p2[k:], p3[k:]
	}
	merge4Portable(dst, p0, p1, p2, p3, rot)
}
