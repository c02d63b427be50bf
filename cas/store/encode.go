package store

import (
	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/delta"
	"ckptfs/cas/scratch"
	"ckptfs/cas/segment"
)

// encodeComputed sets p to room for a record's header and the payload of raw, which has hash h, as what can
// be computed of others that rel names: the rounding of its masters, or what its recipe computes of its
// bases. nil: it is neither, or that does not pay.
func (s *Store) encodeComputed(h cas.Hash, raw []byte, hint codec.Hint, rel cas.Related, p *[]byte) (
	id byte, a *against) {
	if !rel.Masters[0].IsZero() && codec.MayBeRounded(hint) {
		b := segment.Base{Hash: rel.Masters[0], Second: rel.Masters[1], Number: segment.RoundedNumber}
		if a = s.read(b, cas.Location{}, nil); a != nil {
			if delta.Rounded(p, &a.Base, *a.raw, raw, hint) && s.lean(h, a) {
				return codec.Rounded, a
			}
			scratch.Put(a.raw)
		}
	}
	if rel.Recipe == nil {
		return 0, nil
	}
	b, ok := segment.Recipe(rel.Recipe.Bases)
	deep := false
	for _, base := range rel.Recipe.Bases {
		of, _, there := s.located(base)
		ok = ok && there && of.Number < segment.RecipeNumber && base != h
		deep = deep || of.Number > 0
	}
	if !ok {
		return 0, nil
	}
	if a = s.read(b, cas.Location{}, nil); a != nil {
		if delta.Recipe(p, &a.Base, rel.Recipe.Program, *a.raw, raw, hint, deep) && s.lean(h, a) {
			return codec.Recipe, a
		}
		scratch.Put(a.raw)
	}
	return 0, nil
}

// encodeDelta sets p to room for a record's header and the payload of raw, which has hash h, against what rel
// names, all of which is in the store then; nil: there is no such thing, or it does not pay. full: a segment
// was found full.
func (b *Batch) encodeDelta(h cas.Hash, raw []byte, hint codec.Hint, rel cas.Related, p *[]byte) (
	id byte, a *against, full bool) {
	s := b.s
	if a = s.choose(h, rel); a == nil {
		return 0, nil, false
	}
	id, ok := delta.Encode(p, &a.Base, *a.raw, raw, hint, rel)
	if ok = ok && s.leanOn(h, a.Hash, a); ok && id == codec.LowRank {
		if full, ok = b.columns(h, a, rel.Columns, hint); !ok {
			rel.Columns = nil
			id, ok = delta.Encode(p, &a.Base, *a.raw, raw, hint, rel)
		}
	}
	if !ok {
		scratch.Put(a.raw)
		return 0, nil, full
	}
	return id, a, full
}

// columns puts the columns c, which the record of h, encoded against a, needs besides its base, and pins them
// for it. It waits only for a Put that waits for no other. ok is false when they are not available as a base
// of a's number; full: a segment was found full.
func (b *Batch) columns(h cas.Hash, a *against, c *cas.Columns, hint codec.Hint) (full, ok bool) {
	r, err := b.claim(cas.Chunk, c.Hash, true)
	if err != nil {
		return false, false
	}
	if r != nil {
		if _, _, full, err = b.put(r, c.Raw, codec.ColumnsHint(hint), cas.Related{}); err != nil {
			return full, false
		}
	} else if pend, _ := b.s.appender.onTheirWay([]cas.Hash{c.Hash}); pend != nil && pend[0].plain {
		<-pend[0].done
	}
	return full, b.s.leanOn(h, c.Hash, a) && b.s.readBase(c.Hash, cas.Location{}, a, nil)
}
