package s3

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"ckptfs/cas/remote/bucket"
)

// watch follows a request: how far it came decides what its failure means.
type watch struct {
	op, key string
	ctx     context.Context
	stop    context.CancelCauseFunc
	asked   atomic.Bool // the engine; before that, credentials are looked for
	sent    atomic.Bool // something of the request, perhaps all
}

type watchKey struct{}

var errSilence = errors.New("no byte came for too long")

func begin(ctx context.Context, op, key string) (context.Context, *watch) {
	w := &watch{op: op, key: key}
	w.ctx, w.stop = context.WithCancelCause(ctx)
	return context.WithValue(w.ctx, watchKey{}, w), w
}

// watched tells the watch of a request how far it comes.
type watched struct{ http.RoundTripper }

func (t watched) RoundTrip(r *http.Request) (*http.Response, error) {
	if w, ok := r.Context().Value(watchKey{}).(*watch); ok {
		w.asked.Store(true)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			WroteHeaders: func() { w.sent.Store(true) }}))
	}
	return t.RoundTripper.RoundTrip(r)
}

func (w *watch) end() { w.stop(nil) }

// refused is the error for an answer that is not what the request asked for.
func (w *watch) refused(err error) error {
	return &bucket.Error{Op: w.op, Key: w.key, Kind: bucket.ErrRefused, Err: err}
}

// failed is the error of a request that Amazon's library returned.
func (w *watch) failed(err error) error {
	e := &bucket.Error{Op: w.op, Key: w.key, Err: err}
	if api := smithy.APIError(nil); errors.As(err, &api) {
		e.Code, e.Message = api.ErrorCode(), api.ErrorMessage()
	}
	var response *smithyhttp.ResponseError
	switch {
	case errors.As(err, &response) && response.Response != nil && response.HTTPStatusCode() != 0:
		e.Status = response.HTTPStatusCode()
		e.Kind = kindOf(w.op, e.Status, e.Code)
	case w.sent.Load() && w.changes():
		e.Kind = bucket.ErrDoubt
	case !w.asked.Load() && w.ctx.Err() == nil: // no credentials were found
		e.Kind = bucket.ErrDenied
	default:
		e.Kind = bucket.ErrUnreachable
	}
	return e
}

func (w *watch) changes() bool { return w.op == "put" || w.op == "delete" }

// kindOf tells what an answer means.
func kindOf(op string, status int, code string) error {
	switch code {
	case "NoSuchBucket":
		return bucket.ErrNoBucket
	case "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",
		"IncompleteBody":
		return bucket.ErrDamaged
	case "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests",
		"RequestLimitExceeded", "RequestTimeTooSkewed":
		// The library reads the engine's clock off the answer: the next signature has its time.
		return bucket.ErrBusy
	case "QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "XMinioAdminBucketQuotaExceeded":
		return bucket.ErrFull
	case "AccessDenied":
		return bucket.ErrDenied
	case "ObjectParentIsFile": // 409, and no conflict of requests
		return bucket.ErrRefused
	}
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
	case status < 300 && code == "" && (op == "put" || op == "delete"):
		return bucket.ErrDoubt // it was done, and the rest of the answer did not come
	case status < 500 && status != 0:
		return bucket.ErrRefused
	case op == "put":
		return bucket.ErrDoubt // a proxy may have answered, not the store
	}
	return bucket.ErrBusy
}

// body gives as many bytes as were announced, or an error.
type body struct {
	r     io.ReadCloser
	left  int64
	watch *watch
	err   error
}

// Read gives up on an engine that falls silent.
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
		b.err = &bucket.Error{Op: b.watch.op, Key: b.watch.key, Kind: bucket.ErrCut, Err: err}
	}
	return n, b.err
}

// Close ends the request, also where not all was read.
func (b *body) Close() error {
	err := b.r.Close()
	b.watch.end()
	return err
}
