package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// locate asks the index. One that proves damaged is replaced on the way; then, too, the answer is right.
func (s *Store) locate(hashes []cas.Hash, locs []cas.Location) error {
	for try := 0; ; try++ {
		gen, err := s.indexer.locateOnce(hashes, locs)
		if !s.indexer.renewable(err) || try == maxRenewals {
			return err
		}
		if err := s.renew(gen, err); err != nil {
			return err
		}
	}
}

// renew makes a new index while the store is in use; gen is the number of the one that is damaged. Whatever
// asks the index waits. A caller holds none of the locks from passes.reshaping on.
func (s *Store) renew(gen int, reason error) error {
	s.passes.reshaping.Lock() // else what a sweep is just taking from a segment would be found there
	defer s.passes.reshaping.Unlock()
	s.appender.flushing.Lock()
	defer s.appender.flushing.Unlock()
	s.indexer.mu.Lock()
	defer s.indexer.mu.Unlock()
	if s.indexer.renewals != gen {
		return s.indexer.err // it was made
	}
	s.indexer.renewals++
	x, err := s.indexer.renewal(reason)
	if err == nil {
		s.indexer.index, s.indexer.floor = x, cas.Watermark{}
		err = s.refillLocked()
	}
	if err != nil {
		s.indexer.err = fmt.Errorf("the index is damaged and could not be made again: %w", err)
	}
	return s.indexer.err
}

// refillLocked takes what is durable in the segments into the index, which is empty. flushing is held, and
// nothing else uses the index.
func (s *Store) refillLocked() error {
	s.appender.flushing.AssertHeld()
	s.indexer.mu.AssertHeld()
	s.appender.mu.Lock()
	tails, last := s.appender.tails.All()
	volatile := map[cas.Watermark]bool{} // where what is written lies that is perhaps not durable
	for _, r := range s.appender.written {
		volatile[cas.Watermark{Segment: r.entry.Segment, Off: r.entry.Off}] = true
	}
	durable := make([][]segment.Record, len(tails)) // before more is finished, which is in neither
	for i, t := range tails {
		durable[i] = slices.DeleteFunc(t.Records(), func(rec segment.Record) bool {
			return rec.End() > t.Indexed || volatile[cas.Watermark{Segment: t.Number(), Off: rec.Off}]
		})
	}
	s.appender.mu.Unlock()
	numbers, err := s.numbers()
	if err != nil {
		return err
	}
	in := newReplay(s)
	for _, n := range numbers {
		i := slices.IndexFunc(tails, func(t *segment.Tail) bool { return t.Number() == n })
		switch {
		case n > last || s.lost.Unsettled(n):
		case i < 0:
			if err = in.sealed(n); in.unread(err) {
				s.lose(n, false, err)
				err = nil
			}
		default:
			for j := range durable[i] {
				if err = in.add(n, &durable[i][j]); err != nil {
					break
				}
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", segment.Path(s.dir, n), err)
		}
	}
	// A start has to look at the segments that are still being written.
	mark := cas.Watermark{Segment: last + 1}
	for _, t := range tails {
		if m := (cas.Watermark{Segment: t.Number()}); m.Before(mark) {
			mark = m
		}
	}
	return in.finish(mark)
}

// sealed takes the records of a segment that is no longer appended to.
func (in *replay) sealed(n uint32) error {
	s := in.s
	r, err := segment.Open(s.fs, s.dir, s.segment(n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	unread, err := r.Records(func(rec *segment.Record) error { return in.add(n, rec) })
	if unread != nil {
		s.unreadable(n, unread)
	}
	return err
}

// doubtAgain is how long an index that was found sound is not looked through again.
const doubtAgain = 10 * time.Minute

// doubted is asked when the index does not have what it should have: it has the index looked through, and
// reports whether that led to a new one.
func (s *Store) doubted() bool {
	if s.indexer.renewal == nil {
		return false
	}
	s.indexer.doubting.Lock()
	defer s.indexer.doubting.Unlock()
	now := s.opt.Now()
	if !s.indexer.sound.IsZero() && now.Sub(s.indexer.sound) < doubtAgain {
		return false
	}
	gen, err := s.indexer.examine()
	if !s.indexer.renewable(err) {
		s.indexer.sound = now
		return false
	}
	return s.renew(gen, err) == nil
}
