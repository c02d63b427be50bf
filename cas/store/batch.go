package store

import (
	"fmt"
	"slices"
	"sync/atomic"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/scratch"
	"ckptfs/cas/segment"
	"ckptfs/cas/trust"
)

// Batch is a set of chunks that become durable together, by Commit, and that no sweep takes before Release.
type Batch struct {
	s     *Store
	bytes atomic.Int64 // that it wrote

	// Under appender.mu:
	done  bool      // takes no more
	deps  []*record // what it needs that was not in the index when last looked at, in order of their Puts
	prune int       // deps is gone through when it has grown to this
	part  []*record // that it claimed since Mark
	// Under pins.mu, for which all writers wait: a list takes less time than a set.
	pinned []key                 // as often as they were put
	sure   int                   // of pinned: before Mark
	naming map[cas.Hash]struct{} // those that are no chunks
	steady []cas.Hash            // by Hold
}

// Begin starts a batch.
func (s *Store) Begin() *Batch {
	return &Batch{s: s, prune: 1024}
}

// Put adds a chunk. h must be cas.Sum(raw); raw is not kept. fresh reports whether the chunk was not held and
// no other Put was storing it already. A Put that failed makes Commit fail, unless the same chunk is put
// again with success.
func (b *Batch) Put(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint) (fresh bool, err error) {
	fresh, _, err = b.PutRelated(kind, h, raw, hint, cas.Related{})
	return fresh, err
}

// PutRelated is Put of what is related to other records. It is stored as the rounding of its masters if it is
// that, else as what its recipe computes, else as its difference from the version before it, or from one that
// this leads back to, if that pays.
// Whatever is wrong with these does not matter. What was encoded has been decoded again and compared. Of what
// is fresh id is the codec. Columns that it is stored with the help of are put first.
func (b *Batch) PutRelated(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint, rel cas.Related) (
	fresh bool, id byte, err error) {
	if len(raw) > cas.MaxChunk {
		return false, 0, fmt.Errorf("chunk %s: %d bytes: %w", h.Short(), len(raw), cas.ErrTooLarge)
	}
	if !kind.Indexed() {
		return false, 0, fmt.Errorf("chunk %s: records of kind %d are not indexed", h.Short(), kind)
	}
	r, err := b.claim(kind, h, rel.IsZero())
	if r == nil || err != nil {
		return false, 0, err
	}
	fresh, id, full, err := b.put(r, raw, hint, rel)
	if full && err == nil {
		b.s.filled()
	}
	return fresh, id, err
}

// put is PutRelated for r, which is claimed and is settled then. full: a segment was found full.
func (b *Batch) put(r *record, raw []byte, hint codec.Hint, rel cas.Related) (
	fresh bool, id byte, full bool, err error) {
	if held, err := b.s.heldSettled(r); held || err != nil {
		return false, 0, false, err
	}
	id, full, err = b.store(r, raw, hint, rel)
	return err == nil, id, full, err
}

// claim makes b depend on h. It returns a new record if the caller is to store h, nil if another Put is about
// to, or did. plain is the record's.
func (b *Batch) claim(kind cas.Kind, h cas.Hash, plain bool) (*record, error) {
	s := b.s
	fresh := &record{hash: h, kind: kind, plain: plain, done: make(chan struct{})} // nobody waits for that
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	for {
		if s.appender.closed {
			return nil, ErrClosed
		}
		if b.done {
			return nil, ErrBatchDone
		}
		r := s.appender.pending[h]
		if r == nil || r.state != claimed && !r.kind.Serves(kind) {
			fresh.first = r == nil
			if r != nil {
				r.next = fresh
			}
			r = fresh
			s.appender.pending[h] = r
			b.part = append(b.part, r)
			s.pins.mu.Lock()
			defer s.pins.mu.Unlock()
			r.doomed = b.holdLocked(r)
			r.suspect = s.opt.Known.Suspect(h)
			s.pins.ownsLocked(b, r)
			return r, nil
		}
		if r.kind.Serves(kind) {
			s.pins.mu.Lock()
			defer s.pins.mu.Unlock()
			b.holdLocked(r)
			return nil, nil
		}
		// Being stored as another kind, of which ours must come after.
		s.appender.mu.Unlock()
		<-r.done
		s.appender.mu.Lock()
	}
}

