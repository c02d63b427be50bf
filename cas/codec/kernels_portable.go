//go:build !amd64

package codec

func splitDiff(p *[8][]byte, d, src, base []byte, w int, floats bool) {
	splitDiffPortable(p, d, src, base, w, 0, floats)
}

func mergeUndiff(dst []byte, p *[8][]byte, base []byte, w int, floats bool) {
	mergeUndiffPortable(dst, p, base, w, 0, floats)
}

func sameUndiff(want []byte, p *[8][]byte, base []byte, w int, floats bool) (n int, ok bool) {
	return 0, true
}
