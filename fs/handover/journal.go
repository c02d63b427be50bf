package handover

import (
	"fmt"
	"iter"
	"sync"
)

// Entry is an operation that must not be done twice. What Op, Arg and the inodes mean is the caller's.
type Entry struct {
	Unique      uint64 // of the request, without the bit that says that it comes again
	Op          uint32
	Dir, Dir2   uint64
	Ino, Ino2   uint64
	Arg         uint64
	Name, Name2 string // 255 bytes at most
}

// Journal is what is being done that must not be done twice. An entry is begun before the first effect, done
// before the answer, and free after it. All methods are safe for concurrent use.
type Journal struct {
	mu     sync.Mutex
	stock  stock
	slots  []Slot
	former map[uint64]*Slot // what former lives left, by unique
}

func (j *Journal) open(h *header, slots []journalSlot) {
	j.stock = stock{used: &h.journalUsed, size: uint64(len(slots))}
	j.slots = make([]Slot, len(slots))
	for i := range slots {
		j.slots[i] = Slot{journal: j, slot: &slots[i], number: uint32(i)}
	}
}

// load finds what former lives left. Of two entries for one request, which only a caller that did not look
// for the first would make, the one that is done counts.
func (j *Journal) load() error {
	j.former = map[uint64]*Slot{}
	return j.stock.load("journal entries", func(i uint32) (bool, error) {
		s := &j.slots[i]
		state := s.slot.state.Load()
		switch uint32(state) {
		case slotFree:
			return true, nil
		case slotBegun, slotDone:
		default:
			return false, fmt.Errorf("journal entry %d has the state %#x: %w", i, state, ErrDamaged)
		}
		s.former = true
		if j.former[s.slot.unique] == nil || uint32(state) == slotDone {
			j.former[s.slot.unique] = s
		}
		return false, nil
	})
}

// Begin notes what is about to be done, before its first effect. It returns nil if all slots are taken, or a
// name is longer than 255 bytes, which no operation on the host would take.
func (j *Journal) Begin(e Entry) *Slot {
	if len(e.Name) > maxName || len(e.Name2) > maxName {
		return nil
	}
	j.mu.Lock()
	i, ok := j.stock.take()
	j.mu.Unlock()
	if !ok {
		return nil
	}
	s := &j.slots[i]
	s.slot.begin(&e)
	return s
}

// Find returns the entry of a request that a former life began, nil if there is none. unique is without the
// bit that says that it comes again. The caller ends the entry with Done and Free, instead of beginning
// another.
func (j *Journal) Find(unique uint64) *Slot {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.former[unique]
}

// Left are all entries that former lives left and nobody freed yet. An entry may be freed while it is looked
// at only by the one who looks: so this is for the time before requests are served, or after those that come
// again have all been answered.
func (j *Journal) Left() iter.Seq[*Slot] {
	return func(yield func(*Slot) bool) {
		for i := range j.slots[:min(j.stock.used.Load(), j.stock.size)] {
			s := &j.slots[i]
			j.mu.Lock()
			former := s.former
			j.mu.Unlock()
			if former && !yield(s) {
				return
			}
		}
	}
}
