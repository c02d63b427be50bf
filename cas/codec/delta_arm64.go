package codec

import "ckptfs/cas/simd"

// diff is diffPortable.
func diff(d, a, base []byte, w int, floats bool) {
	n := simd.Blocks(simd.NEON, len(a))
	if k := n * simd.Block; n > 0 && (w == 2 || w == 4) {
		_, _ = d[:k], base[:k] // the kernels check nothing
		if w == 2 {
			diff2NEON(&d[0], &a[0], &base[0], n, mask(floats))
		} else {
			diff4NEON(&d[0], &a[0], &base[0], n, mask(floats))
		}
		d, a, base = d[k:], a[k:], base[k:]
	}
	diffPortable(d, a, base, w, floats)
}

// undiff is undiffPortable.
func undiff(d, base []byte, w int, floats bool) {
	n := simd.Blocks(simd.NEON, len(d))
	if k := n * simd.Block; n > 0 && (w == 2 || w == 4) {
		_ = base[:k] // the kernels check nothing
		if w == 2 {
			undiff2NEON(&d[0], &d[0], &base[0], n, mask(floats))
		} else {
			undiff4NEON(&d[0], &d[0], &base[0], n, mask(floats))
		}
		d, base = d[k:], base[k:]
	}
	undiffPortable(d, base, w, floats)
}

// diff2NEON sets blocks times 64 bytes of dst to the zigzag-coded differences of a and base, elements of 2
// bytes. floats has all bits set for floats and none for integers.
//
//go:noescape
func diff2NEON(dst, a, base *byte, blocks int, floats uint64)

// diff4NEON is diff2NEON for 4 bytes.
//
//go:noescape
func diff4NEON(dst, a, base *byte, blocks int, floats uint64)

// undiff2NEON undoes diff2NEON: dst may be a.
//
//go:noescape
func undiff2NEON(dst, a, base *byte, blocks int, floats uint64)

// undiff4NEON is undiff2NEON for 4 bytes.
//
//go:noescape
func undiff4NEON(dst, a, base *byte, blocks int, floats uint64)
