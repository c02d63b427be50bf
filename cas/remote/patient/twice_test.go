package patient_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/bucket/suite"
	"ckptfs/cas/remote/patient"
)

// sluggish answers Gets after what wait says of their number, from 1.
type sluggish struct {
	*bucket.Mem
	wait        func(n int64) time.Duration
	n           atomic.Int64
	open, given atomic.Int64 // bodies that are open; all that there were
}

func (s *sluggish) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	t := time.NewTimer(s.wait(s.n.Add(1)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return nil, bucket.Info{}, &bucket.Error{Op: "get", Kind: bucket.ErrUnreachable, Err: ctx.Err()}
	}
	r, info, err := s.Mem.Get(ctx, key, off, n, unless)
	if err == nil {
		s.open.Add(1)
		s.given.Add(1)
		r = &closing{r, s}
	}
	return r, info, err
}

type closing struct {
	io.ReadCloser
	s *sluggish
}

func (c *closing) Close() error {
	c.s.open.Add(-1)
	return c.ReadCloser.Close()
}

// read reads k, and says how long that took and how many requests it made.
func (s *sluggish) read(t *testing.T, b *patient.Bucket) (time.Duration, int64) {
	t.Helper()
	begun, before := time.Now(), s.n.Load()
	if p, _, err := bucket.Read(t.Context(), b, "k", 100, ""); err != nil || string(p) != "bytes" {
		t.Fatalf("%q, %v", p, err)
	}
	took, n := time.Since(begun), s.n.Load()-before
	synctest.Wait() // for what was not taken
	return took, n
}

// A Get that takes much longer than others is made twice, and only once it does.
func TestTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const usual, stuck = 50 * time.Millisecond, time.Hour
		s := &sluggish{Mem: &bucket.Mem{}}
		suite.Put(t, s.Mem, "k", []byte("bytes"), bucket.Cond{})
		b := patient.New(s, patient.Options{Requests: 8})
		s.wait = func(int64) time.Duration { return usual }
		for range 100 {
			if d, n := s.read(t, b); d != usual || n != 1 {
				t.Fatalf("%v, %d requests", d, n)
			}
		}
		slow := s.n.Load() + 1
		s.wait = func(n int64) time.Duration {
			if n == slow {
				return stuck
			}
			return usual
		}
		if d, n := s.read(t, b); d != 3*usual+usual || n != 2 {
			t.Errorf("%v, %d requests", d, n)
		}
		// The first is answered after all, shortly before the second would be.
		slow = s.n.Load() + 1
		s.wait = func(n int64) time.Duration {
			if n == slow {
				return 3*usual + usual/2
			}
			return usual
		}
		if d, n := s.read(t, b); d != 3*usual+usual/2 || n != 2 {
			t.Errorf("%v, %d requests", d, n)
		}
		synctest.Wait()
		if s.open.Load() != 0 {
			t.Errorf("%d of %d bodies stay open", s.open.Load(), s.given.Load())
		}
		// With one request at a time there is no room for another.
		b = patient.New(s, patient.Options{Requests: 1})
		for range 100 {
			s.read(t, b)
		}
		slow = s.n.Load() + 1
		s.wait = func(n int64) time.Duration {
			if n == slow {
				return time.Minute
			}
			return usual
		}
		if d, n := s.read(t, b); d != time.Minute || n != 1 {
			t.Errorf("%v, %d requests", d, n)
		}
	})
}

// Who asks promptly waits for no turn, and is told that an engine says nothing. An answer that began in time
// is read to its end.
func TestPromptly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sluggish{Mem: &bucket.Mem{}}
		suite.Put(t, s.Mem, "k", []byte("bytes"), bucket.Cond{})
		s.wait = func(int64) time.Duration { return time.Hour }
		b := patient.New(s, patient.Options{Requests: 1})
		others, stop := context.WithCancel(t.Context())
		defer stop()
		go b.Get(others, "k", 0, -1, "")
		synctest.Wait()

		ctx, begun := patient.Promptly(t.Context()), time.Now()
		_, _, err := bucket.Read(ctx, b, "k", 100, "")
		if took := time.Since(begun); !errors.Is(err, bucket.ErrUnreachable) || took != patient.Prompt {
			t.Errorf("%v after %v", err, took)
		}
		s.wait = func(int64) time.Duration { return patient.Prompt - 1 }
		r, _, err := b.Get(ctx, "k", 0, -1, "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * patient.Prompt)
		if p, err := io.ReadAll(r); err != nil || string(p) != "bytes" {
			t.Errorf("%q, %v", p, err)
		}
		r.Close()
		if s.open.Load() != 0 {
			t.Errorf("%d bodies stay open", s.open.Load())
		}
	})
}
