package segment

import (
	"fmt"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
)

const (
	// BaseSize is how many bytes of a delta's payload name its base; Base.Size of others.
	BaseSize = 33
	// LowRankSize is how many bytes of the payload of a codec.LowRank name its base and the columns.
	LowRankSize = 65
	// MaxBaseSize is the most bytes that name bases: those of a recipe of MaxRecipeBases.
	MaxBaseSize = 34 + 32*(MaxRecipeBases-1)
	// MaxNumber is the highest number of a delta.
	MaxNumber = 7
	// RoundedNumber is the number of a record that is rounded (codec.Rounded).
	RoundedNumber = 8
	// RecipeNumber is the number of a record that is computed (codec.Recipe).
	RecipeNumber = 9
	// AnyNumber is above the numbers of all records.
	AnyNumber = RecipeNumber + 1
	// MaxBased bounds the content of a record that has a base, and of each of its bases, in bytes.
	MaxBased = 1 << 20
	// MaxRecipeBases is how many bases a recipe may have, and MaxRecipe bounds the contents of all of them
	// together, in bytes.
	MaxRecipeBases = 40
	MaxRecipe      = 10 << 20
)

// Base is what a record says of its base.
type Base struct {
	Hash   cas.Hash // of the base
	Second cas.Hash // of the second base if the record is rounded, of the columns if of low rank; or zero
	// Others are the bases of a recipe behind the first, in their order.
	Others []cas.Hash
	// Number is that of the record: RoundedNumber if it is rounded, RecipeNumber if it is a recipe, else 1 to
	// MaxNumber.
	Number uint8
}

// Recipe is the Base of a recipe of bases, each of which it may name once, and none of which is zero; ok is
// false for others.
func Recipe(bases []cas.Hash) (b Base, ok bool) {
	if len(bases) < 1 || len(bases) > MaxRecipeBases {
		return Base{}, false
	}
	for i, h := range bases {
		if h.IsZero() || slices.Contains(bases[:i], h) {
			return Base{}, false
		}
	}
	return Base{Hash: bases[0], Others: bases[1:], Number: RecipeNumber}, true
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

// After is the number of a record that rel relates to others, and its base. A version is Next. What is alike
// is written against Prev, or, where nothing can be, since its number is odd, against the first with an even
// one that this leads back to. It has the highest number that this allows: models are made of models, and
// most may go on from there. What leads a series is written against the key, and its versions have all
// numbers to come.
func After(rel *cas.Related, of func(cas.Hash) (Base, bool)) (next Base, ok bool) {
	switch {
	case !rel.Alike:
		return Next(rel.Prev, of)
	case rel.Leads:
		next.Hash, ok = Key(rel.Prev, of)
		next.Number = 1
		return next, ok
	}
	prev := rel.Prev
	b, ok := of(prev)
	for ok && b.Number <= MaxNumber && b.Number%2 == 1 {
		below := b.Number
		prev = b.Hash
		if b, ok = of(prev); b.Number >= below {
			return next, false
		}
	}
	if !ok || b.Number >= MaxNumber {
		return next, false
	}
	next = Base{Hash: prev, Number: b.Number + 1}
	for n := next.Number + 1; n < MaxNumber; n++ {
		if BaseNumber(n) == b.Number {
			next.Number = n
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
	case b.Number == RecipeNumber:
		return append(append(make([]cas.Hash, 0, 1+len(b.Others)), b.Hash), b.Others...)
	case b.Second.IsZero():
		return []cas.Hash{b.Hash}
	}
	return []cas.Hash{b.Hash, b.Second}
}

// Size is how many bytes of the payload name the bases.
func (b *Base) Size() int {
	switch rounded := b.Number == RoundedNumber; {
	case b.Number == RecipeNumber:
		return BaseSize + 1 + 32*len(b.Others)
	case rounded && b.Second.IsZero():
		return BaseSize + 1
	case rounded:
		return BaseSize + 1 + 32
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
	switch b.Number {
	case RecipeNumber:
		p[33] = byte(1 + len(b.Others))
		for i := range b.Others {
			copy(p[34+32*i:], b.Others[i][:])
		}
		return
	case RoundedNumber:
		p[33] = 1
		if at++; !b.Second.IsZero() {
			p[33] = 2
		}
	}
	if !b.Second.IsZero() {
		copy(p[at:at+32], b.Second[:])
	}
}

// errNoBase: what a payload begins with names no bases as its codec wants them.
var errNoBase = fmt.Errorf("names no base: %w", cas.ErrCorrupt)

// ParseBase reads the start of the payload of a record that has a base. The error is cas.ErrCorrupt when it
// names none.
func ParseBase(id byte, p []byte) (Base, error) {
	if len(p) < BaseSize || p[32] == 0 {
		return Base{}, errNoBase
	}
	b := Base{Hash: cas.Hash(p[:32]), Number: p[32]}
	switch id {
	case codec.Recipe:
		return parseRecipe(p)
	case codec.Rounded:
		if b.Number != RoundedNumber || len(p) < BaseSize+1 || p[33] < 1 || p[33] > 2 {
			return Base{}, errNoBase
		}
		if p[33] == 1 {
			return b, nil
		}
		return b.second(p[34:])
	}
	if b.Number > MaxNumber {
		return Base{}, errNoBase
	}
	if id == codec.LowRank {
		return b.second(p[33:])
	}
	return b, nil
}

// second is b with the hash of a second base, which p begins with.
func (b Base) second(p []byte) (Base, error) {
	if len(p) < 32 || cas.Hash(p[:32]).IsZero() {
		return Base{}, errNoBase
	}
	b.Second = cas.Hash(p[:32])
	return b, nil
}

func parseRecipe(p []byte) (Base, error) {
	if p[32] != RecipeNumber || len(p) < BaseSize+1 || p[33] < 1 || p[33] > MaxRecipeBases ||
		len(p) < BaseSize+1+32*(int(p[33])-1) {
		return Base{}, errNoBase
	}
	bases := make([]cas.Hash, p[33])
	bases[0] = cas.Hash(p[:32])
	for i := range bases[1:] {
		bases[1+i] = cas.Hash(p[34+32*i:][:32])
	}
	b, ok := Recipe(bases)
	if !ok {
		return Base{}, errNoBase
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

// SummedBase is ReadBase of a record whose payload is compared with its checksum.
func (r *Reader) SummedBase(loc cas.Location, h cas.Hash) (Base, error) {
	if loc.Stored > cas.MaxChunk {
		return Base{}, cas.ErrTooLarge
	}
	var rec Record
	payload, err := r.ReadRecord(loc, h, &rec, make([]byte, RecordHeaderSize+int(loc.Stored)))
	if err != nil {
		return Base{}, err
	}
	return ParseBase(rec.Codec, payload)
}

// Base is ReadBase with the bytes at hand.
func (r *Reader) Base(p []byte, loc cas.Location, h cas.Hash) (Base, error) {
	var rec Record
	if err := r.match(p, loc, h, &rec); err != nil {
		return Base{}, err
	}
	return ParseBase(rec.Codec, p[RecordHeaderSize:])
}
