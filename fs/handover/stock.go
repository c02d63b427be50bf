package handover

import (
	"fmt"
	"sync/atomic"
)

// stock hands out the slots of a table. The one that was given back last goes first, so that few pages are
// touched. Its user has a mutex.
type stock struct {
	free []uint32       // slots below used that are free
	used *atomic.Uint64 // in the memory: slots from this one on were never touched
	size uint64         // of the table
}

// load finds the free slots that the daemons before left: those that free reports.
func (s *stock) load(what string, free func(i uint32) (bool, error)) error {
	used := s.used.Load()
	if used > s.size {
		return fmt.Errorf("%d %s used of %d: %w", used, what, s.size, ErrDamaged)
	}
	s.free = s.free[:0]
	for i := uint32(used); i > 0; i-- { // so that the lowest go first
		ok, err := free(i - 1)
		if err != nil {
			return err
		}
		if ok {
			s.free = append(s.free, i-1)
		}
	}
	return nil
}

// take returns a free slot, false if there is none. The mark is moved before the slot is used: a slot beyond
// it would not be found by the next daemon.
func (s *stock) take() (uint32, bool) {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i, true
	}
	i := s.used.Load()
	if i >= s.size {
		return 0, false
	}
	s.used.Store(i + 1)
	return uint32(i), true
}

// give takes slot i back.
func (s *stock) give(i uint32) { s.free = append(s.free, i) }
