package store

import (
	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/delta"
	"ckptfs/cas/scratch"
	"ckptfs/cas/segment"
)

// encodeRounded sets p to room for a record's header and the payload of raw, which has hash h, as the
// rounding of its masters; nil: it is not that.
func (s *Store) encodeRounded(h cas.Hash, raw []byte, hint codec.Hint, masters [2]cas.Hash, p *[]byte) (
	id byte, a *against) {
	if masters[0].IsZero() || !codec.MayBeRounded(hint) {
		return 0, nil
	}
	b := segment.Base{Hash: masters[0], Second: masters[1], Number: segment.RoundedNumber}
	a = s.read(b, cas.Location{}, nil)
	if a != nil && (!delta.Rounded(p, &a.Base, *a.raw, raw, hint) || !s.lean(h, a)) {
		scratch.Put(a.raw)
		return 0, nil
	}
	return codec.Rounded, a
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
