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
	rp := replay{s: s, from: mark, mark: mark, twins: twins{}}
	for _, n := range numbers {
		if err := rp.segment(n); err != nil {
			return fmt.Errorf("%s: %w", segment.Path(s.dir, n), err)
		}
	}
	return rp.finish()
}

// replay takes records that lie behind a watermark into the index.
type replay struct {
	s       *Store
	from    cas.Watermark
	entries []cas.Entry
	mark    cas.Watermark
	twins   twins
}

// fresh reports whether the index is made from nothing. Its watermark is kept at zero until the end then, so that a start goes on where this was
// cut short: at the beginning.
func (rp *replay) fresh() bool { return rp.from == cas.Watermark{} }

// finish ends the replay.
func (rp *replay) finish() error {
	if err := rp.commit(); err != nil {
		return err
	}
	better, err := rp.twins.resolve(rp.s)
	if err != nil {
		return indexError(err)
	}
	if len(better) == 0 && (!rp.fresh() || rp.mark == rp.from) {
		return nil
	}
	return indexError(rp.s.index.Commit(better, rp.mark))
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
	if (cas.Watermark{Segment: n, Off: rec.Off}).Before(rp.from) {
		return nil
	}
	if !known(rec.Kind) {
		return nil
	}
	rp.entries = append(rp.entries, rec.Entry(n))
	rp.mark = cas.Watermark{Segment: n, Off: rec.End()}
	if len(rp.entries) < rp.s.opt.ReplayBatch {
		return nil
	}
	return rp.commit()
}

func (rp *replay) commit() error {
	if len(rp.entries) == 0 {
		return nil
	}
	if rp.s.opt.ReadOnly {
		return ErrNeedsRecovery
	}
	mark := rp.mark
	if rp.fresh() {
		mark = rp.from
	}
	entries, err := rp.s.lowest(rp.entries, rp.twins)
	if err == nil {
		err = rp.s.index.Commit(entries, mark)
	}
	rp.entries = rp.entries[:0]
	return indexError(err)
}

// lowest takes out of entries, which lie behind what the index has, the records of which there is one of a lower number: what
// was stored since may be written against that one. Of equals the last one is as good. Mostly there is one record of a chunk;
// more are left by a Compaction that was cut short, by a chunk that was stored afresh, and by a salvage, behind later ones. Of deltas among them t
// is told.
func (s *Store) lowest(entries []cas.Entry, t twins) ([]cas.Entry, error) {
	var hashes []cas.Hash
	for i := range entries {
		if entries[i].Delta {
			hashes = append(hashes, entries[i].Hash)
		}
	}
	if len(hashes) == 0 {
		return entries, nil
	}
	locs := make([]cas.Location, len(hashes))
	if err := s.index.Locate(hashes, locs); err != nil {
		return nil, err
	}
	have := map[key]cas.Location{}
	for i, l := range locs {
		if l.Segment != 0 {
			have[keyOf(hashes[i])] = l
		}
	}
	number := func(h cas.Hash, l cas.Location) uint8 {
		if !l.Delta {
			return 0
		}
		b, err := s.baseAt(l, h)
		if err != nil {
			return anyNumber
		}
		return b.Number
	}
	return slices.DeleteFunc(entries, func(e cas.Entry) bool {
		l, ok := have[keyOf(e.Hash)]
		if ok && e.Delta && l.Delta {
			t.add(e.Hash, l, e.Location)
		}
		if ok && e.Delta && serves(l.Kind, e.Kind) && number(e.Hash, l) < number(e.Hash, e.Location) {
			return true
		}
		have[keyOf(e.Hash)] = e.Location
		return false
	}), nil
}

// indexError marks an error of the index's that tells of damage.
func indexError(err error) error {
	if errors.Is(err, cas.ErrCorrupt) {
		return fmt.Errorf("%w: %w", errIndexCorrupt, err)
	}
	return err
}
