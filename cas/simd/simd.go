// Package simd says whether the kernels in AVX-512 run on this processor.
//
// Each package with kernels has the same functions in Go, their twins, which any other processor runs. A
// kernel takes whole blocks of 64 bytes; its twin takes what is left.
package simd

// Block is how many bytes a kernel takes at a time.
const Block = 64

// Blocks is how many whole blocks n bytes have that the kernels take: none where they do not run.
func Blocks(n int) int {
	if !Wide {
		return 0
	}
	return n / Block
}
