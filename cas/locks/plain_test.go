//go:build !lockrank && !locktime

package locks

import (
	"sync"
	"testing"
	"unsafe"
)

// Without the tag a ranked mutex costs no byte and is the mutex of package sync.
func TestPlain(t *testing.T) {
	if a, b := unsafe.Sizeof(Mutex[inner]{}), unsafe.Sizeof(sync.Mutex{}); a != b {
		t.Errorf("a Mutex takes %d bytes, a sync.Mutex %d", a, b)
	}
	if a, b := unsafe.Sizeof(RWMutex[inner]{}), unsafe.Sizeof(sync.RWMutex{}); a != b {
		t.Errorf("an RWMutex takes %d bytes, a sync.RWMutex %d", a, b)
	}
	var m Mutex[inner]
	var out Mutex[outer]
	reached := false
	m.Lock()
	out.Lock() // out of order, and not looked at
	reached = true
	out.Unlock()
	m.Unlock()
	if !reached {
		t.Error("the locks cannot be taken")
	}
	m.AssertHeld()
}
