package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/delta"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/cas/scratch"
	"ckptfs/cas/segment"
	"ckptfs/cas/spilled"
)

// ErrCompacting: another compaction is under way.
var ErrCompacting = errors.New("another compaction is under way: try again once it has ended")

// Compaction stores chunks again, in less room, while the store is in use. Recode appends a chunk as it would
// be stored today if that takes less; from the batch's Commit on the index names that record, and Retire
// takes the one before out of its segment, once the new one was read, decoded and held against its hash. It
// may end after any step: what it leaves of replaced records goes with the next one, or with the next sweep.
//
// A record may get any lower number than it had, since whatever is written against it has a higher one. It
// may get a higher one only when no segment holds a delta of that number or a lower one that is written
// against it, needed or not: a start without an index takes of several records of a chunk the one of the
// lowest number, and each of them must be of use then.
//
// A record may lead back to more others than it did only as far as each recipe that leads to it has room for
// (delta.MostLed), shared out among all that this leads to.
type Compaction struct {
	s      *Store
	dryRun bool
	lowest *spilled.Least // of bases: the number of what is written against them, when it began
	led    *spilled.Least // of what recipes lead back to: to how many others it may, itself
	blind  bool           // a segment cannot be read: what is written against what is not known

	done *spilled.Set // columns that were not there, and versions before that were tried

	mu  locks.Mutex[leafLock]
	old map[uint32]bool // segments that hold what was replaced
	st  CompactStats
}

// CompactStats is what a compaction did, or would do.
type CompactStats struct {
	Looked        int64 // chunks at which it looked
	Records       int64 // that were stored again
	Before, After int64 // what these took, and take
	Freed, Copied int64 // bytes that the disk got back, and that were written to that end
}

// Compact begins a compaction, which must be ended. With dryRun it changes nothing.
func (s *Store) Compact(ctx context.Context, dryRun bool) (*Compaction, error) {
	if !s.passes.compacting.TryLock() {
		return nil, ErrCompacting
	}
	c := &Compaction{s: s, dryRun: dryRun, lowest: spilled.NewLeast(s.opt.Spill),
		led: spilled.NewLeast(s.opt.Spill), old: map[uint32]bool{}, done: spilled.NewSet(s.opt.Spill)}
	s.pins.beginCompaction()
	if err := c.begin(ctx); err != nil {
		c.End()
		return nil, err
	}
	return c, nil
}

// begin finds out what is written against what.
func (c *Compaction) begin(ctx context.Context) error {
	s := c.s
	if !c.dryRun {
		if err := s.roll(); err != nil {
			return err
		}
	}
	for _, sealed := range []bool{false, true} {
		unread, err := s.deltasIn(ctx, sealed, 0, c.against)
		if err != nil {
			return err
		}
		c.blind = c.blind || len(unread) > 0
	}
	return nil
}

// against notes what a delta is written against.
func (c *Compaction) against(d deltaRecord) error {
	b, _, err := c.s.reader.baseOf(d.hash, d.loc)
	if errors.Is(err, cas.ErrCorrupt) {
		return nil
	}
	if disk.Unreadable(err) {
		c.blind = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("segment %08d: what is stored against what cannot be told: %w", d.loc.Segment, err)
	}
	for _, h := range b.Hashes() {
		c.lowest.Note(keyOf(h), b.Number)
	}
	if b.Number == segment.RecipeNumber {
		all := c.s.reader.leads(d.hash, d.loc)
		room := max(0, delta.MostLed-len(all)) / max(1, len(all))
		for h, at := range all {
			c.led.Note(keyOf(h), uint8(min(delta.MostLed, len(c.s.reader.leads(h, at))+room)))
		}
	}
	return nil
}

// End ends the compaction.
func (c *Compaction) End() {
	c.s.pins.endCompaction()
	c.s.passes.compacting.Unlock()
}

// Stats is what was done so far.
func (c *Compaction) Stats() CompactStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st
}

