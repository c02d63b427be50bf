package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/damage"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/cas/scratch"
	"ckptfs/cas/segment"
)

// CheckOptions say how far a check goes.
type CheckOptions struct {
	ReadData bool    // read, decode and hash every record that is in use, not its header alone
	Subset   float64 // with ReadData: that share of them, 0 to 1, chosen by Seed; 0 is all
	Seed     uint64
	Workers  int // 0: as many as processors
	// Found is called with each finding, one at a time.
	Found func(damage.Finding)
	// Progress is called now and then, one at a time; may be nil.
	Progress func(CheckStats)
}

// subset reports whether not all records are read.
func (o *CheckOptions) subset() bool { return o.Subset > 0 && o.Subset < 1 }

// CheckStats is how far a check has come.
type CheckStats struct {
	Segments, SegmentsLooked int
	Records                  int64 // in the segments
	Entries                  int64 // of the index
	Read, ReadStored         int64 // records whose content was read, and their bytes
	Findings                 int64 // that are not harmless
	Elapsed                  time.Duration
}

// Check looks at all segments and at the index, and changes nothing. It may run while the store is in use.
// What is written or removed meanwhile it may pass over. The error is the context's, or what kept the check
// from going on; damage is none.
func (s *Store) Check(ctx context.Context, opt CheckOptions) (CheckStats, error) {
	if opt.Workers <= 0 {
		opt.Workers = cas.Processors
	}
	c := &checker{s: s, opt: opt, began: s.opt.Now(), segs: map[uint32]*checked{}}
	s.appender.mu.Lock()
	closed := s.appender.closed
	s.appender.mu.Unlock()
	var tails []*segment.Tail
	tails, c.last = s.appender.tails.All()
	numbers, err := s.numbers()
	if closed {
		return c.st, ErrClosed
	}
	if err != nil {
		return c.st, err
	}
	numbers = slices.DeleteFunc(numbers, func(n uint32) bool {
		return n > c.last || slices.ContainsFunc(tails, func(t *segment.Tail) bool { return t.Number() == n })
	})
	c.st.Segments = len(numbers) + len(tails)
	for _, n := range numbers {
		if err := c.sealed(ctx, n); err != nil {
			return c.stats(), err
		}
	}
	for _, t := range tails {
		if err := c.tail(ctx, t); err != nil {
			return c.stats(), err
		}
	}
	err = c.index(ctx)
	if err == nil && opt.ReadData && !opt.subset() && c.stats().Findings == 0 {
		s.reader.trust.Vouch()
	}
	return c.stats(), err
}

type checker struct {
	s     *Store
	opt   CheckOptions
	began time.Time
	last  uint32 // newer segments are passed over
	segs  map[uint32]*checked

	telling locks.Mutex[tellingLock] // held over Found and Progress, which take leaves at most

	mu locks.Mutex[leafLock]
	st CheckStats
}

// checked is what a segment holds.
type checked struct {
	segment.Places
	end int64 // entries past it are newer than the check
}

func (c *checker) stats() CheckStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.st.Elapsed = c.s.opt.Now().Sub(c.began)
	return c.st
}

func (c *checker) found(f damage.Finding) {
	if !f.Problem.Harmless() {
		c.mu.Lock()
		c.st.Findings++
		c.mu.Unlock()
		c.s.suspects(f.Hash)
	}
	if c.opt.Found != nil {
		c.telling.Lock()
		defer c.telling.Unlock()
		c.opt.Found(f)
	}
}

func (c *checker) progress() {
	if c.opt.Progress != nil {
		c.telling.Lock()
		defer c.telling.Unlock()
		c.opt.Progress(c.stats())
	}
}

