package store

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// Each calls f with the content of every record of a kind that is in the index, in the order in which they
// lie in the segments. What cannot be read is counted in bad, and passed over. f keeps nothing of raw.
// Records that no Commit has made durable may be missing.
func (s *Store) Each(kind cas.Kind, f func(h cas.Hash, raw []byte) error) (bad int, err error) {
	var locs []cas.Location
	err = s.indexer.forEach(func(e cas.Entry) error {
		if e.Kind == kind {
			locs = append(locs, e.Location)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	slices.SortFunc(locs, cas.Location.Compare)
	var buf []byte
	for _, loc := range locs {
		if loc.Raw > cas.MaxChunk {
			bad++
			continue
		}
		h, err := s.reader.hashAt(loc)
		if err == nil {
			buf = slices.Grow(buf[:0], int(loc.Raw))[:loc.Raw]
			err = s.ReadInto(loc, h, buf)
		}
		if err != nil {
			bad++
			continue
		}
		if err := f(h, buf); err != nil {
			return bad, err
		}
	}
	return bad, nil
}

// latestSegments is how many segments Latest looks at.
const latestSegments = 64

// Latest lists records of a kind that were put last, at most n, the last first, also such as nothing needs
// any more. It looks at the ends of the newest segments alone; what cannot be read is passed over.
func (s *Store) Latest(kind cas.Kind, n int) (hashes []cas.Hash) {
	tails, _ := s.appender.tails.All()
	add := func(recs []segment.Record) {
		for _, rec := range slices.Backward(recs) {
			if rec.Kind == kind && len(hashes) < n {
				hashes = append(hashes, rec.Hash)
			}
		}
	}
	for _, t := range slices.Backward(tails) {
		add(t.Records())
	}
	numbers, err := s.appender.tails.Sealed()
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
