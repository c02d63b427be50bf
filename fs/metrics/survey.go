package metrics

import (
	"context"
	"sync"
	"time"
)

// survey keeps the last count of a store. A count walks the whole store: one at a time, in the background,
// and at most a hundredth of the time goes into it.
type survey struct {
	ctx   context.Context
	count func(context.Context) (*whole, error)
	now   func() time.Time

	mu      sync.Mutex
	last    *whole        // nil before the first
	at      time.Time     // of last
	next    time.Time     // when it is too old
	running chan struct{} // closed when the count under way is over; nil when none is
}

const (
	freshFor   = 30 * time.Second // no other count is made for so long
	firstGrace = 2 * time.Second  // the first scrape waits for the first count for so long
)

// get returns the last count and when it was made, nil if there is none yet, and has a new one made if it is
// time.
func (s *survey) get() (*whole, time.Time) {
	s.mu.Lock()
	if s.running == nil && !s.now().Before(s.next) {
		s.running = make(chan struct{})
		go s.run(s.running)
	}
	running, first := s.running, s.last == nil
	s.mu.Unlock()
	if first && running != nil {
		select {
		case <-running:
		case <-time.After(firstGrace):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.at
}

func (s *survey) run(done chan struct{}) {
	defer close(done)
	start := s.now()
	st, err := s.count(s.ctx)
	end := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = nil
	s.next = end.Add(max(freshFor, 100*end.Sub(start)))
	if err == nil {
		s.last, s.at = st, end
	}
}
