package store

import (
	"slices"

	"ckptfs/cas"
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

// Latest lists records of a kind that were put last, at most n, the last first, as Tails.Latest does.
func (s *Store) Latest(kind cas.Kind, n int) []cas.Hash { return s.appender.tails.Latest(kind, n) }
