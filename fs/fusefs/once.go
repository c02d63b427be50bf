package fusefs

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/fs/handover"
)

// resent is the bit of a request's number that says that the kernel has sent it before: to a process that
// ended before it had answered. The answer has it, too.
const resent = 1 << 63

// Most requests may be done twice. Not so those that make, move or remove a name, or an attribute that must
// not be there yet: done once more they fail, or undo what was done. They are written down before they are
// begun, and again when they are done, so that the process which gets one again knows what became of it:
//
//	nothing is written   it was not begun: it is done now
//	it is done           it is answered as it was
//	it was begun         whether it came to pass can be seen: for its caller the kernel holds the locks of the
//	                     directories, and nothing else changes names but requests
//
// The slot is freed when the kernel has the answer.

// change is a request that must not be done twice. Its functions are called one after the other.
type change struct {
	// before is what there is before it is done.
	before handover.Entry
	// happened reports whether it came to pass, for a process that was ended before it could say so. It does
	// what belongs to the request and may not have been done.
	happened func(before handover.Entry) bool
	// do does it, and answers.
	do func() fuse.Status
	// answer answers it, when it has been done.
	answer func() fuse.Status
}

// once does a request that must not be done twice.
func (s *Server) once(in *fuse.InHeader, r change) fuse.Status {
	if in.Unique&resent != 0 {
		if was := s.memory.Journal().Find(in.Unique &^ resent); was != nil {
			s.written.add(in.Unique, was)
			return again(was, r)
		}
	}
	r.before.Unique, r.before.Op = in.Unique&^resent, in.Opcode
	slot := s.memory.Journal().Begin(r.before)
	s.written.add(in.Unique, slot)
	fault(in.Opcode, "begun")
	st := r.do()
	fault(in.Opcode, "did")
	slot.Done(int32(st), 0)
	return st
}

// again answers a request of which an earlier process wrote.
func again(was *handover.Slot, r change) fuse.Status {
	done, status, _ := was.Result()
	switch {
	case done && status != 0:
		return fuse.Status(status)
	case done:
		return r.answer()
	case r.happened(was.Entry()):
		was.Done(0, 0)
		return r.answer()
	}
	fault(was.Entry().Op, "begun")
	st := r.do()
	fault(was.Entry().Op, "did")
	was.Done(int32(st), 0)
	return st
}

// written are the slots of the requests in hand that must not be done twice.
type written struct {
	mu    sync.Mutex
	slots map[uint64]*handover.Slot
}

func (w *written) add(unique uint64, s *handover.Slot) {
	if s == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slots == nil {
		w.slots = map[uint64]*handover.Slot{}
	}
	w.slots[unique] = s
}

// answered frees the slot of a request that the kernel has the answer to.
func (w *written) answered(unique uint64) {
	w.mu.Lock()
	s := w.slots[unique]
	delete(w.slots, unique)
	w.mu.Unlock()
	s.Free()
}

// has reports whether a request is in hand.
func (w *written) has(unique uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slots[unique] != nil || w.slots[unique|resent] != nil
}
