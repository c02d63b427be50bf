package queue

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/store"
	"ckptfs/fs/content"
	"ckptfs/fs/tree"
)

// closedFile is a file as it was when it was closed.
type closedFile struct {
	file  *content.File
	size  int64
	mtime unix.Timespec
}

// packAheadLocked puts the chunks of a file into the store that has more bytes than may wait, while its close
// waits: the kernel tells of the end of its last writer only after that. The file stays as it is. Its
// packing, which comes then, finds the chunks. mu is given back meanwhile. The file counts as one that is
// packed.
func (q *Queue) packAheadLocked(f *content.File, own int64) {
	q.mu.AssertHeld()
	t := &turn{}
	ctx, cancel := context.WithCancel(q.ctx)
	defer cancel()
	t.cancel = cancel
	f.Pin()
	q.packing[f] = t
	now := q.o.Now()
	q.backlog.packing[f] = unpacked{own, now}
	q.backlog.note(f, now)
	q.backlog.bytes += own
	q.workers.Add(1)
	defer q.workers.Done()
	patience := q.backlog.patience
	q.mu.Unlock()
	defer q.whenStill(patience, cancel)()
	q.makeRoom(f)
	b := q.o.Store.Begin()
	err := q.putAhead(ctx, b, f)
	if err == nil {
		err = b.Commit()
	}
	if err != nil {
		b.TakeBack()
	}
	if err != nil && !f.Dead() {
		q.o.Report(slog.LevelWarn, "a close waits no longer for the packing of its file, which is tried again",
			"path", f.Path(), "reason", q.o.Reserve.short(own, err))
	}
	b.Release()
	q.mu.Lock()
	if q.packing[f] != t {
		return // it was removed
	}
	delete(q.packing, f)
	q.backlog.end(f)
	q.changedLocked()
	f.Unpin() // the handle that is closed has another pin
}

// whenStill calls cancel once packing has read nothing for so long, until stop is called.
func (q *Queue) whenStill(patience time.Duration, cancel func()) (stop func()) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		tick := time.NewTicker(patience)
		defer tick.Stop()
		for last := q.backlog.read.Load(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := q.backlog.read.Load()
			if now == last {
				cancel()
				return
			}
			last = now
		}
	}()
	return stop
}

// putAhead puts a file's chunks into b, unless it has done so just now, or the file is not to be packed.
func (q *Queue) putAhead(ctx context.Context, b *store.Batch, f *content.File) error {
	f.Lock()
	raw, err := f.OpenQuietly()
	packed := f.StateLocked().Packed()
	f.Unlock()
	if err != nil {
		return err
	}
	defer raw.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(raw.Fd()), &st); err != nil {
		return err
	}
	now := closedFile{f, st.Size, st.Mtim}
	q.mu.Lock()
	known := q.closed == now
	q.mu.Unlock()
	if holes, err := tree.HasHoles(int(raw.Fd()), st.Size); known || packed || holes || err != nil ||
		content.NeverPacked(f) {
		return err
	}
	layout, err := f.Detect(raw, st.Size)
	if err != nil {
		return err
	}
	rel, _, end := q.o.Bases.Related(ctx, f.Path(), layout)
	defer end()
	res, err := q.o.Pack.Layout(ctx, b, guard(q, raw), st.Size, layout, rel)
	if err != nil {
		return err
	}
	q.o.Bases.NoteAnchors(res.Hash, res.Anchors) // its packing finds nothing new
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = now
	return nil
}
