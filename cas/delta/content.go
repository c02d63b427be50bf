package delta

import (
	"fmt"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/recipe"
	"ckptfs/cas/segment"
)

// Gather appends to buf the contents of what b names, one behind the other, as get appends each. The first
// ends at first. The caller sees to it that none is longer than segment.MaxBased.
func Gather(buf []byte, b *segment.Base, get func(buf []byte, h cas.Hash) ([]byte, error)) (
	bases []byte, first int, err error) {
	n := len(buf)
	for i, h := range b.Hashes() {
		if buf, err = get(buf, h); err != nil {
			return buf, first, err
		}
		if err = gathered(len(buf) - n); err != nil {
			return buf, first, err
		}
		if i == 0 {
			first = len(buf)
		}
	}
	return buf, first, nil
}

// gathered is the error of bases of n bytes in all.
func gathered(n int) error {
	if n > segment.MaxRecipe {
		return fmt.Errorf("bases of more than %d bytes: %w: %w", segment.MaxRecipe, cas.ErrTooLarge,
			cas.ErrCorrupt)
	}
	return nil
}

// Computed is Content of a recipe: get is told the hash of each base in turn, whose content may lie anywhere.
func Computed(dst []byte, b *segment.Base, payload []byte, rawLen int, get func(h cas.Hash) ([]byte, error)) (
	[]byte, error) {
	if rawLen > segment.MaxBased {
		return dst, fmt.Errorf("recipe of %d bytes: %w: %w", rawLen, cas.ErrTooLarge, cas.ErrCorrupt)
	}
	hashes := b.Hashes()
	bases, total := make([][]byte, len(hashes)), 0
	for i, h := range hashes {
		var err error
		if bases[i], err = get(h); err != nil {
			return dst, err
		}
		total += len(bases[i])
		if err := gathered(total); err != nil {
			return dst, err
		}
	}
	return recipe.DecodeOf(dst, payload[b.Size():], bases, rawLen)
}

// Content appends to dst the rawLen bytes of a record whose codec needs a base: payload is as the record has
// it, b is what that begins with, and bases are as Gather appends them to nothing. The content is not held
// against the record's hash. Errors wrap cas.ErrCorrupt, cas.ErrTooLarge or cas.ErrNewer.
func Content(dst []byte, id byte, b *segment.Base, payload, bases []byte, first, rawLen int) ([]byte, error) {
	long := max(first, len(bases)-first)
	if id == codec.Recipe {
		long = len(bases) - segment.MaxRecipe + segment.MaxBased // each is no longer than MaxBased
	}
	if max(rawLen, long) > segment.MaxBased {
		return dst, fmt.Errorf("delta of %d bytes: %w: %w", rawLen, cas.ErrTooLarge, cas.ErrCorrupt)
	}
	payload = payload[b.Size():]
	switch id {
	case codec.Recipe:
		return recipe.Decode(dst, payload, bases, rawLen)
	case codec.LowRank:
		return codec.DecodeLowRank(dst, payload, bases[:first:first], bases[first:], rawLen)
	}
	return codec.DecodeAgainst(dst, id, payload, bases, rawLen)
}

// Next is segment.After of rel, unless Prev is a recipe. Nothing is written against these: what comes after
// one comes after the first of its bases that is as long, as the parents of a merge are. located is what the
// record of a hash says of its base, and where it lies; at is where that of the result lies.
func Next(rel cas.Related, located func(cas.Hash) (segment.Base, cas.Location, bool)) (
	next segment.Base, at cas.Location, ok bool) {
	b, at, ok := located(rel.Prev)
	if ok && b.Number == segment.RecipeNumber {
		n, bases := at.Raw, b.Hashes()
		i := slices.IndexFunc(bases, func(h cas.Hash) bool {
			b, at, ok = located(h)
			return ok && at.Raw == n && b.Number <= segment.MaxNumber
		})
		if i < 0 {
			return next, at, false
		}
		rel.Prev = bases[i]
	}
	last := rel.Prev
	next, ok = segment.After(&rel, func(h cas.Hash) (segment.Base, bool) {
		if h != last {
			b, at, ok = located(h)
			last = h
		}
		return b, ok
	})
	return next, at, ok
}

// Key is segment.Key, where located says what the record of a hash says of its base.
func Key(prev cas.Hash, located func(cas.Hash) (segment.Base, cas.Location, bool)) (key cas.Hash, ok bool) {
	return segment.Key(prev, func(h cas.Hash) (segment.Base, bool) {
		b, _, ok := located(h)
		return b, ok
	})
}
