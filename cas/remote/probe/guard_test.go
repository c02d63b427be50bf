package probe_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/bucket/suite"
	"ckptfs/cas/remote/probe"
)

func TestGuardedSuite(t *testing.T) {
	suite.Run(t, func(*testing.T) bucket.Bucket { return probe.Guard(&bucket.Mem{}, "probe/here") })
}

// puts counts them.
type puts struct {
	bucket.Bucket
	n int
}

func (p *puts) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	p.n++
	return p.Bucket.Put(ctx, key, body, cond)
}

// An engine that stopped to keep conditions takes nothing on condition any more, and is checked again until
// it does; one that keeps them is checked once.
func TestGuard(t *testing.T) {
	mem := &bucket.Mem{}
	engine := &liar{Bucket: mem,
		cond: func(c bucket.Cond) bucket.Cond { return bucket.Cond{Absent: c.Absent} }}
	counted := &puts{Bucket: engine}
	g := probe.Guard(counted, "probe/here")
	create := func() error {
		_, err := g.Put(t.Context(), "heads/a", bucket.Bytes(nil), bucket.Cond{Absent: true})
		return err
	}
	if _, err := g.Put(t.Context(), "hint", bucket.Bytes(nil), bucket.Cond{}); err != nil || counted.n != 1 {
		t.Errorf("%v after %d puts: nothing depends on a condition yet", err, counted.n)
	}
	for range 2 {
		if err := create(); !errors.Is(err, bucket.ErrUnfit) {
			t.Errorf("an unfit engine: %v", err)
		}
	}
	if _, _, err := mem.Get(t.Context(), "heads/a", 0, 0, ""); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("it was put: %v", err)
	}
	engine.cond = nil
	if err := create(); err != nil {
		t.Error(err)
	}
	n := counted.n
	if err := create(); !errors.Is(err, bucket.ErrPrecondition) || counted.n != n+1 {
		t.Errorf("%v after %d puts", err, counted.n-n)
	}
	_, err := bucket.Past(g).Put(t.Context(), "heads/b", bucket.Bytes(nil), bucket.Cond{Absent: true})
	if err != nil || counted.n != n+2 {
		t.Errorf("past caches: %v after %d puts", err, counted.n-n)
	}
}

// What says nothing of the engine's fitness is not taken for that.
func TestGuardNoAnswer(t *testing.T) {
	for _, kind := range []error{bucket.ErrUnreachable, bucket.ErrDenied, bucket.ErrFull, bucket.ErrDoubt} {
		err := probe.Conditions(t.Context(), broken{&bucket.Mem{}, kind}, "probe/here")
		if !errors.Is(err, kind) || errors.Is(err, bucket.ErrUnfit) {
			t.Errorf("%v: %v", kind, err)
		}
	}
}

// Two machines of one identity check at once, and find the engine fit.
func TestGuardsMeet(t *testing.T) {
	mem := &bucket.Mem{}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				err := probe.Conditions(t.Context(), mem, "probe/here")
				if err != nil && !errors.Is(err, bucket.ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	meeting := &meets{Mem: mem}
	if err := probe.Conditions(t.Context(), meeting, "probe/here"); err != nil || meeting.n < 6 {
		t.Errorf("%v after %d puts", err, meeting.n)
	}
}

// meets is a bucket where somebody else puts between the first two puts.
type meets struct {
	*bucket.Mem
	n int
}

func (m *meets) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	if m.n++; m.n == 2 {
		if _, err := m.Mem.Put(ctx, key, bucket.Bytes([]byte("another's")), bucket.Cond{}); err != nil {
			return "", err
		}
	}
	return m.Mem.Put(ctx, key, body, cond)
}
