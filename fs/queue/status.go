package queue

import (
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
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
	for f := range q.found.files {
		all[f] = Queued
	}
	for f := range all {
		f.Pin()
	}
	return all
}

// Waiting is the files that are not packed yet, with the sizes that they had at their last close.
type Waiting struct {
	Queued, Packing control.Queue
	Names           []*content.File // those of Packing; pinned
	Delayed         []*content.File // the others, which have to be looked at for their sizes; pinned
}

// WaitingIn counts the files that are not packed yet. However many there are, it looks at none of them. The
// caller unpins those that it names.
func WaitingIn(q *Queue) (w Waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, u := range q.backlog.queued {
		w.Queued.Bytes += u.bytes
	}
	w.Queued.Files = len(q.backlog.queued)
	for f := range q.packing {
		if _, again := q.backlog.queued[f]; again {
			continue
		}
		w.Packing.Files++
		w.Packing.Bytes += q.backlog.packing[f].bytes
		f.Pin()
		w.Names = append(w.Names, f)
	}
	for f := range q.delayed {
		if _, again := q.backlog.queued[f]; !again && q.packing[f] == nil {
			f.Pin()
			w.Delayed = append(w.Delayed, f)
		}
	}
	return w
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
