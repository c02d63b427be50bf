package segment

import (
	"fmt"

	"ckptfs/cas"
)

const (
	// BaseSize is how many bytes of a delta's payload name its base.
	BaseSize = 33
	// MaxNumber is the highest number of a delta.
	MaxNumber = 7
	// MaxBased bounds the content of a delta and of its bases, in bytes.
	MaxBased = 1 << 20
)

// Base is what a delta says of its base.
type Base struct {
	Hash   cas.Hash // of the base
	Number uint8    // of the delta, 1 to MaxNumber
}

// BaseNumber is the number of the record that number i is written against.
func BaseNumber(i uint8) uint8 { return i & (i - 1) }

// Put writes b to p[:BaseSize].
func (b Base) Put(p []byte) {
	copy(p[:32], b.Hash[:])
	p[32] = b.Number
}

// ParseBase reads the start of a delta's payload; cas.ErrCorrupt when it cannot be one.
func ParseBase(p []byte) (Base, error) {
	if len(p) < BaseSize || p[32] == 0 || p[32] > MaxNumber {
		return Base{}, fmt.Errorf("names no base: %w", cas.ErrCorrupt)
	}
	return Base{Hash: cas.Hash(p[:32]), Number: p[32]}, nil
}

// ReadBase reads what the delta at loc says of its base. The payload's checksum is not looked at.
func (r *Reader) ReadBase(loc cas.Location, h cas.Hash) (Base, error) {
	var p [RecordHeaderSize + BaseSize]byte
	if loc.Stored < BaseSize {
		return Base{}, fmt.Errorf("names no base: %w", cas.ErrCorrupt)
	}
	if err := r.read(p[:], loc.Off); err != nil {
		return Base{}, err
	}
	var rec Record
	if err := r.match(p[:], loc, h, &rec); err != nil {
		return Base{}, err
	}
	return ParseBase(p[RecordHeaderSize:])
}
