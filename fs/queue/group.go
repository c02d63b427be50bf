package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/store"
	"ckptfs/fs/content"
	"ckptfs/fs/pack"
)

// job is a file in a group.
type job struct {
	file *content.File
	p    *content.Packing
	res  *pack.Result
}

var (
	errMapped  = errors.New("mapped for writing")
	errAwaited = errors.New("the file that describes it is not there yet, or not whole")
)

// packGroup packs files into one batch and publishes them.
func (q *Queue) packGroup(ctx context.Context, group []*content.File) {
	defer q.o.Count.TookSince(time.Now())
	var jobs []job
	b := q.o.Store.Begin()
	defer b.Release()
	for _, f := range group {
		j, err := q.packFile(ctx, b, f)
		if err != nil && j.p.Overtaken() {
			err, j.res = nil, nil // its last close has queued it again, or will
		}
		if err != nil || j.res == nil {
			q.packed(f, 0, err)
			continue
		}
		q.put(f)
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return
	}
	err := b.Commit()
	for i := range jobs {
		j := &jobs[i]
		jerr := err
		if jerr == nil {
			jerr = j.p.Publish(j.res)
		}
		if jerr == nil {
			q.o.Stored(j.file)
		}
		q.packed(j.file, j.p.Size, jerr)
	}
}

// packed reports the end of a file's turn.
func (q *Queue) packed(f *content.File, size int64, err error) {
	switch {
	case err == nil:
		if size > 0 {
			q.o.Count.PackedFiles.Add(1)
			q.o.Count.PackedBytes.Add(size)
		}
		q.finish(f, size, false, nil)
	case errors.Is(err, errMapped), errors.Is(err, errAwaited):
		q.finish(f, 0, true, nil)
	case errors.Is(err, context.Canceled):
		q.finish(f, 0, false, nil)
	default:
		q.o.Count.PackErrs.Add(1)
		q.o.Report(slog.LevelError, "packing failed; the file stays as it is and is tried again", "path", f.Path(), "reason", err)
		q.finish(f, 0, true, err)
		q.o.Failed() // the disk may be full
	}
}

// packFile puts a file's chunks and manifest into b. A job without a result has nothing to pack.
func (q *Queue) packFile(ctx context.Context, b *store.Batch, f *content.File) (job, error) {
	j := job{file: f}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q.taken(f)
	p, err := f.BeginPack(cancel)
	j.p = p
	if err != nil || p == nil {
		return j, err
	}
	defer p.Close()
	if p.Mapped() {
		return j, errMapped
	}
	if stays, err := p.Stays(); stays || err != nil {
		return j, err
	}
	layout, rel, err := q.o.Bases.Presume(f.Path(), p.Raw, p.Size)
	var was []cas.Hash
	if layout != nil && err == nil {
		j.res, err = q.o.Pack.Layout(ctx, b, &guarded{q: q, r: p.Raw}, p.Size, layout, rel)
	}
	if layout == nil && err == nil || errors.Is(err, pack.ErrPresumed) {
		if layout, err = p.Layout(); err != nil {
			return j, err
		}
		if p.Awaits(layout) {
			return j, errAwaited
		}
		rel, was = q.o.Bases.Related(f.Path(), layout)
		j.res, err = q.o.Pack.Layout(ctx, b, &guarded{q: q, r: p.Raw}, p.Size, layout, rel)
	}
	if err == nil {
		q.o.Bases.Note(f.Path(), j.res.Hash, layout, was)
	}
	return j, err
}
