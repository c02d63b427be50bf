package handover

import (
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
)

// What a handle is open on.
const (
	KindFile uint32 = 1
	KindDir  uint32 = 2
)

// Handle is an open file or directory, as the kernel has it. What Flags, Thread and Mode mean is up to the
// caller.
type Handle struct {
	Node    uint64 // id
	Unique  uint64 // of the request that opened it
	Flags   uint32
	Thread  uint32
	Mode    uint32
	Backing int32
	Kind    uint32 // KindFile or KindDir
}

// handleSlot is a Handle in the memory; the package comment draws it.
type handleSlot struct {
	state  atomic.Uint64
	node   uint64
	unique uint64
	copies [2]changing
	_      [8]byte
}

// changing is what Set changes.
type changing struct {
	flags, thread, mode uint32
	backing             int32
}

// Bits of a handle's state.
const (
	handleKind   = 0xff
	handleSecond = 1 << 8
	handleGen    = 32 // where the generation begins
)

// Handles are the open files and directories. All methods are safe for concurrent use.
type Handles struct {
	mu    sync.Mutex
	stock stock
	slots []handleSlot
}

func (h *Handles) open(head *header, slots []handleSlot) {
	h.slots = slots
	h.stock = stock{used: &head.handlesUsed, size: uint64(len(slots))}
}

// load finds the free slots.
func (h *Handles) load() error {
	return h.stock.load("handles", func(i uint32) (bool, error) {
		s := h.slots[i].state.Load()
		if uint32(s)&^uint32(handleKind|handleSecond) != 0 || uint32(s)&handleKind > KindDir {
			return false, fmt.Errorf("handle %d has the state %#x: %w", i, s, ErrDamaged)
		}
		return s&handleKind == 0, nil
	})
}

// Add keeps a handle, and returns the number that the kernel shall know it by, which is never 0. It returns
// false if all slots are taken, or Kind is neither of the two.
func (h *Handles) Add(x Handle) (fh uint64, ok bool) {
	if x.Kind != KindFile && x.Kind != KindDir {
		return 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i, ok := h.stock.take()
	if !ok {
		return 0, false
	}
	s := &h.slots[i]
	gen := s.state.Load()>>handleGen + 1
	if uint32(gen) == 0 {
		gen = 1
	}
	s.node, s.unique = x.Node, x.Unique
	s.copies[0] = changing{x.Flags, x.Thread, x.Mode, x.Backing}
	s.state.Store(gen<<handleGen | uint64(x.Kind))
	return uint64(i) | gen<<32, true
}

// findLocked is the slot of fh and its state, nil if it is not open. h.mu is held.
func (h *Handles) findLocked(fh uint64) (*handleSlot, uint64) {
	i := uint64(uint32(fh))
	if i >= h.stock.size || i >= h.stock.used.Load() {
		return nil, 0
	}
	s := &h.slots[i]
	state := s.state.Load()
	if state&handleKind == 0 || state>>handleGen != fh>>32 {
		return nil, 0
	}
	return s, state
}

// Set changes the flags, the thread, the mode and the backing id of a handle together. Its node, its unique
// and its kind stay as they are. It does nothing if fh is not open.
func (h *Handles) Set(fh uint64, x Handle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, state := h.findLocked(fh)
	if s == nil {
		return
	}
	state ^= handleSecond
	s.copies[state/handleSecond&1] = changing{x.Flags, x.Thread, x.Mode, x.Backing}
	s.state.Store(state)
}

// Get returns the handle that the kernel knows as fh, false if there is none.
func (h *Handles) Get(fh uint64) (Handle, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, state := h.findLocked(fh)
	if s == nil {
		return Handle{}, false
	}
	return s.handle(state), true
}

func (s *handleSlot) handle(state uint64) Handle {
	c := &s.copies[state/handleSecond&1]
	return Handle{Node: s.node, Unique: s.unique, Flags: c.flags, Thread: c.thread, Mode: c.mode,
		Backing: c.backing, Kind: uint32(state & handleKind)}
}

// Remove ends a handle. It returns false if fh was not open.
func (h *Handles) Remove(fh uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, state := h.findLocked(fh)
	if s == nil {
		return false
	}
	s.state.Store(state &^ (handleKind | handleSecond))
	h.stock.give(uint32(fh))
	return true
}

// All are the handles that are open. What is added or removed meanwhile may be among them or not.
func (h *Handles) All() iter.Seq2[uint64, Handle] {
	return func(yield func(uint64, Handle) bool) {
		for i := uint64(0); ; i++ {
			fh, x, more := h.at(i)
			if !more || fh != 0 && !yield(fh, x) {
				return
			}
		}
	}
}

// at returns the handle in slot i; fh is 0 if it is free. more is false behind the last slot.
func (h *Handles) at(i uint64) (fh uint64, x Handle, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i >= h.stock.size || i >= h.stock.used.Load() {
		return 0, Handle{}, false
	}
	s := &h.slots[i]
	state := s.state.Load()
	if state&handleKind == 0 {
		return 0, Handle{}, true
	}
	return i | state>>handleGen<<32, s.handle(state), true
}
