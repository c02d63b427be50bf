package store

import (
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// recover looks at every segment, brings the index up to date and seals what a crash left open.
func (s *Store) recover() error {
	mark, err := s.index.Watermark()
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
	if len(numbers) > 0 {
		s.last = numbers[len(numbers)-1]
	}
	s.next = s.last + 1
	if mark.Segment > s.next || mark.Off > 0 && !slices.Contains(numbers, mark.Segment) {
		return fmt.Errorf("segment %d is missing: %w", mark.Segment, ErrIndexAhead)
	}
	rp := replay{intake: newIntake(s), from: mark, last: mark}
	rp.mark = mark
	if s.opt.ReadOnly {
		rp.refused = ErrNeedsRecovery
	}
	for _, n := range numbers {
		if err := rp.segment(n); err != nil {
			return fmt.Errorf("%s: %w", segment.Path(s.dir, n), err)
		}
	}
	return indexError(rp.finish(rp.last))
}

// replay takes records that lie behind a watermark into the index.
type replay struct {
	*intake
	from, last cas.Watermark
}

func (rp *replay) segment(n uint32) error {
	s := rp.s
	r, err := segment.Open(s.fs, s.dir, s.segment(n))
	if err != nil {
		return err
	}
	defer r.Close()
	size, err := r.Size()
	if err != nil {
		return err
	}
	if n == rp.from.Segment && size < rp.from.Off {
		return fmt.Errorf("%d bytes, the index knows of %d: %w", size, rp.from.Off, ErrIndexAhead)
	}
	s.stats.Segments++
	s.stats.Bytes += taken(r, size)
	// A damaged header does not keep records from being found; a crash may leave none.
	intact := r.CheckHeader()
	if intact != nil && !errors.Is(intact, cas.ErrCorrupt) {
		return intact
	}
	switch err := rp.footer(r); {
	case err == nil:
	case !errors.Is(err, segment.ErrUnsealed):
		return err
	default:
		return rp.scan(r, size)
	}
	return nil
}

// footer replays a sealed segment.
func (rp *replay) footer(r *segment.Reader) error {
	t, err := r.Footer()
	if err != nil {
		return err
	}
	if r.Number() >= rp.from.Segment {
		err = r.Each(t, func(rec *segment.Record) error { return rp.add(r.Number(), rec) })
	}
	if err == nil {
		rp.s.stats.Totals.Add(t.Totals)
	}
	return err
}

// scan replays a segment without a footer, and seals it.
func (rp *replay) scan(r *segment.Reader, size int64) error {
	s, n := rp.s, r.Number()
	// Before anything is looked at: what reads find may be in the page cache only.
	if err := r.Sync(); err != nil {
		return err
	}
	sc, err := r.Scan(0)
	if err != nil {
		return err
	}
	seal := true
	var recs []segment.Record
	for sc.Next() {
		if sc.Gap() {
			if gap, zero := sc.Range(); !zero {
				rp.gap(n, gap)
			}
			continue
		}
		rec := sc.Record()
		if err := rp.add(n, rec); err != nil {
			return err
		}
		s.stats.Count(rec)
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
		known := rp.from.Off
		if n != rp.from.Segment || known < tail {
			known = tail
		} else {
			rp.gap(n, segment.Range{Off: tail, End: known})
		}
		s.stats.Leftover += max(0, size-known)
	}
	if size < segment.FileHeaderSize {
		return nil // created by a crash's last breath
	}
	if !seal || s.opt.ReadOnly || s.sealOld(n, size, recs) != nil {
		s.stats.Unsealed++ // nothing hangs on it: the records are in the index
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
		s.stats.Bytes += size - before
	}
	return err
}

// taken is what a segment takes on the disk: holes count for nothing. Unlike the blocks it is exact for one without holes.
func taken(r *segment.Reader, size int64) int64 {
	if n, err := r.Allocated(); err == nil && n < size {
		return n
	}
	return size
}

// gap counts a range without a valid record. What lies behind the watermark is a write that a crash cut short.
func (rp *replay) gap(n uint32, g segment.Range) {
	st := &rp.s.stats
	known := g.End
	if rp.from.Segment != 0 && rp.from.Before(cas.Watermark{Segment: n, Off: g.End}) {
		known = g.Off
		if n == rp.from.Segment {
			known = max(g.Off, rp.from.Off)
		}
	}
	if known > g.Off {
		st.Damaged++
		st.DamagedBytes += known - g.Off
	}
	st.Leftover += g.End - known
}

// add takes a record into the index if it lies behind the watermark and is of a kind that belongs there.
func (rp *replay) add(n uint32, rec *segment.Record) error {
	if !known(rec.Kind) || (cas.Watermark{Segment: n, Off: rec.Off}).Before(rp.from) {
		return nil
	}
	rp.last = cas.Watermark{Segment: n, Off: rec.End()}
	if rp.from != (cas.Watermark{}) {
		rp.mark = rp.last
	}
	return indexError(rp.intake.add(n, rec))
}

// indexError marks an error of the index's that tells of damage.
func indexError(err error) error {
	if errors.Is(err, cas.ErrCorrupt) {
		return fmt.Errorf("%w: %w", errIndexCorrupt, err)
	}
	return err
}
