package heap

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestWatch: what lives on the heap takes the room that it needs, and gives it back.
func TestWatch(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	asked := make(chan int64)
	l := NewLimit(1 << 30)
	l.Watch(1<<30-64<<20, func(n int64) {
		select {
		case asked <- n:
		case <-t.Context().Done():
		}
	})
	await := func(enough func(int64) bool) {
		t.Helper()
		for {
			runtime.GC()
			select {
			case n := <-asked:
				if enough(n) {
					return
				}
				t.Fatalf("%d bytes are asked for", n)
			case <-t.Context().Done():
				t.Fatal("nothing is asked for")
			default:
			}
		}
	}
	large := make([]byte, 256<<20)
	await(func(n int64) bool { return n >= 192<<20 && n < 320<<20 })
	runtime.KeepAlive(large)
	large = nil
	await(func(n int64) bool { return n == 0 })
}
