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

func mask(on bool) uint64 {
	if on {
		return ^uint64(0)
	}
	return 0
}
