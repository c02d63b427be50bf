// Package patient is a bucket whose requests are made again when they failed in a way that passes: when the
// engine is busy, cannot be reached, or cut an answer off. A Put that may have been done (ErrDoubt) is not:
// the caller knows how to look.
//
// Before it asks again it waits a random time, at most 100 ms at first and twice as long each time, up to
// 20 s. Requests are made several at a time. How many is found out as in TCP: each time the engine says
// that it is busy it is half as many, and after ten that went well while so many were made one more.
//
// A Get that is answered much later than most are is made a second time, if another request may be made, and
// the first answer is taken.
package patient

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"time"

	"ckptfs/cas/remote/bucket"
)

const (
	firstWait = 100 * time.Millisecond
	mostWait  = 20 * time.Second
)

// Options bound what a Bucket does.
type Options struct {
	// Requests at a time, at most.
	Requests int
	// For is how long one request is made again, counted from its begin, or from when something last came
	// of it; 0: as long as its context lasts.
	For time.Duration
}

// Prompt is for how long somebody at a terminal waits before hearing that an engine cannot be reached.
const Prompt = 5 * time.Second

type (
	patienceKey struct{}
	promptKey   struct{}
)

// Promptly has Gets that are made with a context wait for no turn, and end after Prompt if no answer begins:
// an engine that takes connections and says nothing is none.
func Promptly(ctx context.Context) context.Context {
	return context.WithValue(For(ctx, Prompt), promptKey{}, true)
}

func isPrompt(ctx context.Context) bool { return ctx.Value(promptKey{}) != nil }

// For has the requests that are made with a context be made again for so long, whatever Options say.
func For(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, d)
}

// Bucket is a bucket with patience.
type Bucket struct {
	b       bucket.Bucket
	o       Options
	limit   *limit
	answers answers
}

// New returns b with patience.
func New(b bucket.Bucket, o Options) *Bucket {
	return &Bucket{b: b, o: o, limit: newLimit(o.Requests)}
}

// attempts are those of one request.
type attempts struct {
	most  time.Duration // 0: as long as the context lasts
	begun time.Time
	n     int
}

func (b *Bucket) attempts(ctx context.Context) *attempts {
	a := &attempts{most: b.o.For, begun: time.Now()}
	if d, ok := ctx.Value(patienceKey{}).(time.Duration); ok {
		a.most = d
	}
	return a
}

// passes reports whether a request that failed so may be made again.
func passes(err error, kinds ...error) bool {
	for _, k := range append(kinds, bucket.ErrBusy, bucket.ErrUnreachable) {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}

// again waits before another attempt; false: there is to be none.
func (a *attempts) again(ctx context.Context) bool {
	wait := rand.N(min(firstWait<<min(a.n, 16), mostWait))
	a.n++
	if ctx.Err() != nil || a.most > 0 && time.Since(a.begun)+wait > a.most {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// well: something came of the request, and its time begins again.
func (a *attempts) well() { a.begun, a.n = time.Now(), 0 }

// turn waits for a request's turn. done is told how it ended.
func (b *Bucket) turn(ctx context.Context) (done func(error), err error) {
	if isPrompt(ctx) {
		return func(error) {}, nil
	}
	return b.limit.begin(ctx)
}

// do makes a request until it succeeds or fails for good.
func (b *Bucket) do(ctx context.Context, f func() error, kinds ...error) error {
	for a := b.attempts(ctx); ; {
		done, err := b.turn(ctx)
		if err != nil {
			return err
		}
		err = f()
		done(err)
		if err == nil || !passes(err, kinds...) || !a.again(ctx) {
			return err
		}
	}
}

// Get goes on where an answer was cut off, if the object is the same.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	r := &reader{b: b, ctx: ctx, key: key, off: off}
	err := b.do(ctx, func() (err error) {
		r.r, r.info, err = b.get(ctx, key, off, n, unless)
		return err
	})
	if err != nil {
		return nil, r.info, err
	}
	r.end = r.info.Size
	if n >= 0 {
		r.end = min(off+n, r.info.Size)
	}
	r.attempts = b.attempts(ctx)
	return r, r.info, nil
}

// Put is made again where nothing was done.
func (b *Bucket) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	v bucket.Version, err error) {
	err = b.do(ctx, func() (err error) {
		v, err = b.b.Put(ctx, key, body, cond)
		return err
	}, bucket.ErrConflict)
	return v, err
}

// Delete is made again also where it may have been done.
func (b *Bucket) Delete(ctx context.Context, keys []string) error {
	return b.do(ctx, func() error { return b.b.Delete(ctx, keys) }, bucket.ErrDoubt)
}

// List goes on behind the last key.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		for a := b.attempts(ctx); ; {
			failed := false
			for info, err := range b.b.List(ctx, prefix, after) {
				if err != nil && passes(err) && a.again(ctx) {
					failed = true
					break
				}
				if !yield(info, err) || err != nil {
					return
				}
				after = info.Key
				a.well()
			}
			if !failed {
				return
			}
		}
	}
}

// reader reads a range by as many requests as it takes.
type reader struct {
	b        *Bucket
	ctx      context.Context
	key      string
	off, end int64 // what is left
	info     bucket.Info
	r        io.ReadCloser
	attempts *attempts
}

func (r *reader) Read(p []byte) (int, error) {
	for {
		n, err := r.r.Read(p)
		r.off += int64(n)
		if n > 0 {
			r.attempts.well()
		}
		cut := errors.Is(err, bucket.ErrCut)
		if cut && n > 0 {
			return n, nil // the error comes again
		}
		if !cut || !r.attempts.again(r.ctx) {
			return n, err
		}
		if err := r.reopen(err); err != nil {
			return 0, err
		}
	}
}

// reopen asks for what is left; cut is why.
func (r *reader) reopen(cut error) error {
	rest, info, err := r.b.Get(r.ctx, r.key, r.off, r.end-r.off, "")
	if err != nil {
		return err
	}
	if info.Version != r.info.Version {
		return errors.Join(cut, rest.Close())
	}
	r.r.Close()
	r.r = rest
	return nil
}

func (r *reader) Close() error { return r.r.Close() }