// keepLocked pins h, which is put as a record of a kind.
func (b *Batch) keepLocked(kind cas.Kind, h cas.Hash) {
	b.s.pins.mu.AssertHeld()
	k := keyOf(h)
	b.pinned = append(b.pinned, k)
	b.s.pins.count[k]++
	b.touchLocked(kind, h)
}

// touchLocked tells sweeps of h, which is pinned.
func (b *Batch) touchLocked(kind cas.Kind, h cas.Hash) {
	p := &b.s.pins
	p.touchLocked(keyOf(h))
	p.shareLocked(keyOf(h), b)
	if kind == cas.Chunk {
		return
	}
	if _, ok := b.naming[h]; !ok {
		if b.naming == nil {
			b.naming = make(map[cas.Hash]struct{})
		}
		b.naming[h] = struct{}{}
		p.naming[h]++
	}
	if p.named != nil {
		p.named[h] = struct{}{}
	}
}

// holdLocked pins r and makes b depend on it. It reports whether a sweep is just taking what the index has of
// r. The locks of appender and pins are held.
func (b *Batch) holdLocked(r *record) (doomed bool) {
	s := b.s
	s.appender.mu.AssertHeld()
	b.keepLocked(r.kind, r.hash)
	b.deps = append(b.deps, r)
	if len(b.deps) >= b.prune {
		b.pruneLocked()
	}
	_, doomed = s.pins.doomed[keyOf(r.hash)]
	return doomed
}

// pruneLocked forgets what is in the index by now. While something failed all stay: the same chunk may have
// been put again, with success.
func (b *Batch) pruneLocked() {
	b.s.appender.mu.AssertHeld()
	fails := func(r *record) bool { _, err := r.fateLocked(); return err != nil }
	if !slices.ContainsFunc(b.deps, fails) {
		b.deps = slices.DeleteFunc(b.deps, func(r *record) bool { in, _ := r.fateLocked(); return in })
	}
	b.prune = max(1024, 2*len(b.deps))
}

// heldSettled is held, and settles r if there is nothing left to be done for it.
func (s *Store) heldSettled(r *record) (held bool, err error) {
	if held, err = s.held(r); err != nil {
		s.appender.settle(r, failed, err)
	} else if held {
		s.appender.settle(r, indexed, nil)
	}
	return held, err
}

// held asks the index for r, which is claimed.
func (s *Store) held(r *record) (bool, error) {
	if r.doomed {
		r.first = false
		return false, nil
	}
	loc, err := one(r.hash, s.locate)
	if err != nil {
		return false, err
	}
	gone := s.lost.Has(loc.Segment)
	if gone {
		s.unreadable(loc.Segment, errMissing) // unless it was told of: only now is it known to be needed
	}
	r.alone = r.suspect || gone
	r.first = r.first && !r.alone && loc.Segment == 0
	if loc.Segment == 0 || !loc.Kind.Serves(r.kind) {
		return false, nil
	}
	if r.alone || !loc.Delta {
		return !r.alone, nil
	}
	// A delta that nothing needed may have outlived its bases. One whose bases are there, and pinned now, is
	// held.
	_, on, err := s.secure(r.hash, loc, nil)
	if r.alone = err != nil; r.alone {
		return false, nil
	}
	s.appender.leansOn(r, on)
	return true, nil
}

