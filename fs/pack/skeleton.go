package pack

import (
	"io"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/chunk"
	"ckptfs/index/manifest"
)

// skeleton is the cutter at work on the small blobs, which it joins. Its batches hold their bytes already,
// since these lie all over the file.
type skeleton struct {
	*cutter
	plan  *plan
	prev  *trail // nil: there is none
	ended bool   // the last object takes no more
	// where on the trail the last object began, if all of its chunks are held, from there on; or -1
	since int
	whole []*object // that have their digests from the trail
	rest  []region  // of the plan, from that on in which the next chunk begins
	done  int64     // bytes of that one which chunks have
	held  []bool
	odds  odds
}

// skeleton joins the small blobs.
func (c *cutter) skeleton(p *plan) error {
	if !slices.ContainsFunc(p.regions, func(r region) bool { return r.small }) {
		return nil
	}
	cutter := chunk.NewCDC
	if p.fine {
		cutter = chunk.NewFineCDC
	}
	cdc := cutter(&joined{r: c.r, rest: p.regions})
	defer cdc.Close()
	s := skeleton{cutter: c, plan: p, since: -1, rest: p.regions}
	if c.before != nil && c.before.m.Format == p.format {
		s.prev = c.before.skeleton()
	}
	for {
		q, err := cdc.Ahead()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		followed, err := s.follow(cdc, q)
		if err != nil {
			return err
		}
		if followed {
			continue
		}
		if q, err = cdc.Next(); err != nil {
			return err
		}
		if c.mayBeNew -= int64(len(q)); c.mayBeNew < 0 {
			return ErrPresumed
		}
		var h, was cas.Hash
		if s.prev != nil {
			h = cas.Sum(q)
			was = s.prev.next(h)
		}
		if err := s.take(q, h, was); err != nil {
			return err
		}
	}
	if err := s.end(); err != nil {
		return err
	}
	if err := s.name(); err != nil {
		return err
	}
	return c.flush()
}

// follow takes the chunks that q, which lies ahead of cdc, begins with as far as the trail has them. Where
// the store still holds them all that is left of them is their names.
func (s *skeleton) follow(cdc *chunk.CDC, q []byte) (bool, error) {
	over, err := s.turn(s.ctx)
	if err != nil {
		return false, err
	}
	known := s.prev.follow(cdc, q)
	if len(known) == 0 {
		over()
		return false, nil
	}
	s.held = slices.Grow(s.held[:0], len(known))[:len(known)]
	err = s.batch.PutHeld(cas.Chunk, s.prev.hashes[:len(known)], s.held)
	over()
	if err != nil {
		return false, err
	}
	first := s.prev.pos - len(known)
	for i, span := range known {
		if s.held[i] {
			err = s.pass(q[:span.Len], span, first+i)
		} else {
			err = s.take(q[:span.Len], span.Hash, cas.Hash{})
		}
		if err != nil {
			return false, err
		}
		cdc.Pass(int(span.Len))
		q = q[span.Len:]
		s.mayBeNew += int64(span.Len) / presuming
	}
	return true, nil
}

// pass makes q the next chunk: a span that is held, and lies on the trail.
func (s *skeleton) pass(q []byte, span manifest.Span, at int) error {
	o, err := s.object(q)
	if err != nil {
		return err
	}
	if o.count == 0 {
		s.since = at
	}
	s.place(int64(len(q)))
	o.add(len(q)).Hash = span.Hash
	return nil
}

// take makes q the next chunk. Its hash is h, where that is not zero, and in the place of one that was
// before.
func (s *skeleton) take(q []byte, h, was cas.Hash) error {
	c := s.cutter
	if c.b != nil && c.b.full(int64(c.b.n+len(q))) {
		if err := c.flush(); err != nil {
			return err
		}
	}
	if c.b == nil {
		c.b = newBatch(0)
		c.b.held = true
	}
	o, err := s.object(q)
	if err != nil {
		return err
	}
	s.since = -1
	at := c.b.n
	copy(c.b.buf[at:], q)
	rel := cas.Related{Prev: was}
	rel.Off, rel.InFile = s.place(int64(len(q)))
	c.b.add(o, at, len(q), rel, &s.odds)
	c.b.pieces[len(c.b.pieces)-1].span.Hash = h
	return nil
}

// place says where the next chunk, of n bytes, begins in the file; false: it does not lie there in one piece.
func (s *skeleton) place(n int64) (off int64, whole bool) {
	end := int64(-1) // of what was found so far
	for whole = true; n > 0; {
		for !s.rest[0].small || s.done == s.rest[0].Len {
			s.rest, s.done = s.rest[1:], 0
		}
		at, m := s.rest[0].Off+s.done, min(n, s.rest[0].Len-s.done)
		if end < 0 {
			off = at
		} else if at != end {
			whole = false
		}
		end, n, s.done = at+m, n-m, s.done+m
	}
	return off, whole
}

// maxFineList bounds the chunks in a list of a fine layout. A save rewrites the lists of its head and its
// end, whatever their length: by content they have 16 chunks on average, and some have many more.
const maxFineList = 48

// object is the one that chunk q, the next one, belongs to.
func (s *skeleton) object(q []byte) (*object, error) {
	p := s.plan
	if len(p.skeleton) == 0 || s.ended || last(p.skeleton).full(len(q), s.cutter.object) {
		if err := s.end(); err != nil {
			return nil, err
		}
		p.skeleton = append(p.skeleton, &object{open: 1})
	}
	o := last(p.skeleton)
	s.ended = p.fine && (chunk.EndsList(q) || o.count+1 >= maxFineList)
	return o, nil
}

// end says that the last object, if any, is complete. One that was an object before has its digest already.
func (s *skeleton) end() error {
	objects := s.plan.skeleton
	if len(objects) > 0 && s.since >= 0 {
		if o := last(objects); s.prev.list(s.since, o.count, &o.named) {
			s.whole = append(s.whole, o)
			s.since = -1
			return nil
		}
	}
	return s.cutter.end(objects)
}

// name puts the lists of the objects that were there before.
func (s *skeleton) name() error {
	if len(s.whole) == 0 {
		return nil
	}
	digests := make([]cas.Hash, len(s.whole))
	for i, o := range s.whole {
		digests[i] = o.named.Digest
	}
	s.held = slices.Grow(s.held[:0], len(digests))[:len(digests)]
	if err := s.batch.PutHeld(cas.List, digests, s.held); err != nil {
		return err
	}
	for i, o := range s.whole {
		if !s.held[i] {
			if err := s.cutter.name(o); err != nil {
				return err
			}
		}
	}
	return nil
}
