package store

import (
	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// gain is the share of what a chunk takes alone below which a delta of it is worth its readers' time.
const gain = 0.9

// surely is by how much what is of low rank must be smaller than what a sample tells of the plain difference
// for that not to be tried.
const surely = 0.8

// encodeDelta sets p to room for a record's header and the payload of raw, which has hash h, against what rel
// names, all of which is in the store then; nil: there is no such thing, or it does not pay. full: a segment
// was found full.
func (b *Batch) encodeDelta(h cas.Hash, raw []byte, hint codec.Hint, rel cas.Related, p *[]byte) (
	id byte, a *against, full bool) {
	s := b.s
	if a = s.choose(h, rel); a == nil {
		return 0, nil, false
	}
	id, ok := s.encodeAgainst(raw, hint, a, rel, p)
	if ok && id == codec.LowRank {
		if full, ok = b.columns(h, a, rel.Columns, hint); !ok {
			rel.Columns = nil
			id, ok = s.encodeAgainst(raw, hint, a, rel, p)
		}
	}
	if !ok {
		freeBuffer(a.raw)
		return 0, nil, full
	}
	return id, a, full
}

// encodeAgainst sets p to room for a record's header and the payload of raw as a delta of a, if that pays:
// with the help of rel's columns, if there are some, where that takes less. Then a names them, and its caller
// sees that they are in the store.
func (s *Store) encodeAgainst(raw []byte, hint codec.Hint, a *against, rel cas.Related, p *[]byte) (
	id byte, ok bool) {
	const head = segment.RecordHeaderSize
	base := *a.raw
	a.Second = cas.Hash{}
	alone, delta := codec.Estimate(raw, base, hint)
	told := alone < 1 || delta < 1
	plain := !told || delta <= gain*alone
	if !plain && rel.Columns == nil {
		return 0, false
	}
	most := int(gain * alone * float64(len(raw)))
	if !told {
		// Too short for a sample, or no numbers: both are tried.
		_, *p = codec.Encode((*p)[:head], raw, hint)
		most = int(gain * float64(len(*p)-head))
	}
	var low []byte
	if c := rel.Columns; c != nil && len(c.Raw) <= segment.MaxBased {
		q := buffers.Get().(*[]byte)
		defer freeBuffer(q)
		with := a.Base
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
		a.Put(out[head:])
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
	a.Second = rel.Columns.Hash
	return codec.LowRank, true
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
	return full, b.s.takeOne(h, c.Hash, a, nil)
}
