// Package scratch has buffers for what is encoded or decoded and not kept, which are used again.
package scratch

import "sync"

// most is the capacity up to which a buffer is used again, that of the bases of a recipe: what is longer
// should not stay in memory.
const most = 4 << 20

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Get is a buffer of any length, with any bytes.
func Get() *[]byte { return buffers.Get().(*[]byte) }

// Put gives a buffer back.
func Put(p *[]byte) {
	if cap(*p) <= most {
		buffers.Put(p)
	}
}
