// Package scratch has buffers for what is encoded or decoded and not kept, which are used again.
package scratch

import "sync"

const (
	// short is the capacity up to which a buffer is given to those that do not say how much they need.
	short = 512 << 10
	// most is the capacity up to which a buffer is used again, that of the bases of a recipe: what is longer
	// should not stay in memory.
	most = 10 << 20
)

var (
	buffers = sync.Pool{New: func() any { return new([]byte) }}
	long    sync.Pool
)

// Get is an empty buffer.
func Get() *[]byte {
	p := buffers.Get().(*[]byte)
	*p = (*p)[:0]
	return p
}

// Room is an empty buffer with room for n bytes. Those of the bases of a recipe are not to grow from little
// each time, nor to be held by what is short.
func Room(n int) *[]byte {
	if n <= short {
		return Get()
	}
	p, _ := long.Get().(*[]byte)
	if p == nil {
		p = new([]byte)
	}
	if cap(*p) < n {
		*p = make([]byte, 0, n)
	}
	*p = (*p)[:0]
	return p
}

// Put gives a buffer back.
func Put(p *[]byte) {
	switch {
	case cap(*p) <= short:
		buffers.Put(p)
	case cap(*p) <= most:
		long.Put(p)
	}
}
