package queue

import (
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/fs/content"
	"ckptfs/index/runs"
)

const (
	groupFiles = 64
	// maxAhead is how many files at the queue's head are looked at for a group.
	maxAhead = 2 * groupFiles
)

// work packs groups until the queue stops.
func (q *Queue) work() {
	defer q.workers.Done()
	for q.await() {
		group, alone := q.take()
		if group == nil {
			return
		}
		short := q.packGroup(q.ctx, group, alone)
		q.endGroup(alone)
		if short && q.reclaimDue() && q.reclaim(q.ctx) {
			q.Freed()
		}
	}
}

// await waits for files, and then until the throttle lets some be packed. It is false when the queue stops.
func (q *Queue) await() bool {
	q.mu.Lock()
	for len(q.queued) == 0 && !q.found.isDue() && !q.stopping {
		q.cond.Wait()
	}
	q.mu.Unlock()
	return q.o.Throttle.Pass(q.ctx) == nil
}

// take waits until files may be packed and takes them; nil when the queue stops. alone: it is one, and no
// other is taken until endGroup.
func (q *Queue) take() (group []*content.File, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.stopping {
		if q.found.isDue() {
			arrangeLocked(q)
			continue
		}
		seen, files := q.changes, slices.Clone(q.queued[:min(len(q.queued), maxAhead)])
		q.mu.Unlock()
		positions := make(map[*content.File]runs.Position, len(files))
		for _, f := range files {
			positions[f] = q.positions.of(f.Path())
		}
		room := q.o.Reserve.left()
		q.mu.Lock()
		lookWithin(q, files)
		if group := q.nextLocked(positions, room); len(group) > 0 {
			return group, q.alone
		}
		if q.changes == seen && !q.stopping {
			q.cond.Wait()
		}
	}
	return nil, false
}

// positions remembers those of paths: a file that waits is looked at again with every other one that comes.
type positions struct {
	byPath *lru.Cache[string, runs.Position]
	within
}

func newPositions() positions {
	byPath, _ := lru.New[string, runs.Position](2 * maxAhead) // which fails for no room alone
	return positions{byPath, within{places: map[*content.File]place{}}}
}

func (p *positions) of(path string) runs.Position {
	at, ok := p.byPath.Get(path)
	if !ok {
		at = runs.PositionOf(path)
		p.byPath.Add(path, at)
	}
	return at
}

// nextLocked takes a group out of the queue: no more than a share of it, so that the other workers get
// something too, and only of the files whose positions are known. It passes over a file that is still being
// packed, because it was written again meanwhile, and over a file that another one ahead of it may be the
// version before, or is of the same family. What is packed at a time fits into room bytes of the disk, but
// for a file that is packed alone.
func (q *Queue) nextLocked(positions map[*content.File]runs.Position, room int64) []*content.File {
	q.mu.AssertHeld()
	if q.alone {
		return nil
	}
	room -= q.backlog.packed()
	most := min(groupFiles, (len(q.queued)+q.groups-1)/q.groups)
	var group []*content.File
	before, upcoming := runs.Upcoming{}, map[int32]bool{} // families
	steps := turns{}
	for f, at := range q.ahead {
		steps.add(q.positions.places[f])
		before.Add(at)
		upcoming[q.found.family[f]] = true
	}
	left, looked := q.queued[:0], 0
	for i, f := range q.queued {
		if len(group) == most || looked == len(positions) {
			left = append(left, q.queued[i:]...)
			break
		}
		at, known := positions[f]
		if !known {
			left = append(left, f)
			continue
		}
		looked++
		family, within := q.found.family[f], q.positions.places[f]
		if q.packing[f] != nil || before.HasBefore(at) || family > 0 && upcoming[family] ||
			steps.hasBefore(within) || lingersLocked(q, f) {
			before.Add(at)
			steps.add(within)
			upcoming[family] = true
			left = append(left, f)
			continue
		}
		if room -= q.backlog.queued[f].bytes; room < 0 {
			if len(q.packing) > 0 {
				most = len(group) // it waits until there is room, or nothing else is packed
				left = append(left, f)
				continue
			}
			q.alone, most = true, 1
		}
		q.packing[f] = &turn{}
		q.ahead[f] = at
		steps.add(within)
		q.backlog.begin(f)
		group = append(group, f)
	}
	clear(q.queued[len(left):])
	q.queued = left
	return group
}

// endGroup ends what take began. After a file that was packed alone, others may be packed. After others it
// does nothing: the other worker may have taken a file alone, as soon as the last one of these had ended.
func (q *Queue) endGroup(alone bool) {
	if !alone {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alone = false
	q.changedLocked()
}

// turn is what is known of a file that is packed.
type turn struct {
	room   int64  // that packing had when it began
	cancel func() // ends the packing of a file that is packed ahead; of a group's the file knows itself
}

// hold pins a file whose turn it is. It is false when the file was removed: then nobody but its removal may
// have it pinned, and it may be gone.
func (q *Queue) hold(f *content.File) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.packing[f] == nil {
		return false
	}
	f.Pin()
	return true
}

// begin is hold, and notes that the packing of a file begins: what is written from now on wants another turn.
func (q *Queue) begin(f *content.File) bool {
	room := q.o.Reserve.left()
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.packing[f]
	if t == nil {
		return false
	}
	f.Pin()
	t.room = room
	delete(q.waits, f)
	q.crowdOutLocked(f)
	return true
}

// stored notes that a file of a group is in the store: the files after it in its series and in its family may
// be packed.
func (q *Queue) stored(f *content.File) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, kin := q.found.family[f]
	kin = kin || q.positions.places[f].turn > 0
	delete(q.found.family, f)
	delete(q.ahead, f)
	if kin || len(q.ahead) == 0 {
		q.changedLocked()
	}
}

// finish ends a file's turn, in which so many bytes were packed.
func (q *Queue) finish(f *content.File, bytes int64) {
	q.mu.Lock()
	t := q.endLocked(f, bytes)
	d := q.delayed[f]
	delete(q.delayed, f)
	q.backlog.pinned++
	q.mu.Unlock()
	if d != nil {
		d.timer.Stop()
		f.Unpin()
	}
	if t != nil {
		f.Unpin()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.backlog.pinned--
	q.changedLocked()
}

// endLocked counts a file out of its group. Its pin is the caller's then. nil: the file was removed, and has
// none.
func (q *Queue) endLocked(f *content.File, bytes int64) *turn {
	q.mu.AssertHeld()
	t := q.packing[f]
	if t == nil {
		return nil
	}
	delete(q.packing, f)
	delete(q.ahead, f)
	delete(q.found.family, f)
	if !q.waits[f] {
		delete(q.positions.places, f)
	}
	q.backlog.end(f)
	q.done.files++
	q.done.bytes += bytes
	q.changedLocked()
	return t
}
