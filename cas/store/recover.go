package store

import (
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
)

// recover looks at every segment, brings the index up to date and seals what a crash left open.
func (s *Store) recover() error {
	mark, err := s.indexer.index.Watermark()
	if err != nil {
		return indexError(err)
	}
	highest, err := s.indexer.index.Highest()
	if err != nil {
		return indexError(err)
	}
	// A process that was killed leaves names that no disk has.
	if err := s.fs.SyncDir(s.dir); err != nil {
		return err
	}
	numbers, err := s.numbers()
	if err != nil {
		return err
	}
	last := uint32(0)
	if len(numbers) > 0 {
		last = numbers[len(numbers)-1]
	}
	s.appender.tails.Follow(last)
	// Of those that are not there the highest counts: new segments would take its number.
	if highest > last || mark.Segment > last+1 || mark.Off > 0 && !slices.Contains(numbers, mark.Segment) {
		return fmt.Errorf("segment %d is missing: %w", max(highest, mark.Segment), ErrIndexAhead)
	}
	rc := recovery{replay: newReplay(s), from: mark, last: mark}
	rc.mark = mark
	if s.opt.ReadOnly {
		rc.refused = ErrNeedsRecovery
	}
	s.lost.Reset(numbers)
	s.indexer.floor = cas.Watermark{}
	for _, n := range numbers {
		err := rc.segment(n)
		if rc.unread(err) {
			s.lose(n, n >= mark.Segment, err)
			rc.again(n)
		} else if err != nil {
			return fmt.Errorf("%s: %w", segment.Path(s.dir, n), err)
		}
	}
	return indexError(rc.finish(s.indexer.below(rc.last)))
}

// recovery takes records that lie behind a watermark into the index.
type recovery struct {
	*replay
	from, last cas.Watermark
}

// again has the next start look at segment n, too, from behind what was found so far, if the index may lack
// what was committed there.
func (rc *recovery) again(n uint32) {
	switch x := &rc.s.indexer; {
	case rc.from == (cas.Watermark{}) || n < rc.from.Segment || x.floor != (cas.Watermark{}):
	case n == rc.last.Segment:
		x.floor = rc.last
	default:
		x.floor = cas.Watermark{Segment: n}
	}
}

func (rc *recovery) segment(n uint32) error {
	s := rc.s
	r, err := segment.Open(s.fs, s.dir, s.segment(n))
	if err != nil {
		return err
	}
	defer r.Close()
	if err := rc.settle(r); err != nil {
		return err
	}
	size, err := r.Size()
	if err != nil {
		return err
	}
	if n == rc.from.Segment && size < rc.from.Off {
		return fmt.Errorf("%d bytes, the index knows of %d: %w", size, rc.from.Off, ErrIndexAhead)
	}
	s.appender.stats.Segments++
	s.appender.stats.Bytes += r.Taken(size)
	// A damaged header does not keep records from being found; a crash may leave none.
	switch intact := r.CheckHeader(); {
	case disk.Unreadable(intact):
		s.unreadable(n, intact)
	case intact != nil && !errors.Is(intact, cas.ErrCorrupt):
		return intact
	}
	err = rc.footer(r)
	if errors.Is(err, segment.ErrUnsealed) || n >= rc.from.Segment && rc.unread(err) {
		return rc.scan(r, size)
	}
	return err
}

// settle is for a segment that has records behind the watermark: of these, and of its footer, the page cache
// may be all that there is, as they were not synced before the process ended.
func (rc *recovery) settle(r *segment.Reader) error {
	switch n := r.Number(); {
	case n < rc.from.Segment || rc.s.opt.ReadOnly:
		return nil
	case n == rc.from.Segment:
		return r.Settle(rc.from.Off)
	}
	return r.Settle(0)
}

// footer replays a sealed segment.
func (rc *recovery) footer(r *segment.Reader) error {
	t, err := r.Footer()
	if err != nil {
		return err
	}
	if r.Number() >= rc.from.Segment {
		err = r.Each(t, func(rec *segment.Record) error { return rc.add(r.Number(), rec) })
	}
	if err == nil {
		rc.s.appender.stats.Totals.Add(t.Totals)
	}
	return err
}

// scan replays a segment without a footer, and seals it.
func (rc *recovery) scan(r *segment.Reader, size int64) error {
	s, n := rc.s, r.Number()
	sc, err := r.Scan(0)
	if err != nil {
		return err
	}
	seal := true
	var recs []segment.Record
	for sc.Next() {
		if sc.Unread() != nil {
			rc.again(n) // before the mark passes what was not read
		}
		if sc.Gap() {
			if gap, zero := sc.Range(); !zero {
				rc.gap(n, gap)
			}
			continue
		}
		rec := sc.Record()
		if err := rc.add(n, rec); err != nil {
			return err
		}
		s.appender.stats.Count(rec)
		if len(recs) < segment.MaxRecords {
			recs = append(recs, *rec)
		} else {
			seal = false
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	if tail := sc.Tail(); size > tail {
		known := rc.from.Off
		if n != rc.from.Segment || known < tail {
			known = tail
		} else {
			rc.gap(n, segment.Range{Off: tail, End: known})
		}
		s.appender.stats.Leftover += max(0, size-known)
	}
	if size < segment.FileHeaderSize {
		return nil // created just before a crash
	}
	if unread := sc.Unread(); unread != nil {
		s.unreadable(n, unread)
		rc.again(n)
		return nil // it stays as it is: a disk may think better of it
	}
	if !seal || s.opt.ReadOnly || s.sealOld(n, size, recs) != nil {
		s.appender.stats.Unsealed++ // nothing hangs on it: the records are in the index
	}
	return nil
}

func (s *Store) sealOld(n uint32, before int64, recs []segment.Record) error {
	w, err := segment.OpenRW(s.fs, s.dir, s.segment(n))
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err = w.Seal(recs, s.opt.Now()); err != nil {
		return err
	}
	size, err := w.Size()
	if err == nil {
		s.appender.stats.Bytes += size - before
	}
	return err
}

// gap counts a range without a valid record. What lies behind the watermark is a write that a crash cut
// short.
func (rc *recovery) gap(n uint32, g segment.Range) {
	st := &rc.s.appender.stats
	known := g.End
	if rc.from.Segment != 0 && rc.from.Before(cas.Watermark{Segment: n, Off: g.End}) {
		known = g.Off
		if n == rc.from.Segment {
			known = max(g.Off, rc.from.Off)
		}
	}
	if known > g.Off {
		st.Damaged++
		st.DamagedBytes += known - g.Off
	}
	st.Leftover += g.End - known
}

// add takes a record into the index if it lies behind the watermark and is of a kind that belongs there.
func (rc *recovery) add(n uint32, rec *segment.Record) error {
	if !rec.Kind.Indexed() || (cas.Watermark{Segment: n, Off: rec.Off}).Before(rc.from) {
		return nil
	}
	rc.last = cas.Watermark{Segment: n, Off: rec.End()}
	if rc.from != (cas.Watermark{}) {
		rc.mark = rc.s.indexer.below(rc.last)
	}
	return indexError(rc.replay.add(n, rec))
}

// indexError marks an error of the index's that tells of damage.
func indexError(err error) error {
	if errors.Is(err, cas.ErrCorrupt) {
		return fmt.Errorf("%w: %w", errIndexCorrupt, err)
	}
	return err
}
