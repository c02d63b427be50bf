//go:build !amd64 && !arm64

package half

// Widen sets dst to the numbers that src begins with, of bfloat16.
func Widen(dst []float32, src []byte) { widenPortable(dst, src[:2*len(dst)]) }

// Round sets dst, of 2 bytes a number, to the numbers that src begins with, of 4 bytes each, rounded.
func Round(dst, src []byte, to Type) { roundPortable(dst, src, to) }
