package store

import (
	"fmt"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// Batch is a set of chunks that become durable together, by Commit, and that no sweep takes before Release.
type Batch struct {
	s *Store

	// Under Store.mu:
	done   bool // takes no more
	pinned map[key]struct{}
	also   []key                 // pinned as often as they occur, besides: by PutHeld, of many, to which a set would cost more than it saves
	naming map[cas.Hash]struct{} // those that are no chunks
	deps   map[cas.Hash]*record  // what it needs that was not in the index when last looked at
	prune  int                   // deps is gone through when it has grown to this
}

// Begin starts a batch.
func (s *Store) Begin() *Batch {
	return &Batch{s: s, pinned: make(map[key]struct{}), deps: make(map[cas.Hash]*record), prune: 1024}
}

// Put adds a chunk. h must be cas.Sum(raw); raw is not kept. fresh reports whether the chunk was not held and no other Put
// was storing it already. A Put that failed makes Commit fail, unless the same chunk is put again with success.
func (b *Batch) Put(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint) (fresh bool, err error) {
	fresh, _, err = b.PutRelated(kind, h, raw, hint, cas.Related{})
	return fresh, err
}

// PutRelated is Put of what is related to other records. It is stored as the rounding of its masters if it is that, else as
// its difference from the version before it, or from one that this leads back to, if that pays. Whatever is wrong with these
// does not matter. What was encoded has been decoded again and compared. Of what is fresh id is the codec. Columns that it is stored with
// the help of are put first.
func (b *Batch) PutRelated(kind cas.Kind, h cas.Hash, raw []byte, hint codec.Hint, rel cas.Related) (fresh bool, id byte, err error) {
	if len(raw) > cas.MaxChunk {
		return false, 0, fmt.Errorf("chunk %s: %d bytes: %w", h.Short(), len(raw), cas.ErrTooLarge)
	}
	if !known(kind) {
		return false, 0, fmt.Errorf("chunk %s: records of kind %d are not indexed", h.Short(), kind)
	}
	r, err := b.claim(kind, h, rel.IsZero())
	if r == nil || err != nil {
		return false, 0, err
	}
	fresh, id, full, err := b.put(r, raw, hint, rel)
	if full && err == nil {
		// This Put found the segment full and sees to its sealing: whoever writes fast pays for it.
		// What fails here fails the batches that it concerns, at their Commit.
		_ = b.s.Flush()
	}
	return fresh, id, err
}

// put is PutRelated for r, which is claimed and is settled then. full: a segment was found full.
func (b *Batch) put(r *record, raw []byte, hint codec.Hint, rel cas.Related) (fresh bool, id byte, full bool, err error) {
	s := b.s
	held, err := s.held(r)
	if held || err != nil {
		st := indexed
		if err != nil {
			st = failed
		}
		s.mu.Lock()
		s.settle(r, st, err)
		s.mu.Unlock()
		return false, 0, false, err
	}
	id, full, err = b.store(r, raw, hint, rel)
	return err == nil, id, full, err
}

// claim makes b depend on h. It returns a new record if the caller is to store h, nil if someone else is about to or
// has. plain is the record's.
func (b *Batch) claim(kind cas.Kind, h cas.Hash, plain bool) (*record, error) {
	s := b.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			return nil, ErrClosed
		}
		if b.done {
			return nil, ErrBatchDone
		}
		r := s.pending[h]
		if r == nil || r.state != claimed && !serves(r.kind, kind) {
			r = &record{hash: h, kind: kind, plain: plain, done: make(chan struct{})}
			s.pending[h] = r
			b.hold(r)
			_, r.doomed = s.doomed[keyOf(h)]
			return r, nil
		}
		if serves(r.kind, kind) {
			b.hold(r)
			return nil, nil
		}
		// Being stored as another kind, of which ours must come after.
		s.mu.Unlock()
		<-r.done
		s.mu.Lock()
	}
}

// keep pins h, which is put as a record of a kind. s.mu is held.
func (b *Batch) keep(kind cas.Kind, h cas.Hash) {
	k := keyOf(h)
	if _, ok := b.pinned[k]; !ok {
		b.pinned[k] = struct{}{}
		b.s.pins[k]++
	}
	b.touch(kind, h)
}

