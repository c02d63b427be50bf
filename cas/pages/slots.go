package pages

import (
	"math/bits"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// SlabSize is how many bytes Slots map at a time: two huge pages.
	SlabSize = 2 * hugePage
	// idle is how long a slab of which nothing is used stays mapped.
	idle = 5 * time.Second
)

// Slots are buffers of one size for a cache that keeps many of them and counts every byte: what is mapped is
// known, and a slab goes back to the host when it is not used for some seconds, or at once when asked for
// (Trim), without the collector. The slab mapped first that has room is used first.
//
// A buffer must be returned with Put, once, and not be touched afterwards: it may not be mapped any more.
type Slots struct {
	size, each int // bytes of a buffer; buffers in a slab
	now        func() time.Time

	mu     sync.Mutex
	slabs  []*slots
	used   int // buffers
	closes *time.Timer
	tell   func(mapped int64) // called with mu held; may be nil
}

// slots is a slab of buffers.
type slots struct {
	bytes []byte
	free  uint64 // bit i: buffer i is
	since time.Time
}

// Slot is a buffer of Slots.
type Slot struct {
	Bytes []byte
	of    *slots
}

// NewSlots returns Slots of buffers of size bytes, a multiple of a page of which 2 to 64 fit into a slab.
// tell, which may be nil, is told how many bytes are mapped whenever that changes; it must not wait for
// anything.
func NewSlots(size int, tell func(mapped int64)) *Slots {
	return &Slots{size: size, each: SlabSize / size, tell: tell, now: time.Now}
}

// Get returns a buffer with whatever bytes it had; nil: the host gives no more memory.
func (p *Slots) Get() *Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slabs {
		if s.free != 0 {
			return p.takeLocked(s)
		}
	}
	at := mapHuge(SlabSize)
	if at == nil {
		return nil
	}
	s := &slots{bytes: unsafe.Slice((*byte)(at), SlabSize), free: 1<<p.each - 1}
	p.slabs = append(p.slabs, s)
	p.toldLocked()
	return p.takeLocked(s)
}

func (p *Slots) toldLocked() {
	if p.tell != nil {
		p.tell(int64(len(p.slabs)) * SlabSize)
	}
}

func (p *Slots) takeLocked(s *slots) *Slot {
	i := bits.TrailingZeros64(s.free)
	s.free &^= 1 << i
	p.used++
	return &Slot{Bytes: s.bytes[i*p.size : (i+1)*p.size : (i+1)*p.size], of: s}
}

// Put takes a buffer back that Get gave.
func (p *Slots) Put(b *Slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := b.of
	at := uintptr(unsafe.Pointer(&b.Bytes[0])) - uintptr(unsafe.Pointer(&s.bytes[0]))
	s.free |= 1 << (at / uintptr(p.size))
	p.used--
	b.Bytes, b.of = nil, nil
	if p.unusedLocked(s) {
		s.since = p.now()
		if p.closes == nil {
			p.closes = time.AfterFunc(idle, p.sweep)
		}
	}
}

func (p *Slots) unusedLocked(s *slots) bool { return s.free == 1<<p.each-1 }

// sweep unmaps what was not used for a while.
func (p *Slots) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closes = nil
	if p.dropLocked(func(s *slots) bool { return p.now().Sub(s.since) >= idle*9/10 }) > 0 {
		p.closes = time.AfterFunc(idle, p.sweep)
	}
}

// dropLocked unmaps the unused slabs that are to go, and returns how many stay.
func (p *Slots) dropLocked(goes func(*slots) bool) (stay int) {
	kept := p.slabs[:0]
	for _, s := range p.slabs {
		switch unused := p.unusedLocked(s); {
		case unused && goes(s):
			_ = unix.MunmapPtr(unsafe.Pointer(&s.bytes[0]), SlabSize)
			s.bytes = nil
		default:
			kept = append(kept, s)
			if unused {
				stay++
			}
		}
	}
	gone := p.slabs[len(kept):]
	clear(gone)
	if p.slabs = kept; len(gone) > 0 {
		p.toldLocked()
	}
	return stay
}

// Trim unmaps the slabs of which nothing is used.
func (p *Slots) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(func(*slots) bool { return true })
}

// Room is how many bytes are mapped, and how many buffers of them are free.
func (p *Slots) Room() (mapped int64, free int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(len(p.slabs)) * SlabSize, len(p.slabs)*p.each - p.used
}

// Emptiest names the slab that the fewest buffers are used of, of those of which some are free; nil: there is
// none. Of is what tells whose buffer is whose.
func (p *Slots) Emptiest() (slab any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var least *slots
	for _, s := range p.slabs {
		if s.free != 0 && (least == nil || bits.OnesCount64(s.free) > bits.OnesCount64(least.free)) {
			least = s
		}
	}
	if least == nil {
		return nil
	}
	return least
}

// Of is the slab that a buffer lies in.
func (b *Slot) Of() (slab any) { return b.of }

// Each is the memory that one buffer of a full slab takes, in bytes.
func (p *Slots) Each() int64 { return int64(SlabSize / p.each) }
