package store

import (
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// Flush makes durable whatever was written, of open and aborted batches too.
func (s *Store) Flush() error {
	a := &s.appender
	a.mu.Lock()
	recs := slices.Clone(a.written)
	a.mu.Unlock()
	s.harden(recs)
	return s.flushed(nil)
}

// harden makes recs durable that are written, with what they lead back to: their segments at the same time,
// and without a lock that any other commit needs. A segment whose fsync fails is abandoned, and with it the
// records fail.
func (s *Store) harden(recs []*record) {
	a := &s.appender
	upTo := map[*segment.Tail]uint64{}
	a.mu.Lock()
	for _, r := range recs {
		r.needLocked(upTo)
	}
	a.mu.Unlock()
	var wg sync.WaitGroup
	for t, n := range upTo {
		wg.Go(func() { a.sync(t, n) })
	}
	wg.Wait()
}

// flushed takes what is durable into the index, unless done says that there is no need. An index that proves
// damaged is replaced on the way.
func (s *Store) flushed(done func() (bool, error)) error {
	once := func() (gen int, err error) {
		s.appender.flushing.Lock()
		defer s.appender.flushing.Unlock()
		if done != nil {
			if ok, err := done(); ok || err != nil {
				return -1, err
			}
		}
		return s.indexer.renewals, s.flushLocked() // renewals changes under flushing
	}
	for try := 0; ; try++ {
		gen, err := once()
		if gen >= 0 && err == nil {
			s.drain() // what an index that failed has left
		}
		if gen < 0 || !s.indexer.renewable(err) || try == maxRenewals {
			return err
		}
		if err := s.renew(gen, err); err != nil {
			return err
		}
	}
}

// flushLocked commits the records that are durable to the index. appender.flushing is held.
func (s *Store) flushLocked() error {
	s.appender.flushing.AssertHeld()
	recs, mark := s.appender.takeDurable()
	if len(recs) == 0 {
		return s.raiseMark(mark)
	}
	slices.SortFunc(recs, func(a, b *record) int { return a.entry.Compare(b.entry.Location) })
	entries := make([]cas.Entry, 0, len(recs))
	s.appender.mu.Lock()
	for _, r := range recs {
		// What was put later as another kind may lie in another segment, and have been committed first.
		if r.next == nil || r.next.state != indexed {
			entries = append(entries, r.entry)
		}
	}
	s.appender.mu.Unlock()
	// The mark must lie in what is durable: of a segment in which nothing is, a crash may leave no file.
	last := recs[len(recs)-1].entry.Location
	if m := (cas.Watermark{Segment: last.Segment, Off: segment.End(last)}); s.appender.top.Before(m) {
		s.appender.top = m
	}
	if s.appender.top.Before(mark) {
		mark = s.appender.top
	}
	if err := s.indexer.index.Commit(entries, s.indexer.below(mark)); err != nil {
		s.appender.mu.Lock()
		s.appender.written = append(recs, s.appender.written...) // for the next commit to try again
		s.appender.mu.Unlock()
		return err
	}
	s.indexed(recs)
	return nil
}

// raiseMark sets the watermark to mark, as far as that lies in what is durable, if it was before that: what
// was written last lies before what is in the index already, or has failed. appender.flushing is held.
func (s *Store) raiseMark(mark cas.Watermark) error {
	s.appender.flushing.AssertHeld()
	if s.appender.top == (cas.Watermark{}) {
		return nil // nothing was written
	}
	if s.appender.top.Before(mark) {
		mark = s.appender.top
	}
	had, err := s.indexer.index.Watermark()
	if mark = s.indexer.below(mark); err != nil || !had.Before(mark) {
		return err
	}
	return s.indexer.index.Commit(nil, mark)
}

// takeDurable takes from written what may go into the index, and returns the place before which every record
// is among these, in the index or failed. appender.flushing is held.
func (a *appender) takeDurable() (recs []*record, mark cas.Watermark) {
	a.flushing.AssertHeld()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failLostLocked()
	a.written = slices.DeleteFunc(a.written, func(r *record) bool {
		if !r.durableLocked() {
			return false
		}
		recs = append(recs, r)
		r.tail.Indexed = max(r.tail.Indexed, segment.End(r.entry.Location))
		return true
	})
	return recs, a.markLocked()
}

// failLostLocked fails what is a delta of something that was lost. No footer has it: a start believes that of
// what a footer has the disk has all, and nobody sees to that here any more.
func (a *appender) failLostLocked() {
	a.mu.AssertHeld()
	lost := map[*segment.Tail]map[int64]bool{}
	a.written = slices.DeleteFunc(a.written, func(r *record) bool {
		_, err := r.fateLocked()
		if err != nil {
			a.settleLocked(r, failed, err)
			if lost[r.tail] == nil {
				lost[r.tail] = map[int64]bool{}
			}
			lost[r.tail][r.entry.Off] = true
		}
		return err != nil
	})
	for t, offs := range lost {
		t.Disown(offs)
	}
}

// indexed settles records that are in the index now.
func (s *Store) indexed(recs []*record) {
	for _, r := range recs {
		s.opt.Known.Wrote(r.hash)
	}
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	for _, r := range recs {
		s.appender.settleLocked(r, indexed, nil)
		s.appender.stats.Count(&segment.Record{Kind: r.entry.Kind, Raw: r.entry.Raw, Stored: r.entry.Stored})
	}
}

// markLocked is the place before which every record is taken by a flush, or failed: under mu none is between
// its segment and written. appender.flushing is held.
func (a *appender) markLocked() cas.Watermark {
	a.mu.AssertHeld()
	left := map[*segment.Tail]int64{} // where the first record lies that is not taken
	for _, r := range a.written {
		if off, ok := left[r.tail]; !ok || r.entry.Off < off {
			left[r.tail] = r.entry.Off
		}
	}
	tails, last := a.tails.All()
	for _, t := range tails {
		off, some := left[t]
		if !some && !a.tails.Takes(t) && t.Idle() {
			continue
		}
		mark := cas.Watermark{Segment: t.Number()}
		if t.Indexed > segment.FileHeaderSize { // else there may be no file after a crash
			mark.Off = min(t.Indexed, t.Settled())
			if some {
				mark.Off = min(mark.Off, off)
			}
		}
		return mark
	}
	return cas.Watermark{Segment: last + 1}
}

// abandon gives a segment up whose fsync failed with err. Its records that are not in the index fail.
func (a *appender) abandon(t *segment.Tail, err error) {
	a.flushing.Lock() // what a flush has taken was durable before
	defer a.flushing.Unlock()
	t.AwaitIdle()
	a.mu.Lock()
	if !a.tails.Remove(t) {
		a.mu.Unlock()
		return // another was told, too
	}
	var lost []segment.Range
	a.written = slices.DeleteFunc(a.written, func(r *record) bool {
		if r.tail != t {
			return false
		}
		a.settleLocked(r, failed, err)
		lost = append(lost, segment.Range{Off: r.entry.Off, End: segment.End(r.entry.Location)})
		return true
	})
	a.failLostLocked()
	a.stats.Segments++
	a.stats.Abandoned++
	a.stats.Bytes += t.Indexed
	a.mu.Unlock()
	_ = t.Abandon(t.Indexed, lost) // as well as the disk lets us
}
