package store

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// latestSegments is how many segments Latest looks at.
const latestSegments = 64

// Latest lists records of a kind that were put last, at most n, the last first, also such as nothing needs any more. It looks at the ends
// of the newest segments alone; what cannot be read is passed over.
func (s *Store) Latest(kind cas.Kind, n int) (hashes []cas.Hash) {
	s.mu.Lock()
	tails := s.tails()
	s.mu.Unlock()
	add := func(recs []segment.Record) {
		for _, rec := range slices.Backward(recs) {
			if rec.Kind == kind && len(hashes) < n {
				hashes = append(hashes, rec.Hash)
			}
		}
	}
	for _, t := range slices.Backward(tails) {
		add(t.w.Records())
	}
	numbers, err := s.sealed()
	if err != nil {
		return hashes
	}
	for i, number := range slices.Backward(numbers) {
		if len(hashes) == n || len(numbers)-i > latestSegments {
			break
		}
		r, err := segment.Open(s.fs, s.dir, s.segment(number))
		if err != nil {
			continue
		}
		if _, recs, err := r.Contents(); err == nil {
			add(recs)
		}
		r.Close()
	}
	return hashes
}
