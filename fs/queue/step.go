package queue

import (
	"slices"
	"strings"
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/order"
	"ckptfs/index/runs"
)

const (
	// lingersFor is how long after its close a file waits for another file of its step to come.
	lingersFor = 2 * time.Second
	// lingersMost is how long it waits for those that programs are writing.
	lingersMost = 30 * time.Second
)

// place is where a file comes among those of its step: what others are made of comes first. The zero value is
// none.
type place struct {
	step string
	turn int
}

// within are the places of the files that are queued, of those that were looked at. It is guarded by
// Queue.mu.
type within struct {
	places  map[*content.File]place
	writing map[string]bool // steps that programs write files of
	hurries int             // PackAlls: no file lingers
	wakes   time.Time       // when the workers are woken next, since a file has lingered
}

// lookWithin says of the files at the queue's head that are in steps which turn they have. mu is given back
// meanwhile.
func lookWithin(q *Queue, files []*content.File) {
	q.mu.AssertHeld()
	sizes, steps := map[*content.File]int64{}, map[string]bool{}
	for _, f := range files {
		if p, known := q.positions.places[f]; !known {
			sizes[f] = q.backlog.queued[f].bytes
		} else if p.turn > order.FirstTurn {
			steps[p.step] = true
		}
	}
	if len(sizes) == 0 && len(steps) == 0 {
		return
	}
	q.mu.Unlock()
	found := make(map[*content.File]place, len(sizes))
	for f, size := range sizes {
		names := strings.Split(f.Path(), "/")
		if len(names) < 4 || names[0] != runs.Dir || size < order.LeastModel {
			found[f] = place{}
			continue
		}
		m := look(f, size)
		p := place{strings.Join(names[:3], "/"), m.Turn(names[3:])}
		if found[f] = p; p.turn > order.FirstTurn {
			steps[p.step] = true
		}
	}
	for step := range steps {
		steps[step] = q.o.Writing != nil && q.o.Writing(step)
	}
	q.mu.Lock()
	q.positions.writing = steps
	for f, p := range found {
		if _, waits := q.backlog.queued[f]; waits {
			q.positions.places[f] = p
		}
	}
	arrangeStepsLocked(q)
}

// arrangeStepsLocked puts the files of each step in the order of their turns, in the places of the queue that
// they have.
func arrangeStepsLocked(q *Queue) {
	q.mu.AssertHeld()
	of := map[string][]int{}
	for i, f := range q.queued[:min(len(q.queued), maxAhead)] {
		if p := q.positions.places[f]; p.turn > 0 {
			of[p.step] = append(of[p.step], i)
		}
	}
	for _, at := range of {
		files := make([]*content.File, len(at))
		for k, i := range at {
			files[k] = q.queued[i]
		}
		slices.SortStableFunc(files, func(a, b *content.File) int {
			return q.positions.places[a].turn - q.positions.places[b].turn
		})
		for k, i := range at {
			q.queued[i] = files[k]
		}
	}
}

// turns are the least ones of each step that have not come.
type turns map[string]int

func (t turns) add(p place) {
	if least, ok := t[p.step]; p.turn > 0 && (!ok || p.turn < least) {
		t[p.step] = p.turn
	}
}

// hasBefore reports whether a file has to wait for one that others of its step may be made of.
func (t turns) hasBefore(p place) bool {
	least, ok := t[p.step]
	return ok && least < p.turn
}

// lingersLocked reports whether what a file is made of may come yet, and sees to it that the workers look
// again.
func lingersLocked(q *Queue, f *content.File) bool {
	q.mu.AssertHeld()
	p := q.positions.places[f]
	if p.turn <= order.FirstTurn || q.positions.hurries > 0 || q.backlog.waiting > 0 ||
		q.backlog.max >= 0 && q.backlog.bytes > q.backlog.max/2 {
		return false
	}
	most := lingersFor
	if q.positions.writing[p.step] {
		most = lingersMost
	}
	now, until := q.o.Now(), q.backlog.queued[f].since.Add(most)
	if !now.Before(until) {
		return false
	}
	if at := q.positions.wakes; !at.After(now) || until.Before(at) {
		q.positions.wakes = until
		time.AfterFunc(until.Sub(now), q.wake)
	}
	return true
}

// hurry has no file linger until end is called.
func hurry(q *Queue) (end func()) {
	add := func(n int) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.positions.hurries += n
		q.changedLocked()
	}
	add(1)
	return func() { add(-1) }
}