// sealed checks a segment that is no longer appended to.
func (c *checker) sealed(ctx context.Context, n uint32) error {
	s := c.s
	s.passes.reshaping.RLock()
	defer s.passes.reshaping.RUnlock()
	r, err := segment.Open(s.fs, s.dir, s.segment(n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // swept meanwhile
	}
	seen := &checked{end: 1 << 62}
	c.segs[n] = seen
	if err != nil {
		c.found(damage.Finding{Problem: damage.Unreadable, Segment: n, Err: err})
		return nil
	}
	defer r.Close()
	parts := c.parts(ctx, r, false)
	add := func(rec *segment.Record) error {
		if seen.Has(rec.Off, &rec.Hash) { // a scan finds what the footer had
			return nil
		}
		seen.Add(rec)
		return parts.Add(rec)
	}
	if size, err := r.Size(); err == nil && size < segment.FileHeaderSize {
		return c.wait(parts) // created just before a crash; holds nothing
	}
	herr := r.CheckHeader()
	ft, err := r.Footer()
	if err == nil {
		var sum segment.Totals
		seen.Places = make(segment.Places, 0, min(ft.Records, segment.MaxRecords))
		err = r.Each(ft, func(rec *segment.Record) error {
			sum.Count(rec)
			return add(rec)
		})
		if err == nil && sum != ft.Totals {
			err = fmt.Errorf("totals differ from the sum of the entries: %w", cas.ErrCorrupt)
		}
	}
	if parts.Stopped() {
		return cmp.Or(c.wait(parts), ctx.Err())
	}
	if herr != nil {
		c.found(damage.Finding{Problem: damage.BadSegment.By(herr), Segment: n, Err: herr})
	}
	switch {
	case disk.Unreadable(err):
		c.found(damage.Finding{Problem: damage.Unreadable, Segment: n, Err: err})
		err = c.scan(r, n, add)
	case errors.Is(err, segment.ErrUnsealed):
		err = c.scan(r, n, add)
		c.found(damage.Finding{Problem: damage.Unsealed, Segment: n})
	case err != nil:
		c.found(damage.Finding{Problem: damage.BadSegment.By(err), Segment: n, Err: err})
		err = nil
	}
	return cmp.Or(c.wait(parts), err)
}

// scan looks at the records of a segment without a footer. Ranges between them that hold something are
// damage.
func (c *checker) scan(r *segment.Reader, n uint32, add func(*segment.Record) error) error {
	sc, err := r.Scan(0)
	if err != nil {
		c.found(damage.Finding{Problem: damage.Unreadable, Segment: n, Err: err})
		return nil
	}
	for sc.Next() {
		if !sc.Gap() {
			err = add(sc.Record())
		} else if g, zero := sc.Range(); !zero && !sc.Holed(g) {
			c.found(damage.Finding{Problem: damage.BadSegment, Segment: n, Off: g.Off,
				Err: fmt.Errorf("%d bytes at %d hold no record: %w", g.End-g.Off, g.Off, cas.ErrCorrupt)})
		}
		if err != nil {
			return err
		}
	}
	if err := cmp.Or(sc.Err(), sc.Unread()); err != nil {
		c.found(damage.Finding{Problem: damage.Unreadable, Segment: n, Err: err})
	}
	return nil
}

// tail checks what is in the index of a segment that is being written.
func (c *checker) tail(ctx context.Context, t *segment.Tail) error {
	s, n := c.s, t.Number()
	s.passes.reshaping.RLock()
	defer s.passes.reshaping.RUnlock()
	seen := &checked{}
	c.segs[n] = seen
	recs := t.Records()
	if len(recs) > 0 {
		seen.end = recs[len(recs)-1].Off + 1
	}
	for i := range recs {
		seen.Add(&recs[i])
	}
	r, err := segment.Open(s.fs, s.dir, s.segment(n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		c.found(damage.Finding{Problem: damage.Unreadable, Segment: n, Err: err})
		return nil
	}
	defer r.Close()
	parts := c.parts(ctx, r, true)
	for i := 0; i < len(recs) && err == nil; i++ {
		err = parts.Add(&recs[i])
	}
	return cmp.Or(c.wait(parts), err)
}

// parts checks the records of one segment against the index and against what their place holds. Of a tail
// those that are not in the index are passed over.
func (c *checker) parts(ctx context.Context, r *segment.Reader, tail bool) *segment.Parts {
	return segment.NewParts(ctx, c.opt.Workers,
		func(ctx context.Context, recs []segment.Record) error { return c.some(ctx, r, recs, tail) })
}

// wait waits until all of a segment was looked at.
func (c *checker) wait(parts *segment.Parts) error {
	err := parts.Wait()
	c.mu.Lock()
	c.st.SegmentsLooked++
	c.mu.Unlock()
	c.progress()
	return err
}

func (c *checker) some(ctx context.Context, r *segment.Reader, recs []segment.Record, tail bool) error {
	s, n := c.s, r.Number()
	hashes, locs := make([]cas.Hash, len(recs)), make([]cas.Location, len(recs))
	for i := range recs {
		hashes[i] = recs[i].Hash
	}
	coming, err := s.locateHere(hashes, locs)
	blind := err != nil // which index tells of
	heads := r.Heads(recs)
	defer heads.End()
	var st CheckStats
	for i := range recs {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec, loc := &recs[i], locs[i]
		here := loc.Segment == n && loc.Off == rec.Off
		if tail && !here {
			continue
		}
		st.Records++
		if !blind && loc.Segment == 0 && rec.Kind.Indexed() && (coming == nil || !coming[i]) {
			c.found(damage.Finding{Problem: damage.NotIndexed, Segment: n, Off: rec.Off, Hash: rec.Hash,
				Kind: rec.Kind})
		}
		want := c.opt.ReadData && rec.Kind.Indexed() && (here || blind || loc.Segment == 0) &&
			c.chosen(rec.Hash)
		what, err := c.record(r, heads, rec, want)
		if want {
			st.Read++
			st.ReadStored += int64(rec.Stored)
		}
		if err != nil && !(tail && c.overtaken(rec, n)) && !c.returns(err) {
			c.found(damage.Finding{Problem: what.By(err), Segment: n, Off: rec.Off, Hash: rec.Hash,
				Kind: rec.Kind, Err: err})
		}
	}
	c.mu.Lock()
	c.st.Records += st.Records
	c.st.Read += st.Read
	c.st.ReadStored += st.ReadStored
	c.mu.Unlock()
	if st.Read > 0 {
		c.progress()
	}
	return nil
}

// overtaken reports whether a record of a tail is no longer in the index: its segment was abandoned
// meanwhile.
func (c *checker) overtaken(rec *segment.Record, n uint32) bool {
	loc, _, err := c.locate(rec.Hash)
	return err == nil && (loc.Segment != n || loc.Off != rec.Off)
}

// returns reports whether err says that a base is not there which is just being stored, or is there again.
func (c *checker) returns(err error) bool {
	for base := new(cas.ChunkError); errors.As(err, &base); err = base.Err {
		if base.Err == errNoBase {
			loc, coming, err := c.locate(base.Hash)
			return err == nil && (coming || loc.Segment != 0)
		}
	}
	return false
}

// record looks at one record, all of it or its header.
func (c *checker) record(r *segment.Reader, heads segment.Heads, rec *segment.Record, all bool) (
	damage.Problem, error) {
	loc := rec.Entry(r.Number()).Location
	var head segment.Record
	if err := heads.Read(loc, rec.Hash, &head); err != nil {
		return damage.BadRecord, err
	}
	if head.Kind != rec.Kind || head.Codec != rec.Codec {
		return damage.BadRecord, fmt.Errorf("kind or codec differ from the footer's: %w", cas.ErrCorrupt)
	}
	if !all {
		return 0, nil
	}
	return c.content(r, loc, &head)
}

// content reads the content of a record at loc, and holds it against its hashes.
func (c *checker) content(r *segment.Reader, loc cas.Location, rec *segment.Record) (damage.Problem, error) {
	raw := scratch.Get()
	defer scratch.Put(raw)
	*raw = slices.Grow((*raw)[:0], int(loc.Raw))[:loc.Raw]
	err := c.s.reader.contentIn(access{locked: true}, r, loc, rec.Hash, *raw, segment.AnyNumber)
	if err == nil {
		err = cas.Check(*raw, rec.Hash)
	}
	var base *cas.ChunkError
	if loc.Delta && errors.As(err, &base) {
		return damage.BadBase, err
	}
	if err == nil {
		return damage.BadSum, cas.CheckXXH3(*raw, rec.XXH3)
	}
	return damage.BadChunk, err
}

// chosen reports whether h is in the subset.
func (c *checker) chosen(h cas.Hash) bool {
	if !c.opt.subset() {
		return true
	}
	x := (binary.BigEndian.Uint64(h[8:]) ^ c.opt.Seed) * 0x9e3779b97f4a7c15
	return float64(x>>11)/(1<<53) < c.opt.Subset
}
