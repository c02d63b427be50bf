//go:build locktime && !lockrank

package locks

import (
	"sync"
	"sync/atomic"
	"time"
)

// Use is what became of the locks of one rank.
type Use struct {
	Takes  int64 // exclusive ones
	Waited int64 // those of them that found it held
	Shared int64 // takes that were shared
	Long   int64 // exclusive ones that were held for longer than Long
	// Held is how long they were held exclusively; Brief is that without the long ones.
	Held, Brief time.Duration
}

// Since is what came after before.
func (u Use) Since(before Use) Use {
	return Use{u.Takes - before.Takes, u.Waited - before.Waited, u.Shared - before.Shared,
		u.Long - before.Long, u.Held - before.Held, u.Brief - before.Brief}
}

// Least has the less of each.
func (u Use) Least(o Use) Use {
	return Use{min(u.Takes, o.Takes), min(u.Waited, o.Waited), min(u.Shared, o.Shared), min(u.Long, o.Long),
		min(u.Held, o.Held), min(u.Brief, o.Brief)}
}

// Long is how long nobody holds a lock that is not held over I/O, unless the system runs another program
// meanwhile.
const Long = 100 * time.Microsecond

// Uses is how the locks were used so far, by name. What is held still is not in it.
func Uses() map[string]Use {
	all := map[string]Use{}
	uses.Range(func(name, c any) bool {
		all[name.(string)] = c.(*counters).use()
		return true
	})
	return all
}

// uses has counters by name. It is global as the table of the other build is.
var uses sync.Map

type counters struct{ takes, waited, shared, long, held, brief atomic.Int64 }

func (c *counters) use() Use {
	return Use{c.takes.Load(), c.waited.Load(), c.shared.Load(), c.long.Load(),
		time.Duration(c.held.Load()), time.Duration(c.brief.Load())}
}

func (c *counters) count(held time.Duration, waited bool) {
	c.takes.Add(1)
	c.held.Add(int64(held))
	if held > Long {
		c.long.Add(1)
	} else {
		c.brief.Add(int64(held))
	}
	if waited {
		c.waited.Add(1)
	}
}

func of[R Ranked]() *counters {
	var r R
	_, name := r.Rank()
	c, ok := uses.Load(name)
	if !ok {
		c, _ = uses.LoadOrStore(name, new(counters))
	}
	return c.(*counters)
}

// hold is of who holds a lock exclusively, under that lock.
type hold[R Ranked] struct {
	since  time.Duration // the clock, when it was taken
	waited bool
}

var epoch = time.Now()

// clock reads one clock, where time.Now reads two.
func clock() time.Duration { return time.Since(epoch) }

type lock interface {
	sync.Locker
	TryLock() bool
}

// take takes l. The time begins when it is held.
func (h *hold[R]) take(l lock) {
	waited := !l.TryLock()
	if waited {
		l.Lock()
	}
	h.since, h.waited = clock(), waited
}

func (h *hold[R]) try(l lock) bool {
	ok := l.TryLock()
	if ok {
		h.since, h.waited = clock(), false
	}
	return ok
}

// release releases l. What is counted is counted once nobody has to wait for that.
func (h *hold[R]) release(l sync.Locker) {
	held, waited := clock()-h.since, h.waited
	l.Unlock()
	of[R]().count(held, waited)
}

// Mutex is a sync.Mutex of rank R.
type Mutex[R Ranked] struct {
	mu sync.Mutex
	hold[R]
}

func (m *Mutex[R]) Lock()         { m.take(&m.mu) }
func (m *Mutex[R]) TryLock() bool { return m.try(&m.mu) }
func (m *Mutex[R]) Unlock()       { m.release(&m.mu) }

// LockSame is Lock, for a goroutine that may hold other locks of the same rank.
func (m *Mutex[R]) LockSame() { m.Lock() }

// AssertHeld panics, in a build that checks, when this goroutine does not hold m.
func (m *Mutex[R]) AssertHeld() {}

// RWMutex is a sync.RWMutex of rank R.
type RWMutex[R Ranked] struct {
	mu sync.RWMutex
	hold[R]
}

func (m *RWMutex[R]) Lock()         { m.take(&m.mu) }
func (m *RWMutex[R]) TryLock() bool { return m.try(&m.mu) }
func (m *RWMutex[R]) Unlock()       { m.release(&m.mu) }

// LockSame is Lock, for a goroutine that may hold other locks of the same rank.
func (m *RWMutex[R]) LockSame() { m.Lock() }

func (m *RWMutex[R]) RLock() {
	m.mu.RLock()
	of[R]().shared.Add(1)
}

func (m *RWMutex[R]) TryRLock() bool {
	ok := m.mu.TryRLock()
	if ok {
		of[R]().shared.Add(1)
	}
	return ok
}

func (m *RWMutex[R]) RUnlock() { m.mu.RUnlock() }

// AssertHeld panics, in a build that checks, when this goroutine does not hold m exclusively.
func (m *RWMutex[R]) AssertHeld() {}

// AssertShared panics, in a build that checks, when this goroutine holds m neither shared nor exclusively.
func (m *RWMutex[R]) AssertShared() {}
