package assemble

import (
	"math/bits"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/pages"
)

// buffer holds one decoded chunk, which begins at a place of it. Where that is where it begins in a page of
// the file, a page that is answered is one page here, and not parts of two, which the kernel would pin and
// copy one by one.
type buffer struct {
	bytes []byte
	at    int
	class int // index into pools; -1: none
	slot  *pages.Slot
	slots *pages.Slots // that it is of; nil: it is none
}

// page is what phases are of; any that is no larger than the kernel's would do.
const page = 4 << 10

func phase(at int64) int { return int(at & (page - 1)) }

// Chunks longer than slotFrom have slots, in which they may begin anywhere in the first page. The pools'
// buffers have 4 KiB to 256 KiB, powers of two.
const (
	slotFrom = cas.ChunkSize / 2
	slotSize = cas.ChunkSize + page
	minClass = 12
	maxClass = 18
)

var pools [maxClass - minClass + 1]sync.Pool

// newBuffer returns a buffer of the heap for n bytes, in which they begin at the place wanted if that takes
// no larger one.
func newBuffer(n, at int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1))-minClass, 0)
	if class >= len(pools) {
		return &buffer{bytes: make([]byte, n), class: -1}
	}
	if n+at > 1<<(class+minClass) {
		at = 0
	}
	b, ok := pools[class].Get().(*buffer)
	if !ok {
		b = &buffer{bytes: make([]byte, 1<<(class+minClass)), class: class}
	}
	b.at = at
	return b
}

func (b *buffer) free() {
	switch {
	case b.slot != nil:
		b.slots.Put(b.slot)
	case b.class >= 0:
		pools[b.class].Put(b)
	}
}
