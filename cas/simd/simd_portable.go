//go:build !amd64

package simd

// Wide reports whether the kernels in AVX-512 run: never here.
var Wide = false
