package codec

import (
	"runtime"
	"testing"

	"ckptfs/cas/codectest"
)

// What is encoded now and then allocates no state each time, however often garbage is collected between.
func TestStateOutlivesCollections(t *testing.T) {
	raw, h := codectest.Weights(4096, 4), Hint{"F32", 4}
	buf := make([]byte, 0, 1<<16)
	Encode(buf, raw, h)
	const times = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		for range 3 { // a pool is empty after two
			runtime.GC()
		}
		Encode(buf, raw, h)
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) / times; took > 1<<20 {
		t.Errorf("%d bytes are allocated each time", took)
	}
}
