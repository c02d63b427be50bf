//go:build !amd64 && !arm64

package half

// Round sets dst, of 2 bytes a number, to the numbers that src begins with, of 4 bytes each, rounded.
func Round(dst, src []byte, to Type) { roundPortable(dst, src, to) }
