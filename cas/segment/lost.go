package segment

import (
	"slices"
	"sync/atomic"

	"ckptfs/cas/locks"
)

// Lost is a set of segments that could not be opened, read or made durable as a whole, or are not there.
type Lost struct {
	there []uint32 // those that there were, by number; set by Reset

	some atomic.Bool // there are any; mostly there are none, and every Put asks
	mu   locks.RWMutex[filesLock]
	all  map[uint32]bool // whether unsettled
	told map[uint32]bool
}

// Has reports whether n is in the set. 0 is none.
func (l *Lost) Has(n uint32) bool {
	if i, ok := slices.BinarySearch(l.there, n); !ok && i < len(l.there) {
		return n > 0
	}
	if !l.some.Load() {
		return false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, ok := l.all[n]
	return ok
}

// Unsettled reports whether perhaps the page cache has what the disk has not of n.
func (l *Lost) Unsettled(n uint32) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.all[n]
}

// Add adds n.
func (l *Lost) Add(n uint32, unsettled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[n] = l.all[n] || unsettled
	l.some.Store(true)
}

// Tell reports whether n was not told of before.
func (l *Lost) Tell(n uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := l.told[n]
	l.told[n] = true
	return !had
}

// Reset empties the set, but for numbers below the highest of there that are not among these, by number. It
// must return before other methods are called.
func (l *Lost) Reset(there []uint32) {
	l.there = there
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.told = map[uint32]bool{}, map[uint32]bool{}
	l.some.Store(false)
}
