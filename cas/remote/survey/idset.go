package survey

import (
	"encoding/binary"
	"slices"

	"ckptfs/cas/remote/record"
)

// IDSet is a set of ids of which it keeps the first 8 bytes. They are random: what is in it by chance, or
// because somebody chose its id so, is garbage that stays. What was added is in it once it is sorted.
type IDSet struct {
	ids    []uint64
	sorted int // of ids, each once
}

func short(id record.ID) uint64 { return binary.BigEndian.Uint64(id[:]) }

// Add adds ids.
func (s *IDSet) Add(ids ...record.ID) {
	for _, id := range ids {
		s.ids = append(s.ids, short(id))
	}
	if len(s.ids) > 2*s.sorted+1<<16 {
		s.Sort()
	}
}

// AddKeys adds the ids of keys.
func (s *IDSet) AddKeys(keys []record.Key) {
	for _, k := range keys {
		s.Add(k.ID)
	}
}

// Sort ends adding.
func (s *IDSet) Sort() {
	slices.Sort(s.ids)
	s.ids = slices.Compact(s.ids)
	s.sorted = len(s.ids)
}

// Has reports whether an id is in the set.
func (s IDSet) Has(id record.ID) bool {
	_, ok := slices.BinarySearch(s.ids, short(id))
	return ok
}
