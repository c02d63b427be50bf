package sweep

import (
	"bytes"
	"slices"

	"ckptfs/cas/remote/record"
)

// idSet is a set of ids that takes 16 bytes for each. What was added is in it once it is sorted.
type idSet struct {
	ids    []record.ID
	sorted int // of ids, each once
}

func compareIDs(a, b record.ID) int { return bytes.Compare(a[:], b[:]) }

func (s *idSet) add(ids ...record.ID) {
	s.ids = append(s.ids, ids...)
	if len(s.ids) > 2*s.sorted+1<<16 {
		s.sort()
	}
}

func (s *idSet) sort() {
	slices.SortFunc(s.ids, compareIDs)
	s.ids = slices.Compact(s.ids)
	s.sorted = len(s.ids)
}

func (s idSet) has(id record.ID) bool {
	_, ok := slices.BinarySearchFunc(s.ids, id, compareIDs)
	return ok
}
