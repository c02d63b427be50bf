package contact

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/fs/control"
)

// silent is an engine that fails as it is told to.
type silent struct {
	bucket.Mem
	err error
}

func (s *silent) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	if s.err != nil {
		return nil, bucket.Info{}, s.err
	}
	return s.Mem.Get(ctx, key, off, n, unless)
}

// rig is a contact, and what it said.
type rig struct {
	*Contact
	engine silent
	now    time.Time
	said   []string
}

// again is how often it called for another try since it was asked.
func (r *rig) again() int {
	select {
	case <-r.Again():
		return 1
	default:
		return 0
	}
}

func newRig() *rig {
	r := &rig{now: time.Unix(100, 0)}
	r.Contact = New(Options{Bucket: &r.engine, URL: "s3://models/team",
		Now:    func() time.Time { return r.now },
		Report: func(_ slog.Level, msg string, _ ...any) { r.said = append(r.said, msg) }})
	return r
}

func (r *rig) status() (st control.RemoteStatus) {
	r.Tell(&st)
	return st
}

// Since when a remote is offline is told until it is reached; why, and what may help, is as it failed last.
func TestOffline(t *testing.T) {
	r, begun := newRig(), time.Unix(100, 0)
	for _, f := range []struct {
		err     error
		why, do string
	}{
		{&bucket.Error{Op: "list", Kind: bucket.ErrUnreachable}, "reached", "network"},
		{&bucket.Error{Op: "list", Kind: bucket.ErrUnreachable}, "reached", "network"},
		{&bucket.Error{Op: "list", Kind: bucket.ErrDenied, Code: "AccessDenied"}, "denied", "credentials"},
		{errors.Join(bucket.ErrNoBucket), "bucket", "bucket"},
	} {
		r.Failed(f.err)
		o := r.status().Offline
		if o == nil || o.Since != begun || !strings.Contains(o.Why, f.why) || !strings.Contains(o.Do, f.do) {
			t.Errorf("%v: %+v", f.err, o)
		}
		r.now = r.now.Add(time.Hour)
	}
	r.Reached()
	if st := r.status(); st.Offline != nil || st.LastContact != r.now || r.again() != 1 {
		t.Errorf("%+v, or nothing is tried again", st)
	}
	r.Reached()
	if len(r.said) != 4 || r.again() != 0 {
		t.Errorf("said %q, or something is tried again", r.said)
	}
}

// What was published tells that what paused need not pause any longer.
func TestPublished(t *testing.T) {
	r := newRig()
	for range 2 {
		r.Paused(&bucket.Error{Op: "put", Kind: bucket.ErrFull})
	}
	if st := r.status(); !strings.Contains(st.Problem, "full") || st.Offline != nil {
		t.Errorf("%+v", st)
	}
	r.Published()
	if st := r.status(); st.Problem != "" || r.again() != 1 || len(r.said) != 1 {
		t.Errorf("%+v, said %q, or nothing is tried again", st, r.said)
	}
	if r.Published(); r.again() != 0 {
		t.Error("tried again without need")
	}
}

// A remote that says anything answers. One that cannot be reached does not, and the status knows.
func TestAnswers(t *testing.T) {
	for _, kind := range []error{nil, bucket.ErrDenied, bucket.ErrBusy, bucket.ErrNotFound,
		bucket.ErrUnreachable} {
		r := newRig()
		if kind != nil {
			r.engine.err = &bucket.Error{Op: "get", Kind: kind, Err: io.EOF}
		}
		err := r.Answers(t.Context())
		if (kind == bucket.ErrUnreachable) != errors.Is(err, bucket.ErrUnreachable) ||
			(err == nil) != (r.status().Offline == nil) {
			t.Errorf("%v: %v, %+v", kind, err, r.status())
		}
		if err != nil && (len(r.said) != 1 || !strings.HasPrefix(r.said[0], "the remote is not reached")) {
			t.Errorf("said %q", r.said)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := newRig().Answers(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What is done soon costs no request more. What takes longer ends if the remote
// does not answer.
func TestAnswering(t *testing.T) {
	r := newRig()
	r.engine.err = &bucket.Error{Op: "get", Kind: bucket.ErrUnreachable}
	if err := r.Answering(t.Context(), func(context.Context) error { return io.EOF }); err != io.EOF {
		t.Error(err)
	}
	ended := make(chan struct{})
	err := r.Answering(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		close(ended)
		return nil
	})
	if <-ended; !errors.Is(err, bucket.ErrUnreachable) {
		t.Error(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	if err := r.Answering(ctx, func(context.Context) error {
		stop()
		select {}
	}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
