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
	Locate func(hashes []cas.Hash, locs []cas.Location) error       // Segment 0: nowhere
	Base   func(loc cas.Location, h cas.Hash) (segment.Base, error) // what a delta says of its base
}

func (x *Index) locate(h cas.Hash) (cas.Location, error) {
	hashes, locs := [1]cas.Hash{h}, [1]cas.Location{}
	err := x.Locate(hashes[:], locs[:])
	return locs[0], err
}

// Lowest is entries, which lie behind what the index has, without the records of which there is one of a
// lower number: what was stored since may be written against that one. Of equals the last one is as good.
// Mostly there is one record of a chunk; more are left by a compaction that was cut short, by a chunk that
// was stored afresh, and by a salvage, behind later ones. Deltas of which there are several are added.
func (t Deltas) Lowest(x Index, entries []cas.Entry) ([]cas.Entry, error) {
	var hashes []cas.Hash
	for i := range entries {
		if entries[i].Delta {
			hashes = append(hashes, entries[i].Hash)
		}
	}
	if len(hashes) == 0 {
		return entries, nil
	}
	locs := make([]cas.Location, len(hashes))
	if err := x.Locate(hashes, locs); err != nil {
		return nil, err
	}
	have := map[[16]byte]cas.Location{} // by as much of a hash as an index tells apart
	for i, l := range locs {
		if l.Segment != 0 {
			have[[16]byte(hashes[i][:16])] = l
		}
	}
	number := func(h cas.Hash, l cas.Location) uint8 {
		if !l.Delta {
			return 0
		}
		b, err := x.Base(l, h)
		if err != nil {
			return segment.AnyNumber
		}
		return b.Number
	}
	return slices.DeleteFunc(entries, func(e cas.Entry) bool {
		l, ok := have[[16]byte(e.Hash[:16])]
		if ok && e.Delta && l.Delta {
			t.Add(e.Hash, l, e.Location)
		}
		if ok && e.Delta && l.Kind.Serves(e.Kind) && number(e.Hash, l) < number(e.Hash, e.Location) {
			return true
		}
		have[[16]byte(e.Hash[:16])] = e.Location
		return false
	}), nil
}

// Resolve lists the records that an index is to name instead of those that it does: of each chunk that of the
// lowest number whose bases are there, of lower numbers themselves. Of equals it is the last.
func (t Deltas) Resolve(x Index) (better []cas.Entry, err error) {
	for h := range t {
		now, err := x.locate(h)
		if err != nil {
			return nil, err
		}
		best, _, err := t.best(x, h, segment.AnyNumber)
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
	now, err := x.locate(h)
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
