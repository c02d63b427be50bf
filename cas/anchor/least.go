package anchor

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// mark is a place that may be kept.
type mark struct {
	order uint64
	key   Key
}

// least are the n least of the marks that were added, each once. It may hold twice as many for a while.
type least struct {
	n     int
	marks []mark
	below uint64 // only marks of a lesser order are of use
}

func newLeast(n int) least {
	if n == 0 {
		return least{}
	}
	return least{n: n, below: ^uint64(0)}
}

func (l *least) add(m mark) {
	l.marks = append(l.marks, m)
	if len(l.marks) >= 2*l.n {
		l.cut()
	}
}

// cut sorts the marks and drops what is too much.
func (l *least) cut() {
	slices.SortFunc(l.marks, func(a, b mark) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.key, b.key))
	})
	l.marks = slices.Compact(l.marks)
	if n := len(l.marks); n >= l.n && n > 0 {
		l.marks = l.marks[:l.n]
		l.below = l.marks[l.n-1].order
	}
}

// shared are the least of what several workers found.
type shared struct {
	mu sync.Mutex
	least
	bound atomic.Uint64 // below, for those who begin
}

func (s *shared) merge(l *least) {
	if len(l.marks) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range l.marks {
		if m.order < s.below {
			s.add(m)
		}
	}
	s.cut()
	s.bound.Store(s.below)
}

func (s *shared) keys() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut()
	keys := make([]Key, len(s.marks))
	for i, m := range s.marks {
		keys[i] = m.key
	}
	return keys
}
