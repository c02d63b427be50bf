package codec

import (
	"sync"
	"sync/atomic"
)

// states are the planeStates that are not in use. A collection of garbage empties a pool. Where memory is
// short and a state is wanted now and then only, each would be allocated again, and bring the next collection
// nearer. So one stays.
type states struct {
	one  atomic.Pointer[planeState]
	pool sync.Pool
}

var planeStates = states{pool: sync.Pool{New: func() any { return new(planeState) }}}

func (s *states) get() *planeState {
	if is := s.one.Swap(nil); is != nil {
		return is
	}
	return s.pool.Get().(*planeState)
}

func (s *states) put(is *planeState) {
	if !s.one.CompareAndSwap(nil, is) {
		s.pool.Put(is)
	}
}
