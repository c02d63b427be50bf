package queue

import (
	"context"

	"ckptfs/fs/control"
)

// progress is what was packed since the start.
type progress struct {
	files int
	bytes int64
}

// PackAll packs all files that wait, the delayed ones too, and returns when no file is packed or queued, or
// the queue stops. report, which may be nil, is told how far it is. The error is that of ctx: Failures has
// those of the files.
func (q *Queue) PackAll(ctx context.Context, report func(control.Progress)) error {
	defer q.o.Throttle.Wait()()
	q.retryAll()
	defer context.AfterFunc(ctx, q.wake)()
	if report == nil {
		report = func(control.Progress) {}
	}
	q.mu.Lock()
	start := q.done
	for !q.restsLocked() && ctx.Err() == nil && !q.stopping {
		changes, pr := q.changes, q.progressLocked(start)
		q.mu.Unlock()
		report(pr)
		q.mu.Lock()
		if q.changes == changes && ctx.Err() == nil {
			q.cond.Wait()
		}
	}
	pr := q.progressLocked(start)
	q.mu.Unlock()
	report(pr)
	return ctx.Err()
}

// progressLocked is what was packed since start. The sizes of the queued files are not known: files count.
func (q *Queue) progressLocked(start progress) control.Progress {
	q.mu.AssertHeld()
	done := q.done.files - start.files
	return control.Progress{
		DoneBytes: q.done.bytes - start.bytes,
		DoneFiles: done, TotalFiles: done + len(q.queued) + len(q.packing),
	}
}
