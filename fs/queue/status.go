package queue

import (
	"time"

	"ckptfs/fs/content"
)

// Stage says how far a file is that is not packed yet.
type Stage int

const (
	Delayed Stage = iota // it could not be packed; it is tried again
	Packing              // it is with a group
	Queued
)

// Pending is the files that are not packed yet. Each is pinned; the caller unpins it.
func (q *Queue) Pending() map[*content.File]Stage {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[*content.File]Stage, len(q.packing)+len(q.queued)+len(q.delayed))
	for f := range q.delayed {
		all[f] = Delayed
	}
	for f := range q.packing {
		all[f] = Packing
	}
	for _, f := range q.queued {
		all[f] = Queued
	}
	for f := range all {
		f.Pin()
	}
	return all
}

// Status is what a queue says of itself.
type Status struct {
	MaxUnpacked   int64     // bytes that may wait before closes wait; negative: no bound
	WaitingCloses int       // closes that wait now
	Waits         string    // why packing waits though files do; "": it does not wait
	Since         time.Time // when the file was queued that waits longest; zero: none does
	Unsynced      bool      // MakeDurable has something to do
}

// Status is what the queue is doing now.
func (q *Queue) Status() Status {
	q.mu.Lock()
	s := Status{
		MaxUnpacked: q.backlog.max, WaitingCloses: q.backlog.waiting, Unsynced: q.unsynced.any(),
	}
	since := q.backlog.since()
	q.mu.Unlock()
	if s.Since = since; !since.IsZero() {
		s.Waits = q.o.Throttle.Why(since.Add(patientFor))
	}
	return s
}
