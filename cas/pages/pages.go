// Package pages has buffers for what is read past the page cache. They begin at a multiple of a page, as
// O_DIRECT wants it, and lie in huge pages where the host gives any: a request of 1 MiB costs a third of the
// processor time then, since the kernel looks for one page instead of 256.
//
// The memory is not of Go's heap. It goes back to the host when the collector finds no buffer of the same
// huge page in use or in a pool, which forgets what was not used for two collections. Slots do without the
// collector.
package pages

import (
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page, in bytes.
const hugePage = 2 << 20

// Buffer is a buffer of a pool. Its bytes are not to be used without it: the collector does not see that they
// refer to it.
type Buffer struct {
	Bytes []byte
	slab  *slab
}

// slab is the huge page that buffers lie in.
type slab struct{ bytes []byte }

// Pool has buffers of one size: a power of two from a page to a huge page. It may be used by several
// goroutines at once.
type Pool struct {
	size int
	free sync.Pool
}

// NewPool returns a pool of buffers of size bytes.
func NewPool(size int) *Pool { return &Pool{size: size} }

// Get returns a buffer with whatever bytes it had.
func (p *Pool) Get() *Buffer {
	if b, ok := p.free.Get().(*Buffer); ok {
		return b
	}
	s := newSlab()
	if s == nil {
		b := make([]byte, p.size+unix.Getpagesize())
		skip := -uintptr(unsafe.Pointer(&b[0])) & uintptr(unix.Getpagesize()-1)
		return &Buffer{Bytes: b[skip : int(skip)+p.size : int(skip)+p.size]}
	}
	for off := p.size; off < hugePage; off += p.size {
		p.free.Put(s.cut(off, p.size))
	}
	return s.cut(0, p.size)
}

// Put takes a buffer back that Get gave.
func (p *Pool) Put(b *Buffer) { p.free.Put(b) }

func (s *slab) cut(off, n int) *Buffer { return &Buffer{Bytes: s.bytes[off : off+n : off+n], slab: s} }

// newSlab maps a huge page; nil: the host gives no more memory.
func newSlab() *slab {
	at := mapHuge(hugePage)
	if at == nil {
		return nil
	}
	s := &slab{bytes: unsafe.Slice((*byte)(at), hugePage)}
	runtime.AddCleanup(s, func(at unsafe.Pointer) { _ = unix.MunmapPtr(at, hugePage) }, at)
	return s
}

// mapHuge maps n bytes, a multiple of a huge page, in such pages where the host gives any; nil: it gives no
// more memory.
func mapHuge(n uintptr) unsafe.Pointer {
	// One huge page more of address space has an aligned part.
	m, err := unix.MmapPtr(-1, 0, nil, n+hugePage, unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	head := -uintptr(m) & (hugePage - 1)
	at := unsafe.Add(m, head)
	if head > 0 {
		_ = unix.MunmapPtr(m, head)
	}
	_ = unix.MunmapPtr(unsafe.Add(at, n), hugePage-head)
	bytes := unsafe.Slice((*byte)(at), n)
	if unix.Mprotect(bytes, unix.PROT_READ|unix.PROT_WRITE) != nil {
		_ = unix.MunmapPtr(at, n)
		return nil
	}
	_ = unix.Madvise(bytes, unix.MADV_HUGEPAGE) // without them it is slower
	return at
}
