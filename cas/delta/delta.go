// Package delta encodes a record's content against others, and decides whether that pays.
//
// Every delta costs its readers: its bases are read and decoded, too. So one is stored only where it takes
// less than Gain of what the content takes alone, which a sample tells (codec.Estimate) or, where there is
// none, the encoding itself.
//
//	masters   the content is the rounding of numbers in single precision: the payload says where it is not
//	recipe    a program computes the content of others: the payload is that, and what it leaves to be told
//	base      the difference from the version before
//	columns   the difference is of low rank: the factors that predict it lie in a record of their own
//
// All functions write a payload behind room for a record's header, from which on package segment says what is
// where.
package delta

import (
	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/recipe"
	"ckptfs/cas/scratch"
	"ckptfs/cas/segment"
)

// Gain is the share of what a chunk takes alone below which a delta of it is worth its readers' time.
const Gain = 0.9

// surely is by how much what is of low rank must be smaller than what a sample tells of the plain difference
// for that not to be tried.
const surely = 0.8

// RecipeGain is the share of what a chunk takes alone below which a recipe of it is worth its readers' time,
// who decode several bases. Where they are one or two, and lead back to nothing themselves, it is Gain.
const RecipeGain = 0.5

// MostLed is how many records a recipe may lead back to, its bases and theirs, each counted once.
const MostLed = 40

const head = segment.RecordHeaderSize

// Rounded sets p, which has room for the header and b, to the payload of raw as the rounding of masters,
// which b names. ok is false when it is not that.
func Rounded(p *[]byte, b *segment.Base, masters, raw []byte, hint codec.Hint) (ok bool) {
	out := (*p)[:head+b.Size()]
	b.Put(out[head:])
	if out, ok = codec.EncodeRounded(out, raw, masters, hint); ok {
		*p = out
	}
	return ok
}

// Recipe sets p, which has room for the header and b, to the payload of raw as what a program computes of
// bases, which b names, if that pays. deep: one of these is not stored alone.
func Recipe(p *[]byte, b *segment.Base, program, bases, raw []byte, hint codec.Hint, deep bool) (ok bool) {
	gain := RecipeGain
	if len(b.Others) < 2 && !deep {
		gain = Gain
	}
	takes, sure := roughly(raw, hint)
	most := int(gain*takes) - b.Size()
	if most <= 0 {
		return false
	}
	out := (*p)[:head+b.Size()]
	b.Put(out[head:])
	if out, ok = recipe.Encode(out, program, raw, bases, most); !ok {
		return false
	}
	if n := float64(len(out) - head); !sure && n > takes/rough && n > gain*encoded(raw, hint) {
		return false
	}
	*p = out
	return true
}

const (
	// rough is by how much less than what a part of the content tells it has to be for that to be believed.
	rough = 8
	// parts of so many bytes are looked at.
	roughParts, roughPart = 8, 2 << 10
)

// roughly is how many bytes raw takes alone: as a sample tells or, where there is none, the encoding itself;
// or as parts of it tell, which is not sure: they do not tell of what is alike far apart.
func roughly(raw []byte, hint codec.Hint) (takes float64, sure bool) {
	if share, _ := codec.Estimate(raw, raw, hint); share < 1 {
		return share * float64(len(raw)), true
	}
	if len(raw) < 4*roughParts*roughPart {
		return encoded(raw, hint), true
	}
	var parts [roughParts * roughPart]byte
	for i := range roughParts {
		at := (len(raw) - roughPart) / (roughParts - 1) * i &^ 7
		copy(parts[roughPart*i:], raw[at:at+roughPart])
	}
	return encoded(parts[:], hint) * float64(len(raw)) / float64(len(parts)), false
}

// encoded is how many bytes the encoding of raw takes.
func encoded(raw []byte, hint codec.Hint) float64 {
	q := scratch.Get()
	defer scratch.Put(q)
	_, *q = codec.Encode((*q)[:0], raw, hint)
	return float64(len(*q))
}

// Encode sets p to the payload of raw as a delta of base, which b names, if that pays: with the help of rel's
// columns, if there are some, where that takes less. Then b names them, too, and its caller sees that they
// are in the store.
func Encode(p *[]byte, b *segment.Base, base, raw []byte, hint codec.Hint, rel cas.Related) (
	id byte, ok bool) {
	b.Second = cas.Hash{}
	alone, delta := codec.Estimate(raw, base, hint)
	told := alone < 1 || delta < 1
	plain := !told || delta <= Gain*alone
	if !plain && rel.Columns == nil {
		return 0, false
	}
	most := int(Gain * alone * float64(len(raw)))
	if !told {
		// Too short for a sample, or no numbers: both are tried.
		_, *p = codec.Encode((*p)[:head], raw, hint)
		most = int(Gain * float64(len(*p)-head))
	}
	var low []byte
	if c := rel.Columns; c != nil && len(c.Raw) <= segment.MaxBased {
		q := scratch.Get()
		defer scratch.Put(q)
		with := *b
		with.Second = c.Hash
		*q = append((*q)[:0], make([]byte, head+with.Size())...)
		with.Put((*q)[head:])
		if out, ok := codec.EncodeLowRank(*q, raw, base, c.Raw, c.Cols, rel.At, hint, most-with.Size()); ok {
			*q, low, most = out, out, len(out)-head-1
			plain = plain && (!told || float64(most) > surely*delta*float64(len(raw)))
		}
	}
	if plain {
		out := (*p)[:head+segment.BaseSize]
		b.Put(out[head:])
		id, out, ok = codec.EncodeAgainst(out, raw, base, hint, most-segment.BaseSize)
		*p = out
		if ok {
			return id, true
		}
	}
	if low == nil {
		return 0, false
	}
	*p = append((*p)[:0], low...)
	b.Second = rel.Columns.Hash
	return codec.LowRank, true
}

// worth is one over the share of a record that must be saved for it to be written again.
const worth = 256

// Better reports whether a record of now bytes and a number is worth replacing one of was bytes and another
// number. A delta that no longer saves enough for its readers' time is replaced by a record that is none.
func Better(now int, number uint8, was int, before uint8) bool {
	switch gain := float64(now) / float64(was); {
	case before > 0 && number == 0 && gain < 1/Gain:
		return true
	case before == 0 && number > 0 && gain > Gain:
		return false
	case before > 0 && number == segment.RecipeNumber && gain > RecipeGain:
		return false
	}
	return now < was-was/worth
}
