package main

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// How --memory is spent, of 512 MiB:
//
//	255  decoded chunks (--cache-size)
//	 64  manifests and lists of chunks, a quarter of that
//	 48  what the Go runtime does not count: the program itself, and the index's mapped pages
//	     that were touched
//	 24  segments read ahead, which it does not count either
//	121  requests, packing, the table of files, and what waits for the garbage collector, which is
//	     held to the rest; packing works with as many cores as an eighth of all, 64 MiB, has room for, and
//	     as many files wait for it as a sixteenth, 32 MiB, has room for
//
// What the kernel keeps of files, and of the index beyond that, is its page cache, and goes when a program
// needs it: with two million chunks in the index and --memory 64MiB, 38 MiB were the daemon's own and 92 MiB
// of files, of which the kernel took 63 when told to (TestMemoryBesideALargeIndex).

// fixed is what the daemon takes whatever it keeps.
const fixed = 48 << 20

// cacheBytes is what decoded chunks may take.
func (c *mountConfig) cacheBytes() int64 {
	if c.cacheSize.Given {
		return max(c.cacheSize.Bytes, 1<<20)
	}
	return (c.memory.Bytes - fixed) / 20 * 11
}

// waitingFile is what a file takes, in bytes, that waits to be packed: its node, its state, its place.
const waitingFile = 1600

// maxFiles is how many files may wait: a sixteenth of all is for them.
func (c *mountConfig) maxFiles() int { return int(c.memory.Bytes / 16 / waitingFile) }

// expectBytes is what segments may take that are read ahead.
func (c *mountConfig) expectBytes() int64 { return min(24<<20, c.cacheBytes()/8) }

// memoryLimit is what the Go runtime is held to, together with the decoded chunks that it does not know of;
// see heapLimit.
func (c *mountConfig) memoryLimit() int64 {
	return c.memory.Bytes - c.memory.Bytes/16 - 16<<20 - c.expectBytes()
}

// heapLimit holds the Go runtime to what is left of all by the decoded chunks that lie beside its heap.
type heapLimit struct {
	all  int64
	left atomic.Int64
	mu   sync.Mutex
}

// limitStep is in what steps the limit moves: to move it stops the world.
const limitStep = 16 << 20

func newHeapLimit(all int64) *heapLimit {
	l := &heapLimit{all: all}
	l.left.Store(all)
	debug.SetMemoryLimit(all)
	return l
}

// beside is told how many bytes lie beside the heap. It does not wait.
func (l *heapLimit) beside(n int64) {
	left := max(l.all-(n+limitStep-1)/limitStep*limitStep, 1)
	if l.left.Swap(left) == left {
		return
	}
	go func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		debug.SetMemoryLimit(l.left.Load())
	}()
}
