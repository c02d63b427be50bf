package fusefs

import "sync"

// inHand are requests that are being done, by the kernel's number.
type inHand struct {
	mu   sync.Mutex
	have map[uint64]struct{}
}

func (s *inHand) add(unique uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have == nil {
		s.have = map[uint64]struct{}{}
	}
	s.have[unique] = struct{}{}
}

func (s *inHand) remove(unique uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.have, unique)
}

func (s *inHand) has(unique uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.have[unique]
	return ok
}
