//go:build !lockrank && !locktime

package locks

import "sync"

// Mutex is a sync.Mutex of rank R.
type Mutex[R Ranked] struct{ sync.Mutex }

// LockSame is Lock, for a goroutine that may hold other locks of the same rank.
func (m *Mutex[R]) LockSame() { m.Lock() }

// AssertHeld panics, in a build that checks, when this goroutine does not hold m.
func (m *Mutex[R]) AssertHeld() {}

// RWMutex is a sync.RWMutex of rank R.
type RWMutex[R Ranked] struct{ sync.RWMutex }

// LockSame is Lock, for a goroutine that may hold other locks of the same rank.
func (m *RWMutex[R]) LockSame() { m.Lock() }

// AssertHeld panics, in a build that checks, when this goroutine does not hold m exclusively.
func (m *RWMutex[R]) AssertHeld() {}

// AssertShared panics, in a build that checks, when this goroutine holds m neither shared nor exclusively.
func (m *RWMutex[R]) AssertShared() {}
