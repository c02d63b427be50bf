package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
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
	defer hurry(q)()
	q.retryAll()
	defer context.AfterFunc(ctx, q.wake)()
	if report == nil {
		report = func(control.Progress) {}
	}
	q.mu.Lock()
	start := q.done
	q.mu.Unlock()
	reclaimed, again := 0, 0
	for {
		before := q.o.Count.PackedFiles.Load()
		q.packed(ctx, start, report)
		if ctx.Err() != nil || !wantsRoom(q) {
			return ctx.Err()
		}
		// What was packed since one failed may have made room for it.
		more := q.o.Count.PackedFiles.Load() > before
		if !more && reclaimed < maxReclaims {
			reclaimed++
			report(control.Progress{Phase: "pruning, to make room"})
			if more = q.reclaim(ctx); !more {
				reclaimed = maxReclaims
			}
		}
		if !more && again < maxAgain {
			again++
			more = q.roomier()
		}
		if !more || !q.retryThose(isFull) {
			return ctx.Err()
		}
	}
}

// packed returns when no file is packed or queued, or the queue stops, or ctx ends.
func (q *Queue) packed(ctx context.Context, start progress, report func(control.Progress)) {
	q.mu.Lock()
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
}

// isFull reports whether an error is that the disk has no room.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) }

// wantsRoom reports whether a file is not packed for want of room.
func wantsRoom(q *Queue) (wants bool) {
	q.Failures(func(_ *content.File, err error, _ time.Time, _ int) { wants = wants || isFull(err) })
	return wants
}

// maxAgain bounds how often a PackAll tries files again since there is more room, though nothing was packed.
const maxAgain = 4

// roomier reports whether there is more room than a file had that failed for want of it: another attempt that
// failed gave its own back since.
func (q *Queue) roomier() bool {
	room := q.o.Reserve.left()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range q.delayed {
		if isFull(d.err) && room >= d.room+leastStep {
			return true
		}
	}
	return false
}

// maxReclaims bounds how often a PackAll has the whole store pruned. What one gives back is not all if it was
// under way before, for somebody else.
const maxReclaims = 2

// reclaimEvery is how often a packing that fails for want of room has the whole store pruned.
const reclaimEvery = 10 * time.Minute

// reclaimDue reports whether that is due.
func (q *Queue) reclaimDue() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.swept.IsZero() || q.o.Now().Sub(q.swept) >= reclaimEvery
}

// reclaim gives back what no file needs, and reports whether that is worth another try.
func (q *Queue) reclaim(ctx context.Context) bool {
	if q.o.Reclaim == nil {
		return false
	}
	freed, err := q.o.Reclaim(ctx)
	q.mu.Lock()
	q.swept = q.o.Now()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		prunedLocked(q, "the store could not be pruned: "+err.Error())
	case freed < leastStep: // as what attempts left that failed
		prunedLocked(q, "the store was pruned, and holds nothing more that no file needs")
	}
	q.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		q.o.Report(slog.LevelWarn, "what no file needs any more could not be given back; free some of the disk",
			"reason", err)
	case freed >= leastStep:
		q.o.Report(slog.LevelInfo, "there was no room to pack a file: the store was pruned",
			"freed", humanize.IBytes(uint64(freed)))
	}
	return freed >= leastStep
}

// prunedLocked has the files for which there is no room say what became of the prune that was to make some.
func prunedLocked(q *Queue, what string) {
	q.mu.AssertHeld()
	for _, d := range q.delayed {
		var room *roomError
		if errors.As(d.err, &room) {
			again := *room
			again.pruned, d.err = what, &again
		}
	}
}

// progressLocked is what was packed since start, and what is not packed yet.
func (q *Queue) progressLocked(start progress) control.Progress {
	q.mu.AssertHeld()
	done := q.done.files - start.files
	return control.Progress{
		DoneBytes: q.done.bytes - start.bytes, TotalBytes: q.done.bytes - start.bytes + q.backlog.bytes,
		DoneFiles: done, TotalFiles: done + len(q.queued) + len(q.found.files) + len(q.packing),
	}
}
