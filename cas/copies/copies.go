// Package copies says which of several records of one chunk an index is to name.
//
// There are several where a compaction was cut short, or a chunk was stored afresh. The one of the lowest
// number (package segment) is that which others may be written against. But while nothing needed the chunk, a
// sweep that was cut short may have taken what one of them is written against.
package copies

import (
	"cmp"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// anyNumber is above the numbers of all records.
const anyNumber = segment.RoundedNumber + 1

// Deltas are the places of deltas of which the segments hold several, as a start, or a new index, finds them.
type Deltas map[cas.Hash][]cas.Location

// Add notes places of h.
func (t Deltas) Add(h cas.Hash, locs ...cas.Location) {
	for _, l := range locs {
		if !slices.Contains(t[h], l) {
			t[h] = append(t[h], l)
		}
	}
}

// Index says what records there are. It has all of them, and nothing else uses it.
type Index struct {
	Locate func(h cas.Hash) (cas.Location, error)                   // Segment 0: nowhere
	Base   func(loc cas.Location, h cas.Hash) (segment.Base, error) // what a delta says of its base
}

// Resolve lists the records that an index is to name instead of those that it does: of each chunk that of the
// lowest number whose bases are there, of lower numbers themselves. Of equals it is the last.
func (t Deltas) Resolve(x Index) (better []cas.Entry, err error) {
	for h := range t {
		now, err := x.Locate(h)
		if err != nil {
			return nil, err
		}
		best, _, err := t.best(x, h, anyNumber)
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
func (t Deltas) best(x Index, h cas.Hash, below uint8) (best cas.Location, number uint8, err error) {
	now, err := x.Locate(h)
	if err != nil || now.Segment == 0 || !now.Delta {
		return now, 0, err
	}
	all := t[h]
	if all == nil {
		all = []cas.Location{now}
	}
	for _, loc := range all {
		b, err := x.Base(loc, h)
		if err != nil || b.Number >= below ||
			best.Segment != 0 && cmp.Or(cmp.Compare(b.Number, number),
				-cmp.Compare(loc.Segment, best.Segment), -cmp.Compare(loc.Off, best.Off)) > 0 {
			continue // one that is damaged is none
		}
		sound := true
		for _, base := range b.Hashes() {
			on, _, err := t.best(x, base, b.Number)
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
