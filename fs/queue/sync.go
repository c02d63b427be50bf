package queue

import (
	"context"
	"errors"
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
)

// PackAll packs everything that waits, and what was put off, and returns when nothing does.
func (q *Queue) PackAll(ctx context.Context, report func(control.Progress)) error {
	defer q.o.Throttle.Wait()()
	q.retryAll()

	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.cond.Broadcast()
	})
	defer stop()
	start := q.snapshot()
	q.mu.Lock()
	for (len(q.queue) > 0 || len(q.busy) > 0) && ctx.Err() == nil && !q.stopping {
		if report != nil {
			pr := q.progressLocked(start)
			q.mu.Unlock()
			report(pr)
			q.mu.Lock()
			if len(q.queue) == 0 && len(q.busy) == 0 {
				break
			}
		}
		q.cond.Wait()
	}
	pr := q.progressLocked(start)
	q.mu.Unlock()
	if report != nil {
		report(pr)
	}
	return ctx.Err()
}

// MakeDurable makes durable what was packed or found to stay plain since the last time. A record that a power cut
// takes back costs nothing but packing the file once more, so nobody waits for this but who asks.
func (q *Queue) MakeDurable(syncTree, syncNames func() error) error {
	q.mu.Lock()
	files, all, any := q.plain, q.morePlain, q.unsyncedLocked()
	q.plain, q.morePlain, q.published = map[*content.File]bool{}, false, false
	q.mu.Unlock()
	var errs []error
	for f := range files {
		if !all && !f.Dead() {
			errs = append(errs, f.Sync())
		}
		f.Unpin()
	}
	switch {
	case all:
		errs = append(errs, syncTree())
	case any:
		errs = append(errs, syncNames())
	}
	return errors.Join(errs...)
}

// unsyncedLocked reports whether MakeDurable has something to do.
func (q *Queue) unsyncedLocked() bool { return q.published || q.morePlain || len(q.plain) > 0 }

func (q *Queue) snapshot() progress {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.done
}

// progressLocked is what was done since start. Sizes of what waits are not known yet: files count.
func (q *Queue) progressLocked(start progress) control.Progress {
	done := q.done.files - start.files
	return control.Progress{
		DoneBytes: q.done.bytes - start.bytes,
		DoneFiles: done, TotalFiles: done + len(q.queue) + len(q.busy),
	}
}

// Failures calls f, under a lock, with each file that is put off; err is nil of one that is mapped for writing.
func (q *Queue) Failures(f func(file *content.File, err error, since time.Time, attempts int)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for file, d := range q.delayed {
		f(file, d.err, d.since, d.attempts)
	}
}
