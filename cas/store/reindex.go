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
		gen, err := s.locateOnce(hashes, locs)
		if !s.renewable(err) || try == maxRenewals {
			return err
		}
		if err := s.renew(gen, err); err != nil {
			return err
		}
	}
}

// maxRenewals is how many damaged indexes in a row one operation puts up with.
const maxRenewals = 3

// generation counts the indexes.
func (s *Store) generation() int {
	s.indexing.RLock()
	defer s.indexing.RUnlock()
	return s.renewals
}

// locateOnce also says which index it asked.
func (s *Store) locateOnce(hashes []cas.Hash, locs []cas.Location) (gen int, err error) {
	s.indexing.RLock()
	defer s.indexing.RUnlock()
	if s.indexErr != nil {
		return s.renewals, s.indexErr
	}
	return s.renewals, s.index.Locate(hashes, locs)
}

// renewable reports whether err, of the index, is a reason to make a new one.
func (s *Store) renewable(err error) bool {
	return s.opt.NewIndex != nil && errors.Is(err, cas.ErrCorrupt)
}

// renew makes a new index while the store is in use; gen is the number of the one that is damaged. Whoever asks the index
// waits. Nobody who calls it holds one of the store's locks.
func (s *Store) renew(gen int, reason error) error {
	s.reshaping.Lock() // else what a sweep is just taking from a segment would be found there
	defer s.reshaping.Unlock()
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.indexing.Lock()
	defer s.indexing.Unlock()
	if s.renewals != gen {
		return s.indexErr // somebody has
	}
	s.renewals++
	x, err := s.opt.NewIndex(reason)
	if err == nil {
		s.index = x
		err = s.refill()
	}
	if err != nil {
		s.indexErr = fmt.Errorf("the index is damaged and could not be made anew: %w", err)
	}
	return s.indexErr
}

// refill takes what is durable in the segments into the index, which is empty. flushing is held, and nobody else uses the
// index.
func (s *Store) refill() error {
	s.mu.Lock()
	tails := s.tails()
	last := s.last
	var volatile []cas.Entry // written and perhaps not durable
	for _, r := range s.written {
		volatile = append(volatile, r.entry)
	}
	s.mu.Unlock()
	numbers, err := s.numbers()
	if err != nil {
		return err
	}
	in := newReplay(s)
	for _, n := range numbers {
		i := slices.IndexFunc(tails, func(t *tail) bool { return t.w.Number() == n })
		switch {
		case n > last:
		case i < 0:
			err = in.sealed(n)
		default:
			for _, rec := range tails[i].w.Records() {
				if rec.End() <= tails[i].synced && !slices.ContainsFunc(volatile, func(e cas.Entry) bool { return e.Segment == n && e.Off == rec.Off }) {
					if err = in.add(n, &rec); err != nil {
						break
					}
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
		if m := (cas.Watermark{Segment: t.w.Number()}); m.Before(mark) {
			mark = m
		}
	}
	return in.finish(mark)
}

// sealed takes the records of a segment that nobody appends to.
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
	ft, err := r.Footer()
	if err == nil {
		err = r.Each(ft, func(rec *segment.Record) error { return in.add(n, rec) })
	}
	if !errors.Is(err, segment.ErrUnsealed) {
		return err
	}
	sc, err := r.Scan(0)
	if err != nil {
		return err
	}
	for sc.Next() {
		if sc.Gap() {
			continue
		}
		if err := in.add(n, sc.Record()); err != nil {
			return err
		}
	}
	return sc.Err()
}

// doubtAgain is how long an index that was found sound is not looked through again.
const doubtAgain = 10 * time.Minute

// doubted is asked when the index does not have what it should have: it has the index looked through, and reports whether
// that led to a new one.
func (s *Store) doubted() bool {
	if s.opt.NewIndex == nil {
		return false
	}
	s.doubting.Lock()
	defer s.doubting.Unlock()
	now := s.opt.Now()
	if !s.sound.IsZero() && now.Sub(s.sound) < doubtAgain {
		return false
	}
	s.indexing.RLock()
	gen, err := s.renewals, error(nil)
	if c, ok := s.index.(interface{ Check() error }); ok {
		err = c.Check()
	}
	s.indexing.RUnlock()
	if !s.renewable(err) {
		s.sound = now
		return false
	}
	return s.renew(gen, err) == nil
}
