package queue

import (
	"errors"
	"log/slog"
	"time"

	"ckptfs/fs/content"
)

// maxLost bounds the files that are named: their nodes are kept.
const maxLost = 1024

// lost is the plain files that may have lost bytes, since the disk did not take all that was written to them:
// no later sync can tell. It is guarded by Queue.mu.
type lost struct {
	files map[*content.File]*loss // at most maxLost, pinned until Stop
	more  int                     // others, of which nothing is known any more
}

// loss is what is known of one of them.
type loss struct {
	err      error
	since    time.Time
	attempts int    // how often a sync of it failed
	emptied  uint64 // State.Emptied then
}

// Lost notes that the disk did not take all that was written to a plain file. It is named by Losses until it
// was written again from nothing and synced, or removed. f's mutex is held.
func (q *Queue) Lost(f *content.File, err error) { q.noteLost(f, err, true) }

// errFound: the record says it.
var errFound = errors.New("some of what was written did not reach the disk, as an earlier daemon was told")

// FoundLost is Lost of a file whose record says so at a start.
func (q *Queue) FoundLost(f *content.File) { q.noteLost(f, errFound, false) }

// noteLost is Lost. again: it happened now.
func (q *Queue) noteLost(f *content.File, err error, again bool) {
	q.o.Report(slog.LevelError, "the disk did not take all that was written to a file; it may have lost bytes",
		"path", f.Path(), "reason", err)
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lost.files[f]
	switch {
	case l != nil && !again:
		return
	case l != nil:
	case f.Dead():
		return
	case q.stopping || len(q.lost.files) == maxLost:
		q.lost.more++
		return
	default:
		f.Pin()
		l = &loss{since: q.o.Now()}
		q.lost.files[f] = l
	}
	l.err, l.emptied = err, f.StateLocked().Emptied
	l.attempts++
}

// Losses calls f, under a lock, with each file that may have lost bytes, and returns how many more there are
// that cannot be named.
func (q *Queue) Losses(f func(file *content.File, err error, since time.Time, attempts int)) (more int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for file, l := range q.lost.files {
		f(file, l.err, l.since, l.attempts)
	}
	return q.lost.more
}

// forgetLostLocked unpins a file, or ends what is known of it.
func (q *Queue) forgetLostLocked(f *content.File) {
	q.mu.AssertHeld()
	if q.lost.files[f] != nil {
		delete(q.lost.files, f)
		f.Unpin()
	}
}

// settleLost forgets the files that were written again since, and are durable.
func (q *Queue) settleLost() {
	was := map[*content.File]uint64{}
	q.mu.Lock()
	for f, l := range q.lost.files {
		f.Pin()
		was[f] = l.emptied
	}
	q.mu.Unlock()
	for f, emptied := range was {
		if f.Dead() || newSince(f, emptied) && f.Sync() == nil {
			q.mu.Lock()
			if l := q.lost.files[f]; l != nil && l.emptied == emptied {
				q.forgetLostLocked(f)
			}
			q.mu.Unlock()
		}
		f.Unpin()
	}
}

// newSince reports whether a file was written from nothing since.
func newSince(f *content.File, emptied uint64) bool {
	f.Lock()
	defer f.Unlock()
	is := f.StateLocked()
	return is.Emptied != emptied && is.Writers == 0
}

// syncDelayed makes durable the plain bytes of the files that are put off. The errors are of those of which
// that could not be tried; Losses names those that the disk did not take.
func (q *Queue) syncDelayed() (errs []error) {
	var files []*content.File
	q.Failures(func(f *content.File, _ error, _ time.Time, _ int) {
		f.Pin()
		files = append(files, f)
	})
	for _, f := range files {
		errs = append(errs, q.syncPlain(f))
		f.Unpin()
	}
	return errs
}

// syncPlain makes a file durable. nil also when it is one of Losses.
func (q *Queue) syncPlain(f *content.File) error {
	if f.Dead() {
		return nil
	}
	err := f.Sync()
	if err == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lost.files[f] != nil || q.lost.more > 0 {
		return nil
	}
	return err
}
