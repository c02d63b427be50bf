package store

import (
	"cmp"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// Flush makes durable whatever was written, of open and aborted batches too.
func (s *Store) Flush() error { return s.flushed(nil) }

// flushed flushes, unless done says that there is no need. An index that proves damaged is replaced on the way.
func (s *Store) flushed(done func() (bool, error)) error {
	once := func() (gen int, err error) {
		s.flushing.Lock()
		defer s.flushing.Unlock()
		if done != nil {
			if ok, err := done(); ok || err != nil {
				return -1, err
			}
		}
		return s.renewals, s.flush() // renewals changes under flushing
	}
	for try := 0; ; try++ {
		gen, err := once()
		if gen < 0 || !s.renewable(err) || try == maxRenewals {
			return err
		}
		if err := s.renew(gen, err); err != nil {
			return err
		}
	}
}

// flush syncs the segments that hold written records, commits these to the index and seals what is full. It returns the
// error of the index; an fsync that fails fails the records that it concerns. s.flushing is held.
func (s *Store) flush() error {
	s.mu.Lock()
	for slices.ContainsFunc(s.full, func(t *tail) bool { return !t.w.Idle() }) {
		s.finished.Wait()
	}
	recs, mark := s.written, s.mark()
	s.written = nil
	s.mu.Unlock()
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
		if err := s.sync(t); err != nil {
			s.abandon(t, group[:n], err)
		} else {
			t.synced = max(t.synced, end(group[n-1].entry))
			durable = append(durable, group[:n]...)
		}
		group = group[n:]
	}

	// What is a delta of something that was just lost is lost too.
	s.mu.Lock()
	durable = slices.DeleteFunc(durable, func(r *record) bool {
		_, err := r.fate()
		if err != nil {
			s.settle(r, failed, err)
		}
		return err != nil
	})
	s.mu.Unlock()

	if len(durable) > 0 {
		entries := make([]cas.Entry, len(durable))
		for i, r := range durable {
			entries[i] = r.entry
		}
		// The mark must lie in what is durable: of a segment in which nothing is, a crash may leave no file, and of one
		// that was just abandoned less is left.
		last := entries[len(entries)-1]
		if m := (cas.Watermark{Segment: last.Segment, Off: end(last)}); m.Before(mark) {
			mark = m
		}
		if err := s.index.Commit(entries, mark); err != nil {
			s.mu.Lock()
			s.written = append(durable, s.written...) // for the next commit to try again
			s.mu.Unlock()
			return err
		}
	}
	s.mu.Lock()
	for _, r := range durable {
		s.settle(r, indexed, nil)
		delete(s.suspect, r.hash)
		s.stats.Count(&segment.Record{Kind: r.entry.Kind, Raw: r.entry.Raw, Stored: r.entry.Stored})
	}
	s.mu.Unlock()
	s.seal()
	return nil
}

func end(e cas.Entry) int64 { return e.Off + segment.Size(int(e.Stored)) }

// mark is the place before which every record is written, or failed. s.mu is held, so none is between its segment and
// s.written.
func (s *Store) mark() cas.Watermark {
	for _, t := range s.full {
		if !t.w.Idle() {
			return cas.Watermark{Segment: t.w.Number(), Off: t.w.Settled()}
		}
	}
	if t := s.active; t != nil {
		return cas.Watermark{Segment: t.w.Number(), Off: t.w.Settled()}
	}
	return cas.Watermark{Segment: s.last + 1}
}

// sync makes a segment and its name durable.
func (s *Store) sync(t *tail) error {
	if err := t.w.Sync(); err != nil {
		return err
	}
	if !t.named {
		if err := s.fs.SyncDir(s.dir); err != nil {
			return err
		}
		t.named = true
	}
	return nil
}

// abandon gives a segment up whose fsync failed with err. recs are records of it; they, and those that were written or
// are being written meanwhile, fail.
func (s *Store) abandon(t *tail, recs []*record, err error) {
	s.mu.Lock()
	t.err = err
	if s.active == t {
		s.active = nil
	}
	s.full = slices.DeleteFunc(s.full, func(f *tail) bool { return f == t })
	for !t.w.Idle() {
		s.finished.Wait()
	}
	var lost []segment.Range
	fail := func(r *record) bool {
		if r.tail != t {
			return false
		}
		s.settle(r, failed, err)
		lost = append(lost, segment.Range{Off: r.entry.Off, End: end(r.entry)})
		return true
	}
	for _, r := range recs {
		fail(r)
	}
	s.written = slices.DeleteFunc(s.written, fail)
	s.stats.Segments++
	s.stats.Abandoned++
	s.stats.Bytes += t.synced
	s.mu.Unlock()
	_ = t.w.Abandon(t.synced, lost) // as well as the disk lets us
}

// seal seals the full segments all of whose records are in the index. One that cannot be sealed is left for the next
// Open to do.
func (s *Store) seal() {
	s.mu.Lock()
	var ready []*tail
	s.full = slices.DeleteFunc(s.full, func(t *tail) bool {
		if !t.w.Idle() || slices.ContainsFunc(s.written, func(r *record) bool { return r.tail == t }) {
			return false
		}
		ready = append(ready, t)
		return true
	})
	s.mu.Unlock()
	for _, t := range ready {
		_, err := t.w.Seal(s.opt.Now())
		t.w.Close()
		s.mu.Lock()
		s.stats.Segments++
		s.stats.Bytes += t.w.Size()
		if err != nil {
			s.stats.Unsealed++
		}
		s.mu.Unlock()
	}
}
