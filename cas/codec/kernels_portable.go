//go:build !amd64

package codec

func diff(d, a, base []byte, w int, floats bool) { diffPortable(d, a, base, w, floats) }

func undiff(d, base []byte, w int, floats bool) { undiffPortable(d, base, w, floats) }

func splitDiff(p *[8][]byte, d, src, base []byte, w int, floats bool) {
	splitDiffPortable(p, d, src, base, w, 0, floats)
}

func mergeUndiff(dst []byte, p *[8][]byte, base []byte, w int, floats bool) {
	mergeUndiffPortable(dst, p, base, w, 0, floats)
}

func sameUndiff(want []byte, p *[8][]byte, base []byte, w int, floats bool) (n int, ok bool) {
	return 0, true
}

func ones(p []byte) int { return onesPortable(p) }

func pack(dst, bitmap, p []byte) []byte { return packPortable(dst, bitmap, p) }

func union(any, zero []byte, planes [][]byte) { unionPortable(any, zero, planes, 0) }

func scatter(p, bitmap []byte, rest *[maxPlane + 8]byte) { scatterPortable(p, bitmap, rest, 0) }