// touch tells sweeps of h, which is pinned. s.mu is held.
func (b *Batch) touch(kind cas.Kind, h cas.Hash) {
	s, k := b.s, keyOf(h)
	if s.touched != nil {
		s.touched[k] = struct{}{}
	}
	if kind != cas.Chunk {
		if _, ok := b.naming[h]; !ok {
			if b.naming == nil {
				b.naming = make(map[cas.Hash]struct{})
			}
			b.naming[h] = struct{}{}
			s.naming[h]++
		}
		if s.named != nil {
			s.named[h] = struct{}{}
		}
	}
}

// hold pins r and makes b depend on it. s.mu is held.
func (b *Batch) hold(r *record) {
	b.keep(r.kind, r.hash)
	b.deps[r.hash] = r
	if len(b.deps) >= b.prune {
		for h, r := range b.deps {
			if ok, _ := r.fate(); ok {
				delete(b.deps, h)
			}
		}
		b.prune = max(1024, 2*len(b.deps))
	}
}

// held asks the index for r, which is claimed.
func (s *Store) held(r *record) (bool, error) {
	if r.doomed {
		return false, nil
	}
	loc, err := one(r.hash, s.locate)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	_, r.alone = s.suspect[r.hash]
	s.mu.Unlock()
	if loc.Segment == 0 || !serves(loc.Kind, r.kind) {
		return false, nil
	}
	if r.alone || !loc.Delta {
		return !r.alone, nil
	}
	// A delta that nothing needed may have outlived its bases. One whose bases are there, and pinned now, is held.
	_, on, err := s.secure(r.hash, loc)
	if r.alone = err != nil; r.alone {
		return false, nil
	}
	s.mu.Lock()
	r.on = on
	s.mu.Unlock()
	return true, nil
}

// maxPooled is the capacity up to which buffers are kept: a rare big manifest should not stay in memory.
const maxPooled = 1 << 20

var buffers = sync.Pool{New: func() any { return new([]byte) }}

func freeBuffer(p *[]byte) {
	if cap(*p) <= maxPooled {
		buffers.Put(p)
	}
}

// store encodes raw, to which rel is related, and appends it as r, which is claimed and is settled then. full: a segment was
// found full.
func (b *Batch) store(r *record, raw []byte, hint codec.Hint, rel cas.Related) (id byte, full bool, err error) {
	s := b.s
	p := buffers.Get().(*[]byte)
	defer freeBuffer(p)
	if need := int(segment.Size(len(raw) + segment.MaxBaseSize)); cap(*p) < need {
		*p = make([]byte, 0, need)
	}
	var a *against
	if !r.alone && len(raw) <= segment.MaxBased {
		if id, a = s.encodeRounded(r.hash, raw, hint, rel.Masters, p); a == nil {
			id, a, full = b.encodeDelta(r.hash, raw, hint, rel, p)
		}
	}
	if a != nil {
		freeBuffer(a.raw)
		s.mu.Lock()
		r.on = a.on
		s.mu.Unlock()
	} else {
		id, *p = codec.Encode((*p)[:segment.RecordHeaderSize], raw, hint)
	}
	also, err := s.append(r, &segment.Record{Kind: r.kind, Codec: id, Raw: uint32(len(raw)), Hash: r.hash}, *p)
	return id, full || also, err
}

// encodeRounded sets p to room for a record's header and the payload of raw, which has hash h, as the rounding of its masters; nil: it is not that.
func (s *Store) encodeRounded(h cas.Hash, raw []byte, hint codec.Hint, masters [2]cas.Hash, p *[]byte) (id byte, a *against) {
	if masters[0].IsZero() || !codec.MayBeRounded(hint) {
		return 0, nil
	}
	a = s.take(h, segment.Base{Hash: masters[0], Second: masters[1], Number: segment.RoundedNumber}, nil)
	if a == nil {
		return 0, nil
	}
	const head = segment.RecordHeaderSize
	out := (*p)[:head+a.Size()]
	a.Put(out[head:])
	out, ok := codec.EncodeRounded(out, raw, *a.raw, hint)
	if !ok {
		freeBuffer(a.raw)
		return 0, nil
	}
	*p = out
	return codec.Rounded, a
}

