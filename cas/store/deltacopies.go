package store

import (
	"cmp"
	"slices"

	"ckptfs/cas"
)

// deltaCopies are the places of deltas of which the segments hold several, as a start, or a new index, finds
// them. The one of the lowest number is that which others may be written against; but while nothing needed
// the chunk, a sweep that was cut short may have taken what one of them is written against.
type deltaCopies map[cas.Hash][]cas.Location

func (t deltaCopies) add(h cas.Hash, locs ...cas.Location) {
	for _, l := range locs {
		if !slices.Contains(t[h], l) {
			t[h] = append(t[h], l)
		}
	}
}

// resolve lists the records that the index is to name instead of those that it does: of each chunk that of
// the lowest number whose bases are there, of lower numbers themselves. Of equals it is the last. The
// index has all records, and nothing else uses it.
func (t deltaCopies) resolve(s *Store) (better []cas.Entry, err error) {
	for h := range t {
		now, err := one(h, s.indexer.index.Locate)
		if err != nil {
			return nil, err
		}
		best, _, err := t.best(s, h, anyNumber)
		if err != nil {
			return nil, err
		}
		if now.Delta && best.Segment != 0 && best != now {
			better = append(better, cas.Entry{Hash: h, Location: best})
		}
	}
	return better, nil
}

// best is the record of h, of a number below the given one, that can be read with what is there; of segment 0
// when there is none.
func (t deltaCopies) best(s *Store, h cas.Hash, below uint8) (best cas.Location, number uint8, err error) {
	now, err := one(h, s.indexer.index.Locate)
	if err != nil || now.Segment == 0 || !now.Delta {
		return now, 0, err
	}
	all := t[h]
	if all == nil {
		all = []cas.Location{now}
	}
	for _, loc := range all {
		b, err := s.reader.baseAt(loc, h)
		if err != nil || b.Number >= below ||
			best.Segment != 0 && cmp.Or(cmp.Compare(b.Number, number),
				-cmp.Compare(loc.Segment, best.Segment), -cmp.Compare(loc.Off, best.Off)) > 0 {
			continue // one that is damaged is none
		}
		sound := true
		for _, base := range b.Hashes() {
			on, _, err := t.best(s, base, b.Number)
			if err != nil {
				return best, number, err
			}
			sound = sound && on.Segment != 0
		}
		if sound {
			best, number = loc, b.Number
		}
	}
	return best, number, nil
}
