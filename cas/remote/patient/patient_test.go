package patient_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/bucket/suite"
	"ckptfs/cas/remote/patient"
)

func TestSuite(t *testing.T) {
	suite.Run(t, func(*testing.T) bucket.Bucket {
		return patient.New(&bucket.Mem{}, patient.Options{Requests: 8})
	})
}

// On an engine of which every third answer is an error, everything comes to its end.
func TestFlaky(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &flaky{Mem: &bucket.Mem{}, random: rand.New(rand.NewPCG(1, 2))}
		b := patient.New(m, patient.Options{Requests: 8})
		data := make([]byte, 100_000)
		for i := range data {
			data[i] = byte(i >> 3)
		}
		var keys []string
		for i := range 40 {
			keys = append(keys, "k/"+string(rune('a'+i)))
			suite.Put(t, b, keys[i], data[i:], bucket.Cond{Absent: true})
		}
		for i, k := range keys {
			got, _, err := bucket.Read(t.Context(), b, k, 1<<20, "")
			if err != nil || !bytes.Equal(got, data[i:]) {
				t.Fatalf("%s: %d bytes, %v", k, len(got), err)
			}
		}
		n := 0
		for info, err := range b.List(t.Context(), "k/", "") {
			if err != nil || info.Key != keys[n] {
				t.Fatalf("%+v, %v; want %s", info, err, keys[n])
			}
			n++
		}
		if n != len(keys) {
			t.Fatalf("%d listed, want %d", n, len(keys))
		}
		if err := b.Delete(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		if m.failed < 20 {
			t.Fatalf("only %d requests failed", m.failed)
		}
	})
}

// flaky fails every third request, and cuts every third answer off.
type flaky struct {
	*bucket.Mem
	mu     sync.Mutex
	random *rand.Rand
	failed int
}

func (f *flaky) fail(op string, kinds ...error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.random.IntN(3) != 0 {
		return nil
	}
	f.failed++
	return &bucket.Error{Op: op, Kind: kinds[f.random.IntN(len(kinds))]}
}

func (f *flaky) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	if err := f.fail("get", bucket.ErrBusy, bucket.ErrUnreachable); err != nil {
		return nil, bucket.Info{}, err
	}
	r, info, err := f.Mem.Get(ctx, key, off, n, unless)
	if err != nil {
		return r, info, err
	}
	if cut := f.fail("get", bucket.ErrCut); cut != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		r = &cutting{r, f.random.Int64N(info.Size), cut}
	}
	return r, info, err
}

type cutting struct {
	io.ReadCloser
	left int64
	cut  error
}

func (c *cutting) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, c.cut
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if err == nil && c.left == 0 {
		err = c.cut
	}
	return n, err
}

func (f *flaky) Put(ctx context.Context, key string, body bucket.Body,
	cond bucket.Cond) (bucket.Version, error) {
	if err := f.fail("put", bucket.ErrBusy, bucket.ErrUnreachable, bucket.ErrConflict); err != nil {
		return "", err
	}
	return f.Mem.Put(ctx, key, body, cond)
}

func (f *flaky) Delete(ctx context.Context, keys []string) error {
	if err := f.fail("delete", bucket.ErrBusy, bucket.ErrUnreachable, bucket.ErrDoubt); err != nil {
		return err
	}
	return f.Mem.Delete(ctx, keys)
}

