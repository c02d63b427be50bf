// Package blake3 is BLAKE3-256, without key.
//
// The library does it eight blocks at a time (AVX2), of one input. Here sixteen are compressed at a time
// (AVX-512), or eight and eight (AVX2), of one input or of many: with AVX2 only many short ones gain by it.
// What is specified is the same. BLAKE3 cuts its input into chunks of 1 KiB, compresses each to 32 bytes, and
// each pair of such to 32 bytes again, what has no neighbour going up as it is, up to the root:
//
//	sixteen chunks    up to 16 blocks each, one after the other, in sixteen lanes
//	a level           pairs of 32 bytes side by side are blocks of 64 bytes, those of all inputs in turn
//
// A lane that ends earlier than others is written out when it does.
//
// Source: J. O'Connor, J.-P. Aumasson, S. Neves, Z. Wilcox-O'Hearn: BLAKE3, one function, fast everywhere
// (2020).
package blake3

import (
	"io"
	"sync"

	"github.com/zeebo/blake3"
)

// Sum is the hash of p.
func Sum(p []byte) (sum [32]byte) {
	if sumWide(&sum, p) {
		return sum
	}
	return blake3.Sum256(p)
}

// SumAll sets sums[i] to the hash of inputs[i]. That is faster than one at a time where they are short.
func SumAll[H ~[32]byte](sums []H, inputs [][]byte) {
	if sumWideAll(sums, inputs) {
		return
	}
	for i, p := range inputs {
		sums[i] = Sum(p)
	}
}

var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// SumReader is the hash of all that r gives, and how many bytes that is.
func SumReader(r io.Reader) (sum [32]byte, n int64, err error) {
	b, buf := blake3.New(), buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(buf)
	n, err = io.CopyBuffer(struct{ io.Writer }{b}, struct{ io.Reader }{r}, buf[:])
	b.Sum(sum[:0])
	return sum, n, err
}
