package fusefs

import (
	"math/bits"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	page = 4096

	// writeHeader is how much of a WRITE stands before its bytes: struct fuse_in_header and fuse_write_in.
	writeHeader = 80

	maxKept = 8 // large buffers that there are, at most, once those in use have come back
)

// requestBuffer has room for any request. The bytes of a WRITE begin at a page in it.
//
// Its memory is no part of Go's heap and is there from the start. When a process is killed while the kernel
// copies a request into memory that is not there yet, the kernel fails that request; into this it is copied,
// and whoever serves the mount next can answer it.
type requestBuffer struct {
	in     []byte
	region []byte
}

// requestBuffers are the large buffers that nobody reads into.
type requestBuffers struct {
	mu    sync.Mutex
	spare []*requestBuffer
	taken int // by readers, and by requests that stay in theirs
}

func (p *requestBuffers) get() *requestBuffer {
	p.mu.Lock()
	p.taken++
	if k := len(p.spare); k > 0 {
		b := p.spare[k-1]
		p.spare = p.spare[:k-1]
		p.mu.Unlock()
		return b
	}
	p.mu.Unlock()
	region, err := unix.Mmap(-1, 0, page+maxRequest+page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		panic(err) // as where Go's heap cannot grow
	}
	return &requestBuffer{in: region[page-writeHeader:], region: region}
}

func (p *requestBuffers) put(b *requestBuffer) {
	p.mu.Lock()
	p.taken--
	keep := p.taken+len(p.spare) < maxKept
	if keep {
		p.spare = append(p.spare, b)
	}
	p.mu.Unlock()
	if !keep {
		unix.Munmap(b.region)
	}
}

// scratch lends buffers of 4 KiB to 2 MiB, in powers of two, which begin at a page: for answers, and for
// requests of which most are small.
type scratch struct {
	classes [10]sync.Pool // of *[]byte
}

// get lends a buffer of at least n bytes, of any content.
func (s *scratch) get(n int) *[]byte {
	class := classOf(n)
	if class >= len(s.classes) {
		b := make([]byte, n)
		return &b
	}
	if b, ok := s.classes[class].Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, page<<class)
	return &b
}

// put takes back what get lent.
func (s *scratch) put(b *[]byte) {
	if class := classOf(len(*b)); class < len(s.classes) {
		s.classes[class].Put(b)
	}
}

func classOf(n int) int { return bits.Len(uint(max(n, 1)-1) / page) }