// Recode stores chunk h, if it is held, as it would be stored today with the help of what it is related to,
// when that takes less. A rounding or a recipe stays as it is, unless apart, which is told its bases, has it
// stored without them though that takes more: then they can go. Where it and the version before are stored
// alone, and others against it, the version before is stored against it instead. saved reports whether
// anything was stored again. What is wrong with the chunk is not Recode's business, and it stays as it is.
// The error is of writing, or that of Options.Room, after which the batch may be committed, and the chunk
// tried again.
func (c *Compaction) Recode(b *Batch, h cas.Hash, hint codec.Hint, rel cas.Related,
	apart func(was *segment.Base) bool) (saved bool, err error) {
	s := c.s
	if ok, err := b.pin(h); !ok || err != nil {
		return false, err
	}
	at, err := s.locateNow(false, h)
	if err != nil || at.Segment == 0 || at.Kind != cas.Chunk || at.Raw > cas.MaxChunk {
		return false, err
	}
	was, at, err := s.reader.baseOf(h, at)
	if err != nil {
		return false, nil
	}
	without := was.Number >= segment.RoundedNumber && apart != nil && apart(&was)
	if without {
		rel.Masters, rel.Recipe = [2]cas.Hash{}, nil
	} else if was.Number >= segment.RoundedNumber {
		return false, nil // it takes next to nothing
	}
	raw, buf := scratch.Get(), scratch.Get()
	defer scratch.Put(raw)
	defer scratch.Put(buf)
	*raw = slices.Grow((*raw)[:0], int(at.Raw))[:at.Raw]
	var old segment.Record
	if s.reader.readAs(access{rec: &old}, at, h, *raw, byHash) != nil {
		return false, nil
	}
	rel.XXH3 = cas.SumXXH3(*raw)
	c.mu.Lock()
	c.st.Looked++
	c.mu.Unlock()
	r := &record{hash: h, kind: cas.Chunk, done: make(chan struct{})}
	id, a, fixed := c.encode(r, *raw, hint, rel, was, buf)
	number := uint8(0)
	if a != nil {
		defer scratch.Put(a.raw)
		number = a.Number
	}
	if now := len(*buf) - segment.RecordHeaderSize; !without && old.XXH3 == rel.XXH3 &&
		!delta.Better(now, number, int(at.Stored), was.Number) {
		if fixed && c.first(rel.Prev) {
			return c.Recode(b, rel.Prev, hint, cas.Related{Prev: h}, nil)
		}
		return false, nil
	}
	if !c.dryRun {
		n := segment.Size(len(*buf))
		if id == codec.LowRank {
			n += segment.Size(len(rel.Columns.Raw))
		}
		written, err := s.room(n)
		if err != nil {
			return false, err
		}
		defer written()
	}
	columns := int64(0)
	if id == codec.LowRank {
		if columns, err = c.columns(b, r.hash, a, rel.Columns, hint); columns < 0 {
			return false, err
		}
	}
	if !c.dryRun {
		if a != nil {
			r.on = a.on
		}
		deeper := a != nil && len(a.led) > len(s.reader.leads(h, at))
		if deeper && !c.led.Over(keyOf(h), uint8(min(len(a.led), 256)-1)) {
			return false, nil
		}
		if ok, err := c.claim(b, r, at, number, was.Number, deeper); !ok || err != nil {
			return false, err
		}
		full, err := s.appender.append(r, &segment.Record{Kind: cas.Chunk, Codec: id, Raw: at.Raw, Hash: h,
			XXH3: rel.XXH3}, *buf)
		if err != nil {
			return false, err
		}
		if full {
			s.filled()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.old[at.Segment] = true
	c.st.Records++
	c.st.Before += segment.Size(int(at.Stored))
	c.st.After += segment.Size(len(*buf)-segment.RecordHeaderSize) + columns
	return true, nil
}

// encode sets buf to room for a record's header and the payload of r, which is not claimed yet, as it would
// be stored today, against a; nil: alone. was is what the record that there is says of its base. fixed: what
// is stored against it keeps it from being a delta of the version before, but that may be one of it.
func (c *Compaction) encode(r *record, raw []byte, hint codec.Hint, rel cas.Related, was segment.Base,
	buf *[]byte) (id byte, a *against, fixed bool) {
	s := c.s
	if need := int(segment.Size(len(raw) + segment.MaxBaseSize)); cap(*buf) < need {
		*buf = make([]byte, 0, need)
	}
	if len(raw) <= segment.MaxBased {
		if !c.mayRise(r.hash, segment.RecipeNumber) {
			rel.Recipe = nil
		}
		if !c.mayRise(r.hash, segment.RoundedNumber) {
			rel.Masters = [2]cas.Hash{}
		}
		if id, a = s.encodeComputed(r.hash, raw, hint, rel, buf); a != nil {
			return id, a, false
		}
		a = s.choose(r.hash, rel)
		if a != nil && a.Number > was.Number && !c.mayRise(r.hash, a.Number) {
			a.Number = segment.BaseNumber(a.Number) + 1 // the lowest against the same base
		}
		if a != nil && a.Number > was.Number && !c.mayRise(r.hash, a.Number) {
			fixed = a.Number == 1 && a.Hash == rel.Prev && c.mayRise(rel.Prev, 1)
			scratch.Put(a.raw)
			a = nil
		}
		if a == nil && was.Number > 0 && was.Number <= segment.MaxNumber {
			a = s.read(segment.Base{Hash: was.Hash, Number: was.Number}, cas.Location{}, rel.Base)
		}
		if a != nil {
			id, ok := delta.Encode(buf, &a.Base, *a.raw, raw, hint, rel)
			if ok && s.leanOn(r.hash, a.Hash, a) {
				return id, a, false
			}
			scratch.Put(a.raw)
		}
	}
	id, *buf = codec.Encode((*buf)[:segment.RecordHeaderSize], raw, hint)
	return id, nil, fixed
}

// columns has the columns that the record of h, encoded against a, needs, put, and says how many more bytes
// these take; less than 0: they are not available.
func (c *Compaction) columns(b *Batch, h cas.Hash, a *against, cols *cas.Columns, hint codec.Hint) (
	size int64, err error) {
	s := c.s
	was, err := s.locateNow(false, cols.Hash)
	if err != nil {
		return -1, err
	}
	if !c.dryRun {
		full, ok := b.columns(h, a, cols, hint)
		if full {
			s.filled()
		}
		if !ok {
			return -1, nil
		}
	}
	if was.Segment != 0 || !c.first(cols.Hash) {
		return 0, nil
	}
	if now, err := s.locateNow(false, cols.Hash); err == nil && now.Segment != 0 {
		return segment.Size(int(now.Stored)), nil
	}
	return segment.Size(len(cols.Raw)), nil
}

// first notes that columns were put, or a version before was tried, and reports whether they had not been.
func (c *Compaction) first(h cas.Hash) bool { return c.done.Add(keyOf(h)) }

// mayRise reports whether the record of h may get a number that is higher than the one that it has.
func (c *Compaction) mayRise(h cas.Hash, number uint8) bool {
	c.s.pins.mu.Lock()
	_, linked := c.s.pins.linked[keyOf(h)]
	c.s.pins.mu.Unlock()
	return !linked && c.mightRise(h, number)
}

// mightRise is mayRise as far as what was written before the compaction began tells.
func (c *Compaction) mightRise(h cas.Hash, number uint8) bool {
	return !c.blind && c.lowest.Over(keyOf(h), number)
}

// claim has r take the place of the record at a location, if it still is in the index. With true it must be
// appended.
func (c *Compaction) claim(b *Batch, r *record, at cas.Location, number, was uint8, deeper bool) (
	bool, error) {
	s := c.s
	if ok, err := c.replace(b, r, number, was, deeper); !ok || err != nil {
		return false, err
	}
	now, err := one(r.hash, s.locate)
	if err == nil && now.Segment == at.Segment && now.Off == at.Off {
		return true, nil
	}
	st := indexed // it was moved, or stored again, just now
	if err == nil && now.Segment == 0 {
		err = &cas.ChunkError{Hash: r.hash, Loc: at, Err: cas.ErrNotFound}
	}
	if err != nil {
		st = failed
	}
	s.appender.settle(r, st, err)
	return false, err
}

// replace makes r, which a batch holds then, the pending record of its hash. false: another is, a sweep is
// just taking what the index has of it, it is held as it is (Batch.Hold), or something was written against
// it, so that its number may not rise, nor what it leads back to become more.
func (c *Compaction) replace(b *Batch, r *record, number, was uint8, deeper bool) (bool, error) {
	s := c.s
	might := c.mightRise(r.hash, number)
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	_, linked := s.pins.linked[keyOf(r.hash)]
	switch {
	case s.appender.closed:
		return false, ErrClosed
	case b.done:
		return false, ErrBatchDone
	case s.pins.fixedLocked(keyOf(r.hash)) || s.appender.pending[r.hash] != nil ||
		(number > was || deeper) && linked || number > was && !might:
		return false, nil
	}
	r.rising = number > was || deeper
	s.appender.pending[r.hash] = r
	b.holdLocked(r)
	return true, nil
}

// pin keeps h from sweeps until b is released. false: one is just taking it, or it is held as it is.
func (b *Batch) pin(h cas.Hash) (bool, error) {
	s := b.s
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	if s.appender.closed {
		return false, ErrClosed
	}
	if b.done {
		return false, ErrBatchDone
	}
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	if s.pins.fixedLocked(keyOf(h)) {
		return false, nil
	}
	b.keepLocked(cas.Chunk, h)
	return true, nil
}

// fixedLocked reports whether a sweep is just taking k, or a batch holds it as it is.
func (p *pins) fixedLocked(k key) bool {
	p.mu.AssertHeld()
	_, doomed := p.doomed[k]
	return doomed || p.steady[k] > 0
}

// Retire takes what was replaced, by batches that were committed, out of the segments.
func (c *Compaction) Retire(ctx context.Context) error {
	if c.dryRun {
		return nil
	}
	s := c.s
	s.passes.sweeping.Lock()
	defer s.passes.sweeping.Unlock()
	numbers, err := s.appender.tails.Sealed()
	if err != nil {
		return err
	}
	c.mu.Lock()
	numbers = slices.DeleteFunc(numbers, func(n uint32) bool { return !c.old[n] })
	for _, n := range numbers {
		delete(c.old, n)
	}
	c.mu.Unlock()
	w := sweep{s: s, opt: SweepOptions{MaxUnused: DefaultMaxUnused}, deadline: s.opt.Now(), keep: true}
	again, err := w.segments(ctx, numbers)
	if err == nil && len(again) > 0 && w.st.Freed > 0 {
		w.err = nil
		_, err = w.segments(ctx, again)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.st.Freed += w.st.Freed
	c.st.Copied += w.st.Copied
	if err == nil && errors.Is(w.err, syscall.ENOSPC) {
		return nil // a later sweep gets it
	}
	if err == nil {
		err = w.err
	}
	return err
}
