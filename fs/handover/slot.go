package handover

import "sync/atomic"

// journalSlot is an entry in the memory; the package comment draws it.
type journalSlot struct {
	state   atomic.Uint64
	unique  uint64
	op      uint32
	lengths [2]uint8
	_       [2]byte
	dir     [2]uint64
	ino     [2]uint64
	arg     uint64
	node    uint64
	names   [2][256]byte
	_       [56]byte
}

// The lower half of an entry's state. The upper one is the status.
const (
	slotFree  = 0
	slotBegun = 1
	slotDone  = 2
)

// begin writes an entry to a slot that is free.
func (s *journalSlot) begin(e *Entry) {
	s.unique, s.op, s.arg, s.node = e.Unique, e.Op, e.Arg, 0
	s.dir = [2]uint64{e.Dir, e.Dir2}
	s.ino = [2]uint64{e.Ino, e.Ino2}
	s.lengths = [2]uint8{uint8(copy(s.names[0][:], e.Name)), uint8(copy(s.names[1][:], e.Name2))}
	s.state.Store(slotBegun)
}

// Slot is an entry of the journal. One goroutine at a time uses it. The methods of a nil *Slot do nothing.
type Slot struct {
	journal *Journal
	slot    *journalSlot
	number  uint32
	former  bool // a former life's; guarded by journal.mu
}

// Done notes how the operation ended, before the answer is written: its errno or 0, and the node that the
// answer tells of, if any. It does nothing if that is noted already.
func (s *Slot) Done(status int32, node uint64) {
	if s == nil || uint32(s.slot.state.Load()) != slotBegun {
		return
	}
	s.slot.node = node
	s.slot.state.Store(uint64(uint32(status))<<32 | slotDone)
}

// Free gives the slot back, after the answer is written. The Slot may not be used any more.
func (s *Slot) Free() {
	if s == nil {
		return
	}
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	if uint32(s.slot.state.Load()) == slotFree {
		return
	}
	if s.former {
		s.former = false
		if s.journal.former[s.slot.unique] == s {
			delete(s.journal.former, s.slot.unique)
		}
	}
	s.slot.state.Store(slotFree)
	s.journal.stock.give(s.number)
}

// Entry is what Begin was told.
func (s *Slot) Entry() Entry {
	if s == nil {
		return Entry{}
	}
	p := s.slot
	return Entry{Unique: p.unique, Op: p.op, Dir: p.dir[0], Dir2: p.dir[1], Ino: p.ino[0], Ino2: p.ino[1],
		Arg: p.arg, Name: string(p.names[0][:p.lengths[0]]), Name2: string(p.names[1][:p.lengths[1]])}
}

// Result is what Done was told. done is false if the operation was begun only: then it may have happened or
// not.
func (s *Slot) Result() (done bool, status int32, node uint64) {
	if s == nil {
		return false, 0, 0
	}
	state := s.slot.state.Load()
	if uint32(state) != slotDone {
		return false, 0, 0
	}
	return true, int32(state >> 32), s.slot.node
}
