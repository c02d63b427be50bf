// Package cas is the vocabulary of the content-addressed store: what a chunk is called (Hash), where it lies
// (Location), what kind of record it is (Kind), and the errors every layer above tests for.
//
// A chunk is at most MaxChunk raw bytes. Its name is the BLAKE3-256 of those raw bytes, before any encoding,
// so a chunk keeps its name when it is recompressed.
package cas

import (
	"encoding/hex"
	"fmt"
	"io"

	"ckptfs/cas/blake3"
)

// HashSize is the length of a Hash in bytes.
const HashSize = 32

// ChunkSize is the grid, in bytes, on which tensor data is cut: chunk i of a tensor covers [i*ChunkSize,
// (i+1)*ChunkSize) of the tensor's own bytes, wherever the tensor lies in its file. Equal tensors therefore
// have equal chunks whatever format they came in.
const ChunkSize = 256 << 10

// MaxChunk bounds the raw bytes of one chunk. A reader refuses a record that claims more before it takes
// memory.
const MaxChunk = 16<<20 - 1

// Hash names a chunk, a list or a manifest by content.
type Hash [HashSize]byte

// Sum is the BLAKE3-256 of p.
func Sum(p []byte) Hash { return blake3.Sum(p) }

// SumAll sets sums[i] to Sum(chunks[i]), faster than one at a time where they are short.
func SumAll(sums []Hash, chunks [][]byte) {
	blake3.SumAll(sums, chunks)
}

// SumReader is Sum of all that r gives, and how many bytes that is.
func SumReader(r io.Reader) (h Hash, n int64, err error) {
	sum, n, err := blake3.SumReader(r)
	return sum, n, err
}

// Check reports whether p is what h names; if not, the error wraps ErrCorrupt.
func Check(p []byte, h Hash) error {
	if Sum(p) != h {
		return fmt.Errorf("content does not match its hash: %w", ErrCorrupt)
	}
	return nil
}

// String is the hash in lower-case hex, 64 characters.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Short is the first 12 hex characters, for people.
func (h Hash) Short() string { return hex.EncodeToString(h[:6]) }

// IsZero reports whether h is the zero value, which names nothing.
func (h Hash) IsZero() bool { return h == Hash{} }

// ParseHash reads what String wrote.
func ParseHash(s string) (Hash, error) {
	var h Hash
	if len(s) != 2*HashSize {
		return h, fmt.Errorf("hash %q: %d characters, want %d", s, len(s), 2*HashSize)
	}
	if _, err := hex.Decode(h[:], []byte(s)); err != nil {
		return h, fmt.Errorf("hash %q: %w", s, err)
	}
	return h, nil
}
