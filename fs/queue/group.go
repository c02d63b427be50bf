package queue

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/fs/bases"
	"ckptfs/fs/content"
	"ckptfs/fs/pack"
	"ckptfs/fs/tree"
)

// job is a file of a group.
type job struct {
	file *content.File
	p    *content.Packing
	res  *pack.Result // nil: there is nothing to pack
	size int64        // in bytes

	// How its turn ended, once it did:
	packed int64
	err    error
}

// Why a file is put off that nothing is wrong with.
var (
	errMapped  = errors.New("mapped for writing")
	errAwaited = errors.New("the file that describes it is not there yet, or not whole")
)

// packGroup packs files into one batch and publishes them. alone: there is one, and nothing is packed beside
// it. short: there was not enough room on the disk.
func (q *Queue) packGroup(ctx context.Context, group []*content.File, alone bool) (short bool) {
	defer q.o.Count.TookSince(time.Now())
	jobs, short := putGroup(ctx, q, group, alone)
	// Not before the batch is released, which keeps what it names: who waits for these files may prune then.
	for i := range jobs {
		q.end(jobs[i].file, jobs[i].packed, jobs[i].err)
	}
	return short
}

// putGroup is packGroup, but for the ends of the turns of what was put into the store, which it returns.
func putGroup(ctx context.Context, q *Queue, group []*content.File, alone bool) (jobs []job, short bool) {
	b := q.o.Store.Begin()
	defer b.Release()
	for _, f := range group {
		if alone && q.hold(f) {
			q.makeRoom(f)
			f.Unpin()
		}
		b.Mark()
		j, err := q.packFile(ctx, b, f)
		if full := isFull(err); full || err != nil && q.o.Reserve.Short() {
			b.TakeBack()
			err, short = q.o.Reserve.short(j.size, err), short || full
		}
		if err != nil && j.p.Overtaken() {
			err, j.res = nil, nil // its last close has queued it again, or will
		}
		if err != nil || j.res == nil {
			j.p.Drop()
			q.end(f, 0, err)
			continue
		}
		q.stored(f)
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return nil, short
	}
	err := b.Commit()
	if isFull(err) {
		b.TakeBack()
		short = true
	}
	ended := jobs[:0]
	for _, j := range jobs {
		if !q.hold(j.file) {
			j.p.Drop()
			continue
		}
		j.packed, j.err = j.publish(q, err, alone)
		j.file.Unpin()
		ended = append(ended, j)
	}
	return ended, short
}

// publish makes what was packed the file, unless err is why it was not stored, and returns how its turn
// ended. The file is held.
func (j *job) publish(q *Queue, err error, alone bool) (packed int64, _ error) {
	if err == nil {
		err = j.p.Publish(j.res)
	}
	if !errors.Is(err, tree.ErrNoRoom) {
		err = q.o.Reserve.short(j.size, err)
	}
	j.p.Drop()
	if err == nil {
		q.o.Stored(j.file)
	}
	if err == nil && alone {
		_, _ = j.file.Evict() // what is in use stays; what fails the LRU tries again
	}
	if errors.Is(err, tree.ErrNoRoom) {
		q.o.Report(slog.LevelWarn, "a file stays plain", "path", j.file.Path(), "reason", err)
		q.crowdIn(j.file, err)
		return 0, nil
	}
	return j.p.Size, err
}

// makeRoom evicts local copies until a file fits, whatever is known of it, or there are none.
func (q *Queue) makeRoom(f *content.File) {
	if q.o.Evict == nil {
		return
	}
	need := f.Unpacked()
	if enough := func() bool { return q.o.Reserve.left() >= need }; !enough() {
		q.o.Evict(enough)
	}
}

// end ends a file's turn, by its outcome.
func (q *Queue) end(f *content.File, size int64, err error) {
	switch {
	case err == nil:
		if size > 0 {
			q.o.Count.PackedFiles.Add(1)
			q.o.Count.PackedBytes.Add(size)
		}
		q.finish(f, size)
	case errors.Is(err, errMapped), errors.Is(err, errAwaited):
		q.putOff(f, nil)
	case errors.Is(err, context.Canceled):
		q.finish(f, 0)
	default:
		var room *roomError
		if errors.As(err, &room) && room.refused {
			q.o.Count.RoomErrs.Add(1)
		}
		q.o.Count.PackErrs.Add(1)
		q.o.Report(slog.LevelError, "packing failed; the file stays as it is and is tried again",
			"path", f.Path(), "reason", err)
		q.putOff(f, err)
		q.o.Failed()
	}
}

// packFile puts a file's chunks and manifest into b.
func (q *Queue) packFile(ctx context.Context, b *store.Batch, f *content.File) (job, error) {
	j := job{file: f}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !q.begin(f) {
		return j, nil
	}
	defer f.Unpin()
	p, err := f.BeginPack(cancel)
	j.p = p
	if err != nil || p == nil {
		return j, err
	}
	j.size = p.Size
	defer p.Close()
	if p.Mapped(ctx) {
		return j, errMapped
	}
	if stays, err := p.Stays(); stays || err != nil {
		return j, err
	}
	j.res, err = q.o.Bases.Pack(ctx, bases.Packing{
		Path: f.Path(), Raw: p.Raw, Size: p.Size,
		Layout: func() (*formats.Layout, error) {
			layout, err := p.Layout()
			if err == nil && p.Awaits(layout) {
				err = errAwaited
			}
			return layout, err
		},
		Pack: func(l *formats.Layout, rel pack.Related) (*pack.Result, error) {
			res, err := q.o.Pack.Layout(ctx, b, guard(q, p.Raw), p.Size, l, rel)
			if err == nil {
				q.o.Keep(res)
			}
			if err == nil && res.Search != nil {
				q.o.Report(slog.LevelError, "a file is stored without the help of others: looking for these failed",
					"path", f.Path(), "reason", res.Search, "stack", string(res.Search.Stack))
			}
			return res, err
		},
	})
	return j, err
}

// guarded reads a file for packing as long as the Reserve is free: the last of the disk is for programs that
// write files, and for the little that has to be written to free some.
type guarded struct {
	reserve *Reserve
	read    *atomic.Int64 // counts the bytes
	r       io.ReaderAt
	left    atomic.Int64 // bytes to be read before the next look at the disk
}

func guard(q *Queue, r io.ReaderAt) *guarded {
	return &guarded{reserve: q.o.Reserve, read: &q.backlog.read, r: r}
}

func (g *guarded) ReadAt(p []byte, off int64) (int, error) {
	if g.left.Add(-int64(len(p))) < 0 {
		step, err := g.reserve.check()
		if err != nil {
			return 0, err
		}
		g.left.Store(step)
	}
	n, err := g.r.ReadAt(p, off)
	g.read.Add(int64(n))
	return n, err
}