// append appends rec as r, which is claimed and is settled then. buf is as segment.Writer.Write takes it.
func (s *Store) append(r *record, rec *segment.Record, buf []byte) (full bool, err error) {
	t, slot, full, err := s.reserve(len(buf) - segment.RecordHeaderSize)
	if err == nil {
		err = t.w.Write(slot, rec, buf)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if t != nil {
		t.w.Finish(slot, rec, err)
		s.finished.Broadcast()
		if err == nil {
			err = t.err
		}
	}
	if err != nil {
		s.settle(r, failed, err)
		return full, err
	}
	r.entry, r.tail = rec.Entry(t.w.Number()), t
	s.written = append(s.written, r)
	s.settle(r, written, nil)
	return full, nil
}

// reserve takes a slot in the active segment. With a segment comes the duty to finish the slot.
func (s *Store) reserve(stored int) (t *tail, slot segment.Slot, full bool, err error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, slot, full, ErrClosed
		}
		if t = s.active; t != nil {
			if slot, err = t.w.Reserve(stored); err == nil {
				s.mu.Unlock()
				return t, slot, full, nil
			}
			s.full = append(s.full, t)
			s.active = nil
			full = true
		}
		s.mu.Unlock()
		if err := s.grow(); err != nil {
			return nil, slot, full, err
		}
	}
}

// grow creates a segment unless there is one.
func (s *Store) grow() error {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.mu.Lock()
	if s.active != nil || s.closed {
		s.mu.Unlock()
		return nil
	}
	n := s.next
	s.next++ // also when it fails: the name may be taken now
	s.mu.Unlock()

	w, err := segment.Create(s.fs, s.dir, s.segment(n), s.opt.SegmentSize)
	if err != nil {
		_ = s.fs.Remove(segment.Path(s.dir, n)) // holds nothing
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = n
	t := &tail{w: w, synced: segment.FileHeaderSize}
	if s.closed {
		return w.Close() // an empty segment stays
	}
	s.active = t
	return nil
}

// Commit makes everything that was put durable; the batch takes nothing more. When it fails some of the chunks may be held
// all the same; put them again in another batch.
func (b *Batch) Commit() error {
	s := b.s
	s.mu.Lock()
	if b.done {
		s.mu.Unlock()
		return ErrBatchDone
	}
	b.done = true
	deps := make([]*record, 0, len(b.deps))
	for _, r := range b.deps {
		if ok, _ := r.fate(); !ok {
			deps = append(deps, r)
		}
	}
	b.deps = nil
	s.mu.Unlock()
	return s.commit(deps)
}

// commit waits until all of deps are in the index.
func (s *Store) commit(deps []*record) error {
	for i := 0; i < len(deps); i++ {
		<-deps[i].done
		s.mu.Lock()
		deps = append(deps, deps[i].on...)
		s.mu.Unlock()
	}
	if ok, err := s.settled(deps); ok || err != nil {
		return err
	}
	err := s.flushed(func() (bool, error) {
		// Whoever held the lock may have committed for us.
		return s.settled(deps)
	})
	if err == nil {
		_, err = s.settled(deps)
	}
	return err
}

// settled reports whether all of deps are in the index, and the error of one that failed.
func (s *Store) settled(deps []*record) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := true
	for _, r := range deps {
		in, err := r.fate()
		if err != nil {
			return false, err
		}
		ok = ok && in
	}
	return ok, nil
}

// Release lets sweeps have what the batch pinned. Call it when what was put is named by something that a sweep's mark
// finds, or was given up. Without a Commit before it ends the batch, and waits for nothing. A second call does nothing.
func (b *Batch) Release() {
	s := b.s
	s.mu.Lock()
	defer s.mu.Unlock()
	b.done = true
	for k := range b.pinned {
		s.unpin(k)
	}
	for _, k := range b.also {
		s.unpin(k)
	}
	for h := range b.naming {
		if s.naming[h]--; s.naming[h] == 0 {
			delete(s.naming, h)
		}
	}
	b.pinned, b.also, b.naming, b.deps = nil, nil, nil, nil
}
