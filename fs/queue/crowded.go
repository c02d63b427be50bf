package queue

import (
	"time"

	"ckptfs/fs/content"
)

// maxCrowded bounds the files that are named since their attributes leave no room for a record.
const maxCrowded = 256

// crowd is why a file stays plain that is to be packed.
type crowd struct {
	err   error
	since time.Time
}

// crowdIn notes a file that stays plain since its attributes leave no room for its record, which is no
// failure of the store. What is past maxCrowded is not noted.
func (q *Queue) crowdIn(f *content.File, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, again := q.crowded[f]; again || q.stopping || f.Dead() || len(q.crowded) == maxCrowded {
		return
	}
	f.Pin()
	q.crowded[f] = crowd{err, q.o.Now()}
}

// crowdOutLocked takes that back: the file is looked at once more, or is gone. The caller has pinned it.
func (q *Queue) crowdOutLocked(f *content.File) {
	q.mu.AssertHeld()
	if _, is := q.crowded[f]; is {
		delete(q.crowded, f)
		f.Unpin()
	}
}

// Crowded calls f, under a lock, with each file that stays plain since its attributes leave no room for its
// record, at most maxCrowded; the rest is as for Failures.
func (q *Queue) Crowded(f func(file *content.File, err error, since time.Time, attempts int)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for file, c := range q.crowded {
		f(file, c.err, c.since, 1)
	}
}