// store encodes raw, to which rel is related, and appends it as r, which is claimed and is settled then.
// full: a segment was found full.
func (b *Batch) store(r *record, raw []byte, hint codec.Hint, rel cas.Related) (
	id byte, full bool, err error) {
	s := b.s
	if rel.XXH3.IsZero() {
		rel.XXH3 = cas.SumXXH3(raw)
	}
	p := scratch.Get()
	defer scratch.Put(p)
	if need := int(segment.Size(len(raw) + segment.MaxBaseSize)); cap(*p) < need {
		*p = make([]byte, 0, need)
	}
	var a *against
	if !r.alone && len(raw) <= segment.MaxBased {
		if id, a = s.encodeComputed(r.hash, raw, hint, rel, p); a == nil {
			id, a, full = b.encodeDelta(r.hash, raw, hint, rel, p)
		}
	}
	if a != nil {
		scratch.Put(a.raw)
		s.appender.leansOn(r, a.on)
	} else {
		id, *p = codec.Encode((*p)[:segment.RecordHeaderSize], raw, hint)
	}
	if err := trust.Encoded(id, raw, (*p)[segment.RecordHeaderSize:], rel.XXH3); err != nil {
		s.appender.settle(r, failed, err)
		return id, full, err
	}
	also, err := s.appender.append(r, &segment.Record{Kind: r.kind, Codec: id, Raw: uint32(len(raw)),
		Hash: r.hash, XXH3: rel.XXH3}, *p)
	if err == nil {
		b.wrote(segment.Size(len(*p) - segment.RecordHeaderSize))
	}
	return id, full || also, err
}

// wrote counts bytes that b has put, or with n below 0 has taken back.
func (b *Batch) wrote(n int64) {
	b.bytes.Add(n)
	b.s.underway.Add(n)
}

// Commit makes everything that was put durable; the batch takes nothing more. When it fails some of the
// chunks may be held all the same; put them again in another batch.
func (b *Batch) Commit() error {
	s := b.s
	s.appender.mu.Lock()
	if b.done {
		s.appender.mu.Unlock()
		return ErrBatchDone
	}
	b.done = true
	b.pruneLocked()
	deps := b.deps
	b.deps = nil
	s.appender.mu.Unlock()
	return s.commit(lastOfEach(deps))
}

// lastOfEach is deps without those whose chunk was put again later.
func lastOfEach(deps []*record) (last []*record) {
	seen := make(map[cas.Hash]struct{}, len(deps))
	for _, r := range slices.Backward(deps) {
		if _, again := seen[r.hash]; !again {
			seen[r.hash] = struct{}{}
			last = append(last, r)
		}
	}
	return last
}

// commit waits until all of deps are in the index.
func (s *Store) commit(deps []*record) error {
	for more := deps; len(more) > 0; {
		for _, r := range more {
			<-r.done
		}
		n := len(deps)
		s.appender.mu.Lock()
		for _, r := range more {
			deps = append(deps, r.on...)
		}
		s.appender.mu.Unlock()
		more = deps[n:]
	}
	if ok, err := s.appender.settled(deps); ok || err != nil {
		return err
	}
	s.harden(deps)
	err := s.flushed(func() (bool, error) {
		// The flush that held the lock before may have committed for us.
		return s.appender.settled(deps)
	})
	if err == nil {
		_, err = s.appender.settled(deps)
	}
	return err
}

// Release lets sweeps have what the batch pinned. Call it when what was put is named by something that a
// sweep's mark finds, or will not be. Without a Commit before it ends the batch, and waits for nothing. A
// second call does nothing.
func (b *Batch) Release() {
	s := b.s
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	b.done = true
	b.wrote(-b.bytes.Load())
	b.disownLocked()
	for _, h := range b.steady {
		s.pins.easeLocked(keyOf(h))
	}
	s.pins.unpinLocked(b.pinned...)
	for h := range b.naming {
		if s.pins.naming[h]--; s.pins.naming[h] == 0 {
			delete(s.pins.naming, h)
		}
	}
	b.pinned, b.sure, b.naming, b.deps, b.steady = nil, 0, nil, nil, nil
}
