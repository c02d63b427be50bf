package handover

import (
	"cmp"
	"fmt"
	"slices"
)

const maxSuspects = 256

// suspect is a request that was under way at crashes.
type suspect struct {
	unique  uint64
	crashes uint64 // in a row
}

// suspects are the requests that were under way when a daemon crashed: one of them may have been the cause,
// and would be so again when it comes again.
type suspects struct {
	h       *header
	both    []suspect // both tables
	crashes map[uint64]uint32
}

func (s *suspects) open(h *header, both []suspect) { s.h, s.both = h, both }

// load reads the table of the life that the header has.
func (s *suspects) load() error {
	at := s.h.life.Load() & 1
	n := s.h.suspects[at]
	if n > maxSuspects {
		return fmt.Errorf("%d suspects of %d: %w", n, maxSuspects, ErrDamaged)
	}
	s.crashes = map[uint64]uint32{}
	for _, x := range s.both[at*maxSuspects:][:n] {
		s.crashes[x.unique] = uint32(x.crashes)
	}
	return nil
}

// prepare writes the table of a life that is about to begin. After a crash, what was under way has one more,
// and the others go. If there are too many, those with the most crashes stay.
func (s *suspects) prepare(life uint64, left []uint64, crashed bool) {
	var table []suspect
	if crashed {
		for _, u := range left {
			table = append(table, suspect{u, uint64(s.crashes[u]) + 1})
		}
	} else {
		for u, n := range s.crashes {
			table = append(table, suspect{u, uint64(n)})
		}
	}
	slices.SortFunc(table, func(a, b suspect) int {
		return cmp.Or(cmp.Compare(b.crashes, a.crashes), cmp.Compare(a.unique, b.unique))
	})
	table = table[:min(len(table), maxSuspects)]
	copy(s.both[life&1*maxSuspects:][:maxSuspects], table)
	s.h.suspects[life&1] = uint64(len(table))
	s.crashes = map[uint64]uint32{}
	for _, x := range table {
		s.crashes[x.unique] = uint32(x.crashes)
	}
}
