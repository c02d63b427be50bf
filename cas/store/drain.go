package store

import (
	"time"

	"ckptfs/cas/segment"
)

// syncAhead is how many bytes are written to a segment before a goroutine of its own syncs them. So the disk
// works while more is encoded, and a commit finds little left to do.
const syncAhead = 32 << 20

// syncAheadLocked has a goroutine sync t from time to time.
func (a *appender) syncAheadLocked(t *segment.Tail) {
	a.mu.AssertHeld()
	if a.closed || !t.Behind(a.ahead) {
		return
	}
	a.aside.Go(func() { a.sync(t, t.Finished()) })
}

// sync makes the first n records of t durable. When its fsync fails it is abandoned, and the records fail.
func (a *appender) sync(t *segment.Tail, n uint64) {
	if err := t.Sync(n); err != nil {
		a.abandon(t, err)
	}
}

// drain begins to drain the full segments: of each a goroutine makes durable what it holds, takes that into
// the index, and seals it. Commits that need nothing of it go on meanwhile.
func (s *Store) drain() {
	a := &s.appender
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return // Close does it
	}
	for _, t := range a.tails.Drain() {
		a.aside.Go(func() { _ = s.drainOne(t) }) // what fails fails the batches that it concerns
	}
}

// drainOne drains a full segment. The error is that of the index; the segment is left to another try then.
func (s *Store) drainOne(t *segment.Tail) error {
	a := &s.appender
	defer a.tails.Drained(t)
	t.AwaitIdle()
	s.harden(a.heldBy(t))
	err := s.flushed(func() (bool, error) { return len(a.heldBy(t)) == 0, nil })
	if err == nil {
		a.seal(t, s.opt.Now())
	}
	return err
}

// heldBy lists the records of t that no flush has taken.
func (a *appender) heldBy(t *segment.Tail) (recs []*record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.written {
		if r.tail == t {
			recs = append(recs, r)
		}
	}
	return recs
}

// seal seals a full segment, unless it was abandoned or has records that are not in the index. One that
// cannot be sealed is left for the next Open to do.
func (a *appender) seal(t *segment.Tail, now time.Time) {
	a.flushing.Lock() // nothing of it is just being taken back
	held := len(a.heldBy(t)) > 0
	a.flushing.Unlock()
	if held || t.Failed() {
		return
	}
	_, err := t.Seal(now)
	t.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tails.Remove(t)
	a.stats.Segments++
	a.stats.Bytes += t.Size()
	if err != nil {
		a.stats.Unsealed++
	}
}

// filled is called after a record found its segment full. A writer that is faster than the disk waits for it:
// no more segments are drained at a time than take records.
func (s *Store) filled() {
	s.drain()
	s.appender.tails.AwaitDrained(s.opt.Tails)
}
