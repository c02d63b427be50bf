//go:build lockrank

package locks

import (
	"runtime"
	"strings"
	"sync"
	"testing"
)

// panics runs f and returns what it panicked with, "" for nothing.
func panics(f func()) (said string) {
	defer func() {
		if e := recover(); e != nil {
			said = e.(string)
		}
	}()
	f()
	return ""
}

// What is out of order panics, says both names and where the held one was taken, and leaves nothing locked.
func TestOutOfOrder(t *testing.T) {
	var (
		a      Mutex[outer]
		rw, r2 RWMutex[outer]
		b, c   Mutex[inner]
	)
	for name, f := range map[string]func(){
		"lower":               func() { b.Lock(); defer b.Unlock(); a.Lock() },
		"lower, shared":       func() { b.Lock(); defer b.Unlock(); rw.RLock() },
		"lower, by LockSame":  func() { b.Lock(); defer b.Unlock(); a.LockSame() },
		"same":                func() { b.Lock(); defer b.Unlock(); c.Lock() },
		"itself":              func() { b.Lock(); defer b.Unlock(); b.Lock() },
		"itself, shared":      func() { rw.RLock(); defer rw.RUnlock(); rw.RLock() },
		"same, shared":        func() { rw.RLock(); defer rw.RUnlock(); r2.RLock() },
		"after a lock tried":  func() { b.TryLock(); defer b.Unlock(); a.Lock() },
		"under one of two":    func() { a.Lock(); b.Lock(); a.Unlock(); defer b.Unlock(); a.Lock() },
		"waiting on a cond":   func() { a.Lock(); b.Lock(); defer b.Unlock(); wait(&a) },
		"under a shared lock": func() { rw.RLock(); defer rw.RUnlock(); a.Lock() },
	} {
		said := panics(f)
		if !strings.Contains(said, "is taken under") || !strings.Contains(said, "ranked_test.go:") {
			t.Errorf("%s: %q", name, said)
		}
	}
	for g, h := range table.by {
		t.Errorf("goroutine %d still holds %v", g, h)
	}
}

// wait waits on a condition that comes at once. m is held.
func wait(m *Mutex[outer]) {
	cond := sync.NewCond(m)
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		for !m.TryLock() { // until the other one waits
			runtime.Gosched()
		}
		defer m.Unlock()
		cond.Broadcast()
	}()
	cond.Wait()
}

// What is not held is neither unlocked nor believed to be held.
func TestNotHeld(t *testing.T) {
	var (
		m  Mutex[outer]
		rw RWMutex[outer]
	)
	for name, f := range map[string]func(){
		"Unlock":                    m.Unlock,
		"RUnlock":                   rw.RUnlock,
		"RUnlock of a write lock":   func() { rw.Lock(); defer rw.Unlock(); rw.RUnlock() },
		"AssertHeld":                m.AssertHeld,
		"AssertHeld of a read lock": func() { rw.RLock(); defer rw.RUnlock(); rw.AssertHeld() },
		"AssertShared":              rw.AssertShared,
		"another goroutine's": func() {
			m.Lock()
			defer m.Unlock()
			done := make(chan string)
			go func() { done <- panics(m.AssertHeld) }()
			panic(<-done)
		},
	} {
		said := panics(f)
		if !strings.HasSuffix(said, "is not held") && !strings.HasSuffix(said, "and is not held") {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// Goroutines that run at the same time are told apart, and each stays itself when it moves to another thread.
func TestGoroutine(t *testing.T) {
	const n = 64
	ids := make(chan uintptr, n)
	var all sync.WaitGroup
	all.Add(n)
	for range n {
		go func() {
			g := goroutine()
			all.Done()
			all.Wait() // all of them live
			runtime.Gosched()
			if goroutine() != g {
				g = 0
			}
			ids <- g
		}()
	}
	seen := map[uintptr]bool{goroutine(): true}
	for range n {
		g := <-ids
		if g == 0 || seen[g] {
			t.Fatal("two goroutines are one, or one is two")
		}
		seen[g] = true
	}
}
