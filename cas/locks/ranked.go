//go:build lockrank

package locks

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
)

// Mutex is a sync.Mutex of rank R.
type Mutex[R Ranked] struct{ mu sync.Mutex }

func (m *Mutex[R]) Lock() {
	g := check[R](false)
	m.mu.Lock()
	took[R](g, m, false)
}

// LockSame is Lock, for a goroutine that may hold other locks of the same rank.
func (m *Mutex[R]) LockSame() {
	g := check[R](true)
	m.mu.Lock()
	took[R](g, m, false)
}

func (m *Mutex[R]) TryLock() bool {
	ok := m.mu.TryLock()
	if ok {
		took[R](goroutine(), m, false)
	}
	return ok
}

func (m *Mutex[R]) Unlock() {
	released[R](m, false)
	m.mu.Unlock()
}

// AssertHeld panics when this goroutine does not hold m.
func (m *Mutex[R]) AssertHeld() { assert[R](m, false) }

// RWMutex is a sync.RWMutex of rank R.
type RWMutex[R Ranked] struct{ mu sync.RWMutex }

func (m *RWMutex[R]) Lock() {
	g := check[R](false)
	m.mu.Lock()
	took[R](g, m, false)
}

// LockSame is Lock, for a goroutine that may hold other locks of the same rank.
func (m *RWMutex[R]) LockSame() {
	g := check[R](true)
	m.mu.Lock()
	took[R](g, m, false)
}

func (m *RWMutex[R]) TryLock() bool {
	ok := m.mu.TryLock()
	if ok {
		took[R](goroutine(), m, false)
	}
	return ok
}

func (m *RWMutex[R]) Unlock() {
	released[R](m, false)
	m.mu.Unlock()
}

func (m *RWMutex[R]) RLock() {
	g := check[R](false)
	m.mu.RLock()
	took[R](g, m, true)
}

func (m *RWMutex[R]) TryRLock() bool {
	ok := m.mu.TryRLock()
	if ok {
		took[R](goroutine(), m, true)
	}
	return ok
}

func (m *RWMutex[R]) RUnlock() {
	released[R](m, true)
	m.mu.RUnlock()
}

// AssertHeld panics when this goroutine does not hold m exclusively.
func (m *RWMutex[R]) AssertHeld() { assert[R](m, false) }

// AssertShared panics when this goroutine holds m neither shared nor exclusively.
func (m *RWMutex[R]) AssertShared() { assert[R](m, true) }

// held is one lock that a goroutine holds.
type held struct {
	lock   any // *Mutex[R] or *RWMutex[R]
	place  int
	name   string
	shared bool
	by     uintptr // the line that took it
}

// table has the locks that are held, by goroutine. It is the one thing here that is global: a goroutine has
// no place of its own to keep them.
var table = struct {
	mu    sync.Mutex
	by    map[uintptr][]held
	takes map[string]int
}{by: make(map[uintptr][]held), takes: make(map[string]int)}

// Takes is how often the locks were taken so far, by name.
func Takes() map[string]int {
	table.mu.Lock()
	defer table.mu.Unlock()
	return maps.Clone(table.takes)
}

// check panics when this goroutine holds a lock that R may not be taken under. It returns the goroutine's
// number.
func check[R Ranked](same bool) uintptr {
	var r R
	place, name := r.Rank()
	g := goroutine()
	table.mu.Lock()
	defer table.mu.Unlock()
	for _, h := range table.by[g] {
		if h.place > place || h.place == place && !same {
			panic(fmt.Sprintf("locks: %s (rank %d) is taken under %s (rank %d), which was taken at %s",
				name, place, h.name, h.place, line(h.by)))
		}
	}
	return g
}

// took notes that goroutine g holds lock, for the caller's caller.
func took[R Ranked](g uintptr, lock any, shared bool) {
	var r R
	place, name := r.Rank()
	var pc [1]uintptr
	runtime.Callers(3, pc[:])
	table.mu.Lock()
	defer table.mu.Unlock()
	table.by[g] = append(table.by[g], held{lock, place, name, shared, pc[0]})
	table.takes[name]++
}

// released forgets lock: this goroutine's, or one that another goroutine took.
func released[R Ranked](lock any, shared bool) {
	g := goroutine()
	table.mu.Lock()
	defer table.mu.Unlock()
	if forgetLocked(g, lock, shared) {
		return
	}
	for g := range table.by {
		if forgetLocked(g, lock, shared) {
			return
		}
	}
	var r R
	_, name := r.Rank()
	panic("locks: " + name + " is unlocked, and is not held")
}

// forgetLocked takes the last hold of lock out of what goroutine g holds. table.mu is held.
func forgetLocked(g uintptr, lock any, shared bool) bool {
	all := table.by[g]
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].lock != lock || all[i].shared != shared {
			continue
		}
		if all = slices.Delete(all, i, i+1); len(all) == 0 {
			delete(table.by, g)
		} else {
			table.by[g] = all
		}
		return true
	}
	return false
}

// assert panics when this goroutine does not hold lock; a shared hold suffices if shared is set.
func assert[R Ranked](lock any, shared bool) {
	g := goroutine()
	table.mu.Lock()
	defer table.mu.Unlock()
	for _, h := range table.by[g] {
		if h.lock == lock && (shared || !h.shared) {
			return
		}
	}
	var r R
	_, name := r.Rank()
	panic("locks: " + name + " is not held")
}

// line is the file and line of a program counter.
func line(pc uintptr) string {
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return fmt.Sprintf("%s:%d", f.File, f.Line)
}
