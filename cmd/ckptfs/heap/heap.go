// Package heap holds Go's heap, and what lies beside it, to one bound.
//
// The decoded chunks lie beside the heap. As they grow, the runtime's limit falls (Limit.Beside). Where what
// lives on the heap needs their room, as the tensors of a file with very many of them do, they make room for
// it (Limit.Watch).
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
)

// Limit holds the Go runtime to what is left of all by what lies beside its heap.
type Limit struct {
	all  int64
	left atomic.Int64
	mu   sync.Mutex
}

// step is in what steps the limit moves: to move it stops the world.
const step = 16 << 20

// NewLimit holds the heap, and what lies beside it, to so many bytes.
func NewLimit(all int64) *Limit {
	l := &Limit{all: all}
	l.left.Store(all)
	debug.SetMemoryLimit(all)
	return l
}

// Beside is told how many bytes lie beside the heap. It does not wait.
func (l *Limit) Beside(n int64) {
	left := max(l.all-steps(n), 1)
	if l.left.Swap(left) == left {
		return
	}
	go func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		debug.SetMemoryLimit(l.left.Load())
	}()
}

func steps(n int64) int64 { return (n + step - 1) / step * step }

// garbage is what the heap has besides what lives on it, as a share: with less the collector runs too often.
const garbage = 4

// Watch calls yield, after a collection, with how many of the bytes that may lie beside the heap what lives
// on it needs, whenever that changes: most are there for them.
func (l *Limit) Watch(most int64, yield func(n int64)) { (&watch{l.all - most, yield, 0}).await() }

type watch struct {
	room  int64 // for the heap, when nothing yields
	yield func(n int64)
	last  int64 // that yield was called with; used by one cleanup at a time
}

// await has collected called after the next collection.
func (w *watch) await() {
	sentinel := new(struct{ p *watch }) // with a pointer: it shares its block with nothing that lives on
	runtime.AddCleanup(sentinel, (*watch).collected, w)
}

func (w *watch) collected() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	n := int64(live[0].Value.Uint64())
	if n = steps(max(0, n+n/garbage-w.room)); n != w.last {
		w.last = n
		go w.yieldAgain(n)
		return
	}
	w.await()
}

// yieldAgain lets the next collection tell only when this is done.
func (w *watch) yieldAgain(n int64) {
	w.yield(n)
	w.await()
}
