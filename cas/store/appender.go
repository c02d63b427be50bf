package store

import (
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/locks"
	"ckptfs/cas/segment"
)

// appender is what is being written: the segments that this process appends to, and the records on their way
// into the index. Invariants, under mu:
//
//	pending  has of each hash the last record that is claimed, or written and not indexed; no other
//	written  has the records written that no flush has taken, in the order in which they were finished
type appender struct {
	folder
	ahead int64 // bytes that are synced before a commit asks for it

	flushing locks.Mutex[flushingLock] // held while records go from written into the index
	tails    segment.Tails             // their Indexed changes under flushing
	top      cas.Watermark             // the end of the highest record that a flush took; under flushing
	aside    sync.WaitGroup            // the goroutines that sync and drain; none begins once closed is set

	mu      locks.Mutex[appenderLock]
	closed  bool
	pending map[cas.Hash]*record
	written []*record
	stats   Stats // without what the tails hold
}

func (a *appender) init(d folder, opt *Options) {
	a.folder, a.ahead = d, syncAhead
	a.tails.Init(d.fs, d.dir, d.id, opt.SegmentSize, opt.Tails)
	a.pending = make(map[cas.Hash]*record)
}

// append appends rec as r, which is claimed and is settled then. buf is as segment.Writer.Write takes it.
func (a *appender) append(r *record, rec *segment.Record, buf []byte) (full bool, err error) {
	t, slot, full, err := a.tails.Reserve(len(buf)-segment.RecordHeaderSize, r.first)
	if err == nil {
		err = t.Write(slot, rec, buf)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	if t != nil {
		r.nth, err = t.Finish(slot, rec, err)
	}
	if err != nil {
		a.settleLocked(r, failed, err)
		return full, err
	}
	r.entry, r.tail = rec.Entry(t.Number()), t
	a.written = append(a.written, r)
	a.settleLocked(r, written, nil)
	a.syncAheadLocked(t)
	return full, nil
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
