package store

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/segment"
)

// state of a record.
type state uint8

const (
	claimed state = iota // being looked up, encoded or written
	written              // in its segment, readable, not yet durable
	indexed              // in the index, with this or another location
	failed
)

// A record is a chunk between Put and index.
type record struct {
	hash cas.Hash
	kind cas.Kind
	done chan struct{} // closed when it is no longer claimed
	// plain: it is stored with the help of no other, so that the Put that stores it waits for none. Set by
	// claim.
	plain bool
	// doomed: a sweep is just taking what the index has of it; suspect: that was found damaged. Set by claim.
	doomed, suspect bool
	// alone: it is stored without a base, because others may need it and cannot read it now. Set by the Put
	// that claimed it.
	alone bool
	// first: no segment holds another record of its hash, so that it may lie in any (segment.Tails). Set by
	// the Put that claimed it.
	first bool
	// rising: it replaces a record of a lower number, or one that leads back to less: nothing may be written
	// against it until it is written.
	rising bool

	// Under appender.mu; entry, tail and nth are set once, before done is closed.
	state state
	err   error // when failed
	entry cas.Entry
	tail  *segment.Tail
	nth   uint64    // of the records of its tail: the how manieth was finished
	next  *record   // that was put as another kind; nil: none
	on    []*record // of its bases: what was pending when it was looked for; set before done is closed
}

// fateLocked reports whether r and what it leads back to are in the index, and the error of one that failed.
// appender.mu is held.
func (r *record) fateLocked() (ok bool, err error) {
	if r.state == failed {
		return false, r.err
	}
	ok = r.state == indexed
	for _, on := range r.on {
		o, err := on.fateLocked()
		if err != nil {
			return false, err
		}
		ok = ok && o
	}
	return ok, nil
}

// durableLocked reports whether r, which is not claimed, is on the disk, and whatever it leads back to.
// appender.mu is held.
func (r *record) durableLocked() bool {
	if r.state == written && r.nth > r.tail.Durable() {
		return false
	}
	return !slices.ContainsFunc(r.on, func(on *record) bool { return !on.durableLocked() })
}

// needLocked notes in upTo how much of which segments has to be durable before r can go into the index.
// appender.mu is held.
func (r *record) needLocked(upTo map[*segment.Tail]uint64) {
	if r.state == written {
		upTo[r.tail] = max(upTo[r.tail], r.nth)
	}
	for _, on := range r.on {
		on.needLocked(upTo)
	}
}
