package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"ckptfs/cas/remote/bucket"
)

// Watch follows a request: how far it came decides what its failure means.
type Watch struct {
	Op, Key string // as in bucket.Error

	ctx   context.Context
	stop  context.CancelCauseFunc
	asked atomic.Bool // the server; before that, credentials are looked for
	sent  atomic.Bool // something of the request, perhaps all
}

type watchKey struct{}

var errSilence = errors.New("no byte came for too long")

// Begin begins to watch a request, which is made with the context that is returned.
func Begin(ctx context.Context, op, key string) (context.Context, *Watch) {
	w := &Watch{Op: op, Key: key}
	w.ctx, w.stop = context.WithCancelCause(ctx)
	return context.WithValue(w.ctx, watchKey{}, w), w
}

// Watched tells the Watch of a request how far it comes.
type Watched struct{ http.RoundTripper }

// RoundTrip is http.RoundTripper's.
func (t Watched) RoundTrip(r *http.Request) (*http.Response, error) {
	if w, ok := r.Context().Value(watchKey{}).(*Watch); ok {
		w.asked.Store(true)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			WroteHeaders: func() { w.sent.Store(true) }}))
	}
	return t.RoundTripper.RoundTrip(r)
}

// End ends the request.
func (w *Watch) End() { w.stop(nil) }

// Refused is the error for an answer that is not what the request asked for.
func (w *Watch) Refused(err error) error {
	return &bucket.Error{Op: w.Op, Key: w.Key, Kind: bucket.ErrRefused, Err: err}
}

// Asked reports whether the server was asked.
func (w *Watch) Asked() bool { return w.asked.Load() }

// Unanswered is the error of a request that has no answer.
func (w *Watch) Unanswered(err error) *bucket.Error {
	e := &bucket.Error{Op: w.Op, Key: w.Key, Err: err}
	switch {
	case w.sent.Load() && w.changes():
		e.Kind = bucket.ErrDoubt
	case !w.asked.Load() && w.ctx.Err() == nil: // no credentials were found
		e.Kind = bucket.ErrDenied
	default:
		e.Kind = bucket.ErrUnreachable
		var asked *url.Error // it says what was asked where; what a client wraps around it says nothing more
		if errors.As(err, &asked) {
			e.Err = asked
		}
	}
	return e
}

func (w *Watch) changes() bool { return w.Op == "put" || w.Op == "delete" }

// KindOf tells what the status of an answer means.
func KindOf(op string, status int) error {
	switch status {
	case http.StatusNotModified:
		return bucket.ErrUnchanged
	case http.StatusUnauthorized, http.StatusForbidden:
		return bucket.ErrDenied
	case http.StatusNotFound:
		return bucket.ErrNotFound
	case http.StatusConflict:
		return bucket.ErrConflict
	case http.StatusPreconditionFailed:
		return bucket.ErrPrecondition
	case http.StatusRequestedRangeNotSatisfiable:
		return bucket.ErrRange
	case http.StatusTooManyRequests:
		return bucket.ErrBusy
	case http.StatusInsufficientStorage:
		return bucket.ErrFull
	}
	switch {
	case status < 500 && status != 0:
		return bucket.ErrRefused
	case op == "put":
		return bucket.ErrDoubt // a proxy may have answered, not the store
	}
	return bucket.ErrBusy
}

// Body gives as many bytes as were announced, or an error. It gives up on a server that falls silent.
func (w *Watch) Body(r io.ReadCloser, announced int64) io.ReadCloser {
	return &body{r: r, left: announced, watch: w}
}

type body struct {
	r     io.ReadCloser
	left  int64
	watch *Watch
	err   error
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil || b.left == 0 {
		if b.err == nil {
			b.err = io.EOF
		}
		return 0, b.err
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	timer := time.AfterFunc(silence, func() { b.watch.stop(errSilence) })
	n, err := b.r.Read(p)
	timer.Stop()
	b.left -= int64(n)
	if err != nil && b.left > 0 {
		if cause := context.Cause(b.watch.ctx); cause != nil {
			err = cause
		}
		b.err = &bucket.Error{Op: b.watch.Op, Key: b.watch.Key, Kind: bucket.ErrCut, Err: err}
	}
	return n, b.err
}

// Close ends the request, also where not all was read.
func (b *body) Close() error {
	err := b.r.Close()
	b.watch.End()
	return err
}
