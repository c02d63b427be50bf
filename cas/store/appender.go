package store

import (
	"slices"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/cas/segment"
)

// appender is what is being written: the segments that this process appends to, and the records on their way
// into the index. Invariants, under mu:
//
//	active, full   have all segments that are not yet sealed, full ones by number; an active one is newest
//	last < next    numbers are given out once
//	pending        has of each hash the last record that is claimed, or written and not indexed; no other
//	written        has the records written that no flush has taken, in the order in which they were finished
type appender struct {
	folder
	size int64 // segments are sealed about there

	flushing locks.Mutex[flushingLock] // held by the one commit that is under way
	growing  locks.Mutex[growingLock]  // held while a segment is created

	mu       locks.Mutex[appenderLock]
	finished sync.Cond // on mu: a slot was finished
	closed   bool
	active   *tail   // takes the records; nil until there is one to take
	full     []*tail // not yet sealed
	last     uint32  // highest number of a segment that exists
	next     uint32
	pending  map[cas.Hash]*record
	written  []*record
	stats    Stats // without what the tails hold
}

// A tail is a segment that this process appends to, or has filled and not yet sealed.
type tail struct {
	w *segment.Writer
	// Under appender.flushing:
	named  bool  // its name is durable
	synced int64 // end of the last record that is durable
	// Under appender.mu:
	err error // fsync failed; nothing more is written to it
}

func (a *appender) init(d folder, size int64) {
	a.folder, a.size = d, size
	a.finished.L = &a.mu
	a.pending = make(map[cas.Hash]*record)
}

// append appends rec as r, which is claimed and is settled then. buf is as segment.Writer.Write takes it.
func (a *appender) append(r *record, rec *segment.Record, buf []byte) (full bool, err error) {
	t, slot, full, err := a.reserve(len(buf) - segment.RecordHeaderSize)
	if err == nil {
		err = t.w.Write(slot, rec, buf)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	if t != nil {
		t.w.Finish(slot, rec, err)
		a.finished.Broadcast()
		if err == nil {
			err = t.err
		}
	}
	if err != nil {
		a.settleLocked(r, failed, err)
		return full, err
	}
	r.entry, r.tail = rec.Entry(t.w.Number()), t
	a.written = append(a.written, r)
	a.settleLocked(r, written, nil)
	return full, nil
}

// reserve takes a slot in the active segment. With a segment comes the duty to finish the slot.
func (a *appender) reserve(stored int) (t *tail, slot segment.Slot, full bool, err error) {
	for {
		a.mu.Lock()
		if a.closed {
			a.mu.Unlock()
			return nil, slot, full, ErrClosed
		}
		if t = a.active; t != nil {
			if slot, err = t.w.Reserve(stored); err == nil {
				a.mu.Unlock()
				return t, slot, full, nil
			}
			a.full = append(a.full, t)
			a.active = nil
			full = true
		}
		a.mu.Unlock()
		if err := a.grow(); err != nil {
			return nil, slot, full, err
		}
	}
}

// grow creates a segment unless there is one.
func (a *appender) grow() error {
	a.growing.Lock()
	defer a.growing.Unlock()
	a.mu.Lock()
	if a.active != nil || a.closed {
		a.mu.Unlock()
		return nil
	}
	n := a.next
	a.next++ // also when it fails: the name may be taken now
	a.mu.Unlock()

	w, err := segment.Create(a.fs, a.dir, a.segment(n), a.size)
	if err != nil {
		_ = a.fs.Remove(segment.Path(a.dir, n)) // holds nothing
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = n
	t := &tail{w: w, synced: segment.FileHeaderSize}
	if a.closed {
		return w.Close() // an empty segment stays
	}
	a.active = t
	return nil
}

// retireActive has the active segment take no more, so that the next flush seals it; not when it is empty.
func (a *appender) retireActive() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return ErrClosed
	}
	if a.active != nil && a.active.w.Size() > segment.FileHeaderSize {
		a.full = append(a.full, a.active)
		a.active = nil
	}
	return nil
}

// settle is settleLocked for a caller without the lock.
func (a *appender) settle(r *record, st state, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settleLocked(r, st, err)
}

// leansOn notes that r, which is claimed, needs the pending records on.
func (a *appender) leansOn(r *record, on []*record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.on = on
}

// settleLocked moves r on.
func (a *appender) settleLocked(r *record, st state, err error) {
	a.mu.AssertHeld()
	if r.state == claimed {
		defer close(r.done)
	}
	r.state, r.err = st, err
	if st != written && a.pending[r.hash] == r {
		delete(a.pending, r.hash)
	}
}

// settled reports whether all of deps are in the index, and the error of one that failed.
func (a *appender) settled(deps []*record) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := true
	for _, r := range deps {
		in, err := r.fateLocked()
		if err != nil {
			return false, err
		}
		ok = ok && in
	}
	return ok, nil
}

// writtenAt is where the record of h lies that is written and not yet in the index; of segment 0 when there
// is none.
func (a *appender) writtenAt(h cas.Hash) (cas.Location, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return cas.Location{}, ErrClosed
	}
	if r := a.pending[h]; r != nil && r.state == written {
		return r.entry.Location, nil
	}
	return cas.Location{}, nil
}

// onTheirWay lists the records of hashes that are pending; nil: none. It is asked before the index: a record
// goes into that before it ceases to be pending.
func (a *appender) onTheirWay(hashes []cas.Hash) (pend []*record, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, ErrClosed
	}
	if len(a.pending) == 0 {
		return nil, nil
	}
	for i, h := range hashes {
		if r := a.pending[h]; r != nil {
			if pend == nil {
				pend = make([]*record, len(hashes))
			}
			pend[i] = r
		}
	}
	return pend, nil
}

// overlay sets locs, which the index told, to where the records of pend were written since it may have been
// asked. coming says which are still claimed and in neither place; nil: none.
func (a *appender) overlay(pend []*record, locs []cas.Location) (coming []bool) {
	if pend == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range pend {
		switch {
		case r == nil || r.state == failed:
		case r.entry.Segment != 0: // an indexed record without an entry was found held
			locs[i] = r.entry.Location
		case r.state == claimed && locs[i].Segment == 0:
			if coming == nil {
				coming = make([]bool, len(pend))
			}
			coming[i] = true
		}
	}
	return coming
}

// sealed lists the segments that are no longer appended to, ascending.
func (a *appender) sealed() ([]uint32, error) {
	a.mu.Lock()
	last := a.last
	var busy []uint32
	for _, t := range a.full {
		busy = append(busy, t.w.Number())
	}
	if a.active != nil {
		busy = append(busy, a.active.w.Number())
	}
	a.mu.Unlock()
	numbers, err := a.numbers()
	return slices.DeleteFunc(numbers, func(n uint32) bool { return n > last || slices.Contains(busy, n) }),
		err
}

// tailsLocked lists the segments that are being written, by number.
func (a *appender) tailsLocked() []*tail {
	a.mu.AssertHeld()
	tails := slices.Clone(a.full)
	if a.active != nil {
		tails = append(tails, a.active)
	}
	return tails
}

// tails is tailsLocked for a caller without the lock.
func (a *appender) tails() []*tail {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tailsLocked()
}

// newest is the highest number of a segment.
func (a *appender) newest() uint32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}
