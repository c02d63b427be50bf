package store

import (
	"cmp"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// Flush makes durable whatever was written, of open and aborted batches too.
func (s *Store) Flush() error { return s.flushed(nil) }

// flushed flushes, unless done says that there is no need. An index that proves damaged is replaced on the
// way.
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
		if gen < 0 || !s.indexer.renewable(err) || try == maxRenewals {
			return err
		}
		if err := s.renew(gen, err); err != nil {
			return err
		}
	}
}

// flushLocked syncs the segments that hold written records, commits these to the index and seals what is
// full. It returns the error of the index; an fsync that fails fails the records that it concerns.
// appender.flushing is held.
func (s *Store) flushLocked() error {
	s.appender.flushing.AssertHeld()
	s.appender.mu.Lock()
	for slices.ContainsFunc(s.appender.full, func(t *tail) bool { return !t.w.Idle() }) {
		s.appender.finished.Wait()
	}
	recs, mark := s.appender.written, s.appender.markLocked()
	s.appender.written = nil
	s.appender.mu.Unlock()
	slices.SortFunc(recs, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.entry.Segment, b.entry.Segment), cmp.Compare(a.entry.Off, b.entry.Off))
	})

	durable := recs[:0:0]
	for group := recs; len(group) > 0; {
		t := group[0].tail
		n := slices.IndexFunc(group, func(r *record) bool { return r.tail != t })
		if n < 0 {
			n = len(group)
		}
		if err := s.appender.sync(t); err != nil {
			s.appender.abandon(t, group[:n], err)
		} else {
			t.synced = max(t.synced, end(group[n-1].entry))
			durable = append(durable, group[:n]...)
		}
		group = group[n:]
	}

	// What is a delta of something that was just lost is lost too.
	s.appender.mu.Lock()
	durable = slices.DeleteFunc(durable, func(r *record) bool {
		_, err := r.fateLocked()
		if err != nil {
			s.appender.settleLocked(r, failed, err)
		}
		return err != nil
	})
	s.appender.mu.Unlock()

	if len(durable) > 0 {
		entries := make([]cas.Entry, len(durable))
		for i, r := range durable {
			entries[i] = r.entry
		}
		// The mark must lie in what is durable: of a segment in which nothing is, a crash may leave no file,
		// and of one that was just abandoned less is left.
		last := entries[len(entries)-1]
		if m := (cas.Watermark{Segment: last.Segment, Off: end(last)}); m.Before(mark) {
			mark = m
		}
		if err := s.indexer.index.Commit(entries, mark); err != nil {
			s.appender.mu.Lock()
			s.appender.written = append(durable, s.appender.written...) // for the next commit to try again
			s.appender.mu.Unlock()
			return err
		}
	}
	s.indexed(durable)
	s.appender.seal(s.opt.Now())
	return nil
}

// indexed settles records that are in the index now.
func (s *Store) indexed(recs []*record) {
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	for _, r := range recs {
		s.appender.settleLocked(r, indexed, nil)
		delete(s.pins.suspect, r.hash)
		s.appender.stats.Count(&segment.Record{Kind: r.entry.Kind, Raw: r.entry.Raw, Stored: r.entry.Stored})
	}
}

func end(e cas.Entry) int64 { return e.Off + segment.Size(int(e.Stored)) }

// markLocked is the place before which every record is written, or failed: under mu none is between its
// segment and written.
func (a *appender) markLocked() cas.Watermark {
	a.mu.AssertHeld()
	for _, t := range a.full {
		if !t.w.Idle() {
			return cas.Watermark{Segment: t.w.Number(), Off: t.w.Settled()}
		}
	}
	if t := a.active; t != nil {
		return cas.Watermark{Segment: t.w.Number(), Off: t.w.Settled()}
	}
	return cas.Watermark{Segment: a.last + 1}
}

// sync makes a segment and its name durable.
func (a *appender) sync(t *tail) error {
	if err := t.w.Sync(); err != nil {
		return err
	}
	if !t.named {
		if err := a.fs.SyncDir(a.dir); err != nil {
			return err
		}
		t.named = true
	}
	return nil
}

// abandon gives a segment up whose fsync failed with err. recs are records of it; they, and those that were
// written or are being written meanwhile, fail.
func (a *appender) abandon(t *tail, recs []*record, err error) {
	a.mu.Lock()
	t.err = err
	if a.active == t {
		a.active = nil
	}
	a.full = slices.DeleteFunc(a.full, func(f *tail) bool { return f == t })
	for !t.w.Idle() {
		a.finished.Wait()
	}
	var lost []segment.Range
	fail := func(r *record) bool {
		if r.tail != t {
			return false
		}
		a.settleLocked(r, failed, err)
		lost = append(lost, segment.Range{Off: r.entry.Off, End: end(r.entry)})
		return true
	}
	for _, r := range recs {
		fail(r)
	}
	a.written = slices.DeleteFunc(a.written, fail)
	a.stats.Segments++
	a.stats.Abandoned++
	a.stats.Bytes += t.synced
	a.mu.Unlock()
	_ = t.w.Abandon(t.synced, lost) // as well as the disk lets us
}

// seal seals the full segments all of whose records are in the index. One that cannot be sealed is left for
// the next Open to do.
func (a *appender) seal(now time.Time) {
	a.mu.Lock()
	var ready []*tail
	a.full = slices.DeleteFunc(a.full, func(t *tail) bool {
		if !t.w.Idle() || slices.ContainsFunc(a.written, func(r *record) bool { return r.tail == t }) {
			return false
		}
		ready = append(ready, t)
		return true
	})
	a.mu.Unlock()
	for _, t := range ready {
		_, err := t.w.Seal(now)
		t.w.Close()
		a.mu.Lock()
		a.stats.Segments++
		a.stats.Bytes += t.w.Size()
		if err != nil {
			a.stats.Unsealed++
		}
		a.mu.Unlock()
	}
}
