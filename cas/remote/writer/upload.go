package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/segment"
)

// uploads puts objects, several at a time.
type uploads struct {
	p     *push
	ctx   context.Context
	group *errgroup.Group // nil: one at a time
}

func (p *push) begin(ctx context.Context) *uploads {
	if p.w.Parallel <= 1 {
		return &uploads{p: p, ctx: ctx}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.w.Parallel)
	return &uploads{p, ctx, group}
}

// put puts an object, or begins to, once there is room for one more.
func (u *uploads) put(o *objects.Object) error {
	if u.group == nil {
		return u.p.putObject(u.ctx, o)
	}
	u.group.Go(func() error { return u.p.putObject(u.ctx, o) })
	return context.Cause(u.ctx)
}

func (u *uploads) wait() error {
	if u.group == nil {
		return nil
	}
	return u.group.Wait()
}

// putObject puts an object, and has the State know what it has.
func (p *push) putObject(ctx context.Context, o *objects.Object) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// A bucket that has patience would ask for the bytes again and again.
	body := o.Body(p.src, func(err error) { stop(err) })
	err := p.w.putNew(ctx, o.Key(), body)
	var lost *objects.LostError
	if errors.As(context.Cause(ctx), &lost) {
		p.src.lose(lost)
		return fmt.Errorf("%w: %w", errAgain, lost)
	}
	if err != nil {
		return err
	}
	p.count(o.Len)
	return p.w.State.Learn(o.Object, o.Records())
}

func (p *push) count(size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Objects++
	p.result.Bytes += size
}

// progress grows with what need not be done again.
func (p *push) progress() int { return p.result.Objects + len(p.src.lost) }

// putNew puts an object under a name that was just drawn. errAgain: it is not there, and may come yet, so
// that the name is used up.
func (w *Writer) putNew(ctx context.Context, key string, body bucket.Body) error {
	_, err := w.Bucket.Put(ctx, key, body, bucket.Cond{Absent: true})
	switch {
	case errors.Is(err, bucket.ErrDamaged):
		return fmt.Errorf("%w: %w", errAgain, err)
	case !unsettled(err):
		return err
	}
	r, info, look := w.Bucket.Get(ctx, key, 0, 0, "")
	switch {
	case look == nil:
		r.Close()
		if info.Size == body.Size {
			return nil
		}
	case !errors.Is(look, bucket.ErrNotFound):
		return cmp.Or(look, err)
	}
	return fmt.Errorf("%w: %w", errAgain, err)
}

// unsettled reports whether a conditional Put that failed so may have been done, this time or when it was
// sent before. What answers that there is an object may have been asked twice, by what lies between.
func unsettled(err error) bool {
	return errors.Is(err, bucket.ErrDoubt) || errors.Is(err, bucket.ErrPrecondition) ||
		errors.Is(err, bucket.ErrConflict)
}

// source is the local store, but for files with a record that it did not give when that was sent.
type source struct {
	objects.Source
	mu   sync.Mutex
	lost map[cas.Hash]error
}

// lose notes a record, unless it is only stored otherwise.
func (s *source) lose(err *objects.LostError) {
	if errors.Is(err, objects.ErrChanged) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[err.Hash] = err.Err
}

func (s *source) find(h cas.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost[h]
}

// Closure fails where it has such a record.
func (s *source) Closure(manifest cas.Hash) (*objects.Closure, error) {
	c, err := s.Source.Closure(manifest)
	if err != nil {
		return nil, err
	}
	for i := range c.Records {
		if err := s.find(c.Records[i].Hash); err != nil {
			return nil, &objects.LostError{Hash: c.Records[i].Hash, Err: err}
		}
	}
	return c, nil
}

// Record fails if it is such a record.
func (s *source) Record(h cas.Hash) (segment.Record, error) {
	if err := s.find(h); err != nil {
		return segment.Record{}, err
	}
	return s.Source.Record(h)
}
