// Package blake3 is BLAKE3-256, without key.
//
// The library does it eight blocks at a time (AVX2). Where the processor has AVX-512 inputs of 16 KiB times a power of two,
// and a full chunk of the grid is one, are hashed sixteen blocks at a time; what is specified is the same. BLAKE3 cuts its
// input into chunks of 1 KiB, compresses each to 32 bytes, and each pair of such to 32 bytes again, up to the root. In an
// input of a power of two chunks all pairs of one level are alike, so the levels are sixteen blocks at a time as well:
//
//	16 chunks of 1 KiB    16 blocks, one after the other, in sixteen lanes
//	a level of the tree   pairs of 32 bytes side by side are blocks of 64 bytes
//
// Source: J. O'Connor, J.-P. Aumasson, S. Neves, Z. Wilcox-O'Hearn: BLAKE3, one function, fast everywhere (2020).
package blake3

import (
	"io"

	"github.com/zeebo/blake3"
)

// Sum is the hash of p.
func Sum(p []byte) (sum [32]byte) {
	if sumWide(&sum, p) {
		return sum
	}
	return blake3.Sum256(p)
}

// SumReader is the hash of all that r gives, and how many bytes that is.
func SumReader(r io.Reader) (sum [32]byte, n int64, err error) {
	b := blake3.New()
	n, err = io.CopyBuffer(struct{ io.Writer }{b}, struct{ io.Reader }{r}, make([]byte, 64<<10))
	b.Sum(sum[:0])
	return sum, n, err
}
