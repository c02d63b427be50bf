package segment

import (
	"fmt"

	"ckptfs/cas"
	"ckptfs/cas/codec"
)

const (
	// BaseSize is how many bytes of a delta's payload name its base; Base.Size of others.
	BaseSize = 33
	// LowRankSize is how many bytes of the payload of a codec.LowRank name its base and the columns.
	LowRankSize = 65
	// MaxBaseSize is the most bytes that name bases.
	MaxBaseSize = 66
	// MaxNumber is the highest number of a delta.
	MaxNumber = 7
	// RoundedNumber is the number of a record that is rounded (codec.Rounded).
	RoundedNumber = 8
	// MaxBased bounds the content of a record that has a base, and of each of its bases, in bytes.
	MaxBased = 1 << 20
)

// Base is what a record says of its base.
type Base struct {
	Hash   cas.Hash // of the base
	Second cas.Hash // of the second base if the record is rounded, of the columns if of low rank; or zero
	Number uint8    // of the record: RoundedNumber if it is rounded, else 1 to MaxNumber
}

// BaseNumber is the number of the record that number i, of a delta, is written against.
func BaseNumber(i uint8) uint8 { return i & (i - 1) }

// Next is the number of a new version of prev, and its base: which of those before it that is. of says what
// the record of a hash says of its own; false: that is not known. Second is left out.
func Next(prev cas.Hash, of func(cas.Hash) (Base, bool)) (next Base, ok bool) {
	b, ok := of(prev)
	if !ok || b.Number >= MaxNumber {
		return next, false
	}
	next = Base{Hash: prev, Number: b.Number + 1}
	for most := BaseNumber(next.Number); b.Number > most; {
		below := b.Number
		next.Hash = b.Hash
		if b, ok = of(next.Hash); !ok || b.Number >= below {
			return Base{}, false
		}
	}
	return next, true
}

// Key is the record of number 0 that prev leads back to: prev itself, if it is stored alone. of is as for
// Next; false: there is none.
func Key(prev cas.Hash, of func(cas.Hash) (Base, bool)) (key cas.Hash, ok bool) {
	for key, below := prev, uint8(MaxNumber+1); ; {
		b, ok := of(key)
		if !ok || b.Number >= below {
			return cas.Hash{}, false
		}
		if b.Number == 0 {
			return key, true
		}
		key, below = b.Hash, b.Number
	}
}

// Hashes are those of the bases: none of a record of number 0.
func (b *Base) Hashes() []cas.Hash {
	switch {
	case b.Number == 0:
		return nil
	case b.Second.IsZero():
		return []cas.Hash{b.Hash}
	}
	return []cas.Hash{b.Hash, b.Second}
}

// Size is how many bytes of the payload name the bases.
func (b *Base) Size() int {
	switch rounded := b.Number == RoundedNumber; {
	case rounded && b.Second.IsZero():
		return BaseSize + 1
	case rounded:
		return MaxBaseSize
	case b.Second.IsZero():
		return BaseSize
	}
	return LowRankSize
}

// Put writes b to p[:b.Size()].
func (b Base) Put(p []byte) {
	copy(p[:32], b.Hash[:])
	p[32] = b.Number
	at := 33
	if b.Number == RoundedNumber {
		p[33] = 1
		if at++; !b.Second.IsZero() {
			p[33] = 2
		}
	}
	if !b.Second.IsZero() {
		copy(p[at:at+32], b.Second[:])
	}
}

// ParseBase reads the start of the payload of a record that has a base. The error is cas.ErrCorrupt when it
// names none.
func ParseBase(id byte, p []byte) (Base, error) {
	bad := fmt.Errorf("names no base: %w", cas.ErrCorrupt)
	if len(p) < BaseSize || p[32] == 0 {
		return Base{}, bad
	}
	b := Base{Hash: cas.Hash(p[:32]), Number: p[32]}
	if id != codec.Rounded {
		if b.Number > MaxNumber {
			return Base{}, bad
		}
		if id == codec.LowRank {
			if len(p) < LowRankSize {
				return Base{}, bad
			}
			if b.Second = cas.Hash(p[33:65]); b.Second.IsZero() {
				return Base{}, bad
			}
		}
		return b, nil
	}
	if b.Number != RoundedNumber || len(p) < BaseSize+1 || p[33] < 1 || p[33] > 2 {
		return Base{}, bad
	}
	if p[33] == 2 {
		if len(p) < MaxBaseSize {
			return Base{}, bad
		}
		if b.Second = cas.Hash(p[34:66]); b.Second.IsZero() {
			return Base{}, bad
		}
	}
	return b, nil
}

// BaseHead is how many bytes of the record at loc, which has a base, ReadBase reads.
func BaseHead(loc cas.Location) int { return RecordHeaderSize + min(MaxBaseSize, int(loc.Stored)) }

// ReadBase reads what the record at loc, which has a base, says of it. It does not check the payload.
func (r *Reader) ReadBase(loc cas.Location, h cas.Hash) (Base, error) {
	var buf [RecordHeaderSize + MaxBaseSize]byte
	p := buf[:BaseHead(loc)]
	if err := r.read(p, loc.Off); err != nil {
		return Base{}, err
	}
	return r.Base(p, loc, h)
}

// Base is ReadBase with the bytes at hand.
func (r *Reader) Base(p []byte, loc cas.Location, h cas.Hash) (Base, error) {
	var rec Record
	if err := r.match(p, loc, h, &rec); err != nil {
		return Base{}, err
	}
	return ParseBase(rec.Codec, p[RecordHeaderSize:])
}
