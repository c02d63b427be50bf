package queue

import (
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/throttle"
)

// lookAgain is after how long a file is tried again that is mapped for writing or waits for its sidecar.
const lookAgain = 500 * time.Millisecond

// delay is what is known of a file that could not be packed. The file is pinned.
type delay struct {
	timer    *time.Timer
	err      error // nil: it is mapped for writing, or waits for its sidecar
	since    time.Time
	attempts int   // that failed with an error
	room     int64 // that packing had when it failed for want of room, and
	packed   int64 // how many files had been packed: their local copies can be evicted
	freed    bool  // the timer runs out soon, for room was given back
}

// putOff ends a file's turn, in which nothing was packed, and has it tried again later. err is nil of a file
// that is mapped for writing or waits for its sidecar.
func (q *Queue) putOff(f *content.File, err error) {
	if q.delay(f, err) {
		f.Unpin()
	}
}

// delay is putOff, and reports whether the file has a pin that it does not need.
func (q *Queue) delay(f *content.File, err error) (unpin bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.endLocked(f, 0)
	if t == nil || q.stopping {
		return t != nil
	}
	d := q.delayed[f]
	if unpin = d != nil; !unpin {
		d = &delay{since: q.o.Now()}
		q.delayed[f] = d
	} else {
		d.timer.Stop()
	}
	wait := lookAgain
	if d.err = err; err != nil {
		wait = throttle.Backoff(d.attempts)
		d.attempts++
		// What was given back since it began counts as more.
		d.room, d.packed = min(t.room, q.o.Reserve.left()), q.o.Count.PackedFiles.Load()
	}
	d.freed = false
	d.timer = time.AfterFunc(wait, func() { q.tryAgain(f, wait) })
	return unpin
}

// tryAgain is retry of a file that was put off for so long. One for which there was no room is put off again
// as long as there is no more than there was: an attempt would write for nothing.
func (q *Queue) tryAgain(f *content.File, wait time.Duration) {
	room := q.o.Reserve.left()
	q.mu.Lock()
	d := q.delayed[f]
	if d != nil {
		d.freed = false
	}
	again := d != nil && !q.stopping && isFull(d.err) && room <= d.room &&
		d.packed == q.o.Count.PackedFiles.Load()
	if again {
		wait = min(2*wait, time.Minute)
		d.timer = time.AfterFunc(wait, func() { q.tryAgain(f, wait) })
	}
	q.mu.Unlock()
	if !again {
		q.retry(f)
	}
}

// Freed is told that a removed file gave its room back: those are looked at soon for which there was none.
func (q *Queue) Freed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for f, d := range q.delayed {
		if d.freed || q.stopping || !isFull(d.err) || !d.timer.Stop() {
			continue
		}
		d.freed = true
		d.timer = time.AfterFunc(lookAgain, func() { q.tryAgain(f, lookAgain) })
	}
}

// retry queues a file that was put off.
func (q *Queue) retry(f *content.File) {
	f.Lock()
	defer f.Unlock()
	if is := f.StateLocked(); is.Dirty && is.Writers == 0 {
		q.Add(f)
		return
	}
	// Its last close queues it, or there is nothing left to do.
	q.mu.Lock()
	d := q.delayed[f]
	delete(q.delayed, f)
	q.mu.Unlock()
	if d != nil {
		f.Unpin()
	}
}

// retryAll queues every file that was put off, now. A timer that has run out already is not relied on: its
// retry may come later than what the caller does next.
func (q *Queue) retryAll() { q.retryThose(func(error) bool { return true }) }

// retryThose is retryAll for the files whose errors are some.
func (q *Queue) retryThose(which func(error) bool) (some bool) {
	q.mu.Lock()
	files := make([]*content.File, 0, len(q.delayed))
	for f, d := range q.delayed {
		if !which(d.err) {
			continue
		}
		d.timer.Stop()
		f.Pin()
		files = append(files, f)
	}
	q.mu.Unlock()
	for _, f := range files {
		q.retry(f)
		f.Unpin()
	}
	return len(files) > 0
}

// Failures calls f, under a lock, with each file that is tried again: the last error, since when, and how
// often it was tried. err is nil of a file that is mapped for writing or waits for its sidecar.
func (q *Queue) Failures(f func(file *content.File, err error, since time.Time, attempts int)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for file, d := range q.delayed {
		f(file, d.err, d.since, d.attempts)
	}
}
