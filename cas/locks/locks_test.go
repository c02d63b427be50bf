package locks

import (
	"sync"
	"testing"
	"time"
)

type (
	outer struct{}
	inner struct{}
)

func (outer) Rank() (int, string) { return 1, "outer" }
func (inner) Rank() (int, string) { return 2, "inner" }

// What keeps the order works in both builds: nested, shared, tried, unlocked in any order, two of a rank.
func TestInOrder(t *testing.T) {
	var (
		a    Mutex[outer]
		rw   RWMutex[outer]
		b, c Mutex[inner]
	)
	for range 2 {
		a.Lock()
		a.AssertHeld()
		b.Lock()
		b.AssertHeld()
		a.Unlock()
		b.Unlock()

		rw.RLock()
		rw.AssertShared()
		b.Lock()
		c.LockSame()
		b.Unlock()
		c.Unlock()
		rw.RUnlock()

		rw.Lock()
		rw.AssertHeld()
		rw.AssertShared()
		if rw.TryLock() || rw.TryRLock() {
			t.Fatal("locked twice")
		}
		rw.Unlock()

		b.Lock()
		if !a.TryLock() {
			t.Fatal("not locked")
		}
		a.Unlock()
		b.Unlock()
	}
}

// One goroutine's locks are no other's, and another may unlock them.
func TestHandedOn(t *testing.T) {
	var (
		a Mutex[outer]
		b Mutex[inner]
	)
	b.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Lock()
		b.Unlock()
		a.Unlock()
	}()
	<-done
	var reached bool
	a.Lock()
	b.Lock()
	reached = true
	b.Unlock()
	a.Unlock()
	if !reached {
		t.Error("the locks cannot be taken")
	}
}

// A sync.Cond waits on a ranked mutex.
func TestCond(t *testing.T) {
	var (
		m     Mutex[outer]
		ready bool
	)
	cond := sync.NewCond(&m)
	go func() {
		time.Sleep(time.Millisecond)
		m.Lock()
		defer m.Unlock()
		ready = true
		cond.Broadcast()
	}()
	m.Lock()
	for !ready {
		cond.Wait()
	}
	m.AssertHeld()
	m.Unlock()
}
