package graph

import (
	"runtime"
	"testing"
)

// bounded holds that f allocates no more than perByte for each byte of p, and 1 MiB, garbage and what the test itself takes included.
func bounded(t *testing.T, perByte int, p []byte, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > uint64(8*perByte*len(p)+1<<20) {
		t.Errorf("%d bytes allocated for %d", got, len(p))
	}
}
