package queue

import (
	"slices"

	"ckptfs/fs/content"
)

// Forget lets go of a file that lost its last name: it is neither to be packed nor to be made durable. Its
// packing ends as soon as it looks (content.File.BuryLocked), and its worker finds that the turn is over. A
// close that waits for it waits no longer. The file is Dead, its mutex is held, and the caller has pinned it.
func (q *Queue) Forget(f *content.File) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waits[f] {
		delete(q.waits, f)
		if _, is := q.found.files[f]; is {
			delete(q.found.files, f)
			f.Unpin()
		} else if i := slices.Index(q.queued, f); i >= 0 { // near the front, where a folder is removed
			copy(q.queued[1:], q.queued[:i])
			q.queued[0], q.queued = nil, q.queued[1:]
			f.Unpin()
		}
	}
	if t := q.packing[f]; t != nil {
		if t.cancel != nil {
			t.cancel()
		}
		delete(q.packing, f)
		delete(q.ahead, f)
		f.Unpin()
	}
	delete(q.found.family, f)
	delete(q.positions.places, f)
	q.backlog.forget(f)
	if d := q.delayed[f]; d != nil {
		d.timer.Stop()
		delete(q.delayed, f)
		f.Unpin()
	}
	q.crowdOutLocked(f)
	if q.unsynced.plain[f] {
		delete(q.unsynced.plain, f)
		f.Unpin()
	}
	q.forgetLostLocked(f)
	q.changedLocked()
}