func (f *flaky) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		for info, err := range f.Mem.List(ctx, prefix, after) {
			if busy := f.fail("list", bucket.ErrBusy); busy != nil {
				yield(bucket.Info{}, busy)
				return
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// always answers every put with one error, and counts them.
type always struct {
	*bucket.Mem
	kind error
	puts atomic.Int64
}

func (a *always) Put(context.Context, string, bucket.Body, bucket.Cond) (bucket.Version, error) {
	a.puts.Add(1)
	return "", &bucket.Error{Op: "put", Kind: a.kind}
}

// What does not pass is asked once; a put that may have been done, too.
func TestNotAgain(t *testing.T) {
	for _, kind := range []error{bucket.ErrDoubt, bucket.ErrPrecondition, bucket.ErrDenied, bucket.ErrFull,
		bucket.ErrNotFound, bucket.ErrDamaged, bucket.ErrRefused, bucket.ErrNoBucket} {
		a := &always{Mem: &bucket.Mem{}, kind: kind}
		b := patient.New(a, patient.Options{Requests: 1})
		_, err := b.Put(t.Context(), "k", bucket.Bytes(nil), bucket.Cond{})
		if !errors.Is(err, kind) || a.puts.Load() != 1 {
			t.Errorf("%v: %v after %d puts", kind, err, a.puts.Load())
		}
	}
}

func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &always{Mem: &bucket.Mem{}, kind: bucket.ErrBusy}
		begun := time.Now()
		_, err := patient.New(a, patient.Options{Requests: 1, For: 5 * time.Minute}).
			Put(t.Context(), "k", bucket.Bytes(nil), bucket.Cond{})
		took := time.Since(begun)
		if !errors.Is(err, bucket.ErrBusy) || took > 5*time.Minute || took < 4*time.Minute {
			t.Fatalf("%v after %v", err, took)
		}
		if n := a.puts.Load(); n < 15 || n > 100 {
			t.Fatalf("%d puts in five minutes", n)
		}
		begun = time.Now()
		_, err = patient.New(a, patient.Options{Requests: 1, For: time.Second}).
			Put(patient.For(t.Context(), time.Minute), "k", bucket.Bytes(nil), bucket.Cond{})
		took = time.Since(begun)
		if !errors.Is(err, bucket.ErrBusy) || took > time.Minute || took < 30*time.Second {
			t.Fatalf("%v after %v", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = patient.New(a, patient.Options{Requests: 1}).Put(ctx, "k", bucket.Bytes(nil), bucket.Cond{})
		if !errors.Is(err, bucket.ErrBusy) || ctx.Err() == nil {
			t.Fatalf("%v, %v", err, ctx.Err())
		}
	})
}

// replaced gives the first bytes of one object, and is then another one.
type replaced struct{ *bucket.Mem }

func (r replaced) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	body, info, err := r.Mem.Get(ctx, key, off, n, unless)
	if err == nil {
		body = &cutting{body, 5, &bucket.Error{Op: "get", Kind: bucket.ErrCut}}
		_, err = r.Mem.Put(ctx, key, bucket.Bytes([]byte("another one")), bucket.Cond{})
	}
	return body, info, err
}

// The bytes of two objects are never put together.
func TestReplacedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := replaced{&bucket.Mem{}}
		suite.Put(t, r.Mem, "k", []byte("one object"), bucket.Cond{})
		got, _, err := bucket.Read(t.Context(), patient.New(r, patient.Options{Requests: 1}), "k", 100, "")
		if !errors.Is(err, bucket.ErrCut) {
			t.Fatalf("%q, %v", got, err)
		}
	})
}

// crowd counts the requests that are under way, and is busy beyond some.
type crowd struct {
	*bucket.Mem
	room        int64
	under, most atomic.Int64
}

func (c *crowd) Put(ctx context.Context, key string, body bucket.Body,
	cond bucket.Cond) (bucket.Version, error) {
	n := c.under.Add(1)
	defer c.under.Add(-1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	time.Sleep(10 * time.Millisecond)
	if n > c.room {
		return "", &bucket.Error{Op: "put", Kind: bucket.ErrBusy}
	}
	return c.Mem.Put(ctx, key, body, cond)
}

// No more than so many requests are made at a time, and fewer where the engine cannot take them.
func TestAtATime(t *testing.T) {
	for _, room := range []int64{100, 4} {
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{Mem: &bucket.Mem{}, room: room}
			b := patient.New(c, patient.Options{Requests: 16})
			load := func() {
				var wg sync.WaitGroup
				for range 32 {
					wg.Go(func() {
						for range 20 {
							_, err := b.Put(t.Context(), "k", bucket.Bytes(nil), bucket.Cond{})
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
			}
			load()
			if n := c.most.Load(); n != 16 {
				t.Errorf("%d requests at a time, want 16", n)
			}
			if room == 100 {
				return
			}
			c.most.Store(0)
			load()
			if n := c.most.Load(); n > 2*room {
				t.Errorf("%d requests at a time on an engine that takes %d", n, room)
			}
		})
	}
}

// Who waits for a turn and gives up takes nobody's.
func TestGivesUpWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{Mem: &bucket.Mem{}, room: 100}
		b := patient.New(c, patient.Options{Requests: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				use := t.Context()
				if i%2 == 1 {
					use = ctx
				}
				_, err := b.Put(use, "k", bucket.Bytes(nil), bucket.Cond{})
				if i%2 == 0 && err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Millisecond)
		cancel()
		wg.Wait()
		suite.Put(t, b, "k", nil, bucket.Cond{})
	})
}
