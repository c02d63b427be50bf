package cas

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// XXH3 is the XXH3-128 of a record's content, in the canonical order of its bytes (Y. Collet, xxHash: most
// significant first). It takes a tenth of the time that a Hash takes, or less. It finds what chance does to
// bytes. Anybody can make other bytes of the same XXH3: it names nothing.
type XXH3 [16]byte

// SumXXH3 is the XXH3 of p.
func SumXXH3(p []byte) XXH3 { return xxh3.Hash128(p).Bytes() }

// CheckXXH3 reports whether x is the XXH3 of p; if not, the error wraps ErrCorrupt.
func CheckXXH3(p []byte, x XXH3) error {
	if SumXXH3(p) != x {
		return fmt.Errorf("content does not match its XXH3: %w", ErrCorrupt)
	}
	return nil
}

// IsZero reports whether x is the zero value, which says that it is not known.
func (x XXH3) IsZero() bool { return x == XXH3{} }
