//go:build locktime && !lockrank

package locks

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// busy is a lock that is held whenever somebody tries.
type busy struct{ sync.Mutex }

func (*busy) TryLock() bool { return false }

// What is counted is what was done: takes, those that had to wait, and how long the lock was held.
func TestUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := Uses()
		var m Mutex[outer]
		var rw RWMutex[inner]
		m.Lock()
		time.Sleep(Long + time.Microsecond) // by the bubble's clock
		m.Unlock()
		var h hold[outer]
		var b busy
		h.take(&b)
		h.release(&b)
		rw.RLock()
		rw.RUnlock()
		rw.Lock()
		time.Sleep(Long)
		rw.Unlock()
		for name, want := range map[string]Use{
			"outer": {Takes: 2, Waited: 1, Long: 1, Held: Long + time.Microsecond},
			"inner": {Takes: 1, Shared: 1, Held: Long, Brief: Long},
		} {
			if got := Uses()[name].Since(before[name]); got != want {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
	})
}
