//go:build amd64 || arm64

package codec

// mask has all bits set, or none, as the kernels take a bool.
func mask(on bool) uint64 {
	if on {
		return ^uint64(0)
	}
	return 0
}
