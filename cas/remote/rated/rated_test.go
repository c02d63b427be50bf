package rated_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/bucket/suite"
	"ckptfs/cas/remote/rated"
)

func TestSuite(t *testing.T) {
	suite.Run(t, func(*testing.T) bucket.Bucket {
		return rated.New(&bucket.Mem{}, rated.Rates{Put: 1 << 30, Get: 1 << 30})
	})
}

// All bodies together take as long as the rate says, in each direction.
func TestRates(t *testing.T) {
	const size, rate, objects = 1 << 20, 1 << 20, 4
	for name, c := range map[string]struct {
		rates    rated.Rates
		put, get time.Duration
	}{
		"none": {},
		"put":  {rates: rated.Rates{Put: rate}, put: objects * time.Second},
		"get":  {rates: rated.Rates{Get: 2 * rate}, get: objects * time.Second / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := rated.New(&bucket.Mem{}, c.rates)
			took := func(what string, want time.Duration, do func(key string)) {
				begun := time.Now()
				var all sync.WaitGroup
				for i := range objects {
					all.Go(func() { do(string(rune('a' + i))) })
				}
				all.Wait()
				// What the token bucket holds at first is an eighth of a second.
				if took := time.Since(begun); took > want || took < want-want/8 {
					t.Errorf("%s: %s took %v, want %v", name, what, took, want)
				}
			}
			took("put", c.put, func(key string) {
				suite.Put(t, b, key, make([]byte, size), bucket.Cond{})
			})
			took("get", c.get, func(key string) {
				if p, _, err := bucket.Read(t.Context(), b, key, size, ""); err != nil || len(p) != size {
					t.Errorf("%d bytes, %v", len(p), err)
				}
			})
		})
	}
}

// A request whose context ends waits no longer.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := rated.New(&bucket.Mem{}, rated.Rates{Put: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Put(ctx, "k", bucket.Bytes(make([]byte, 1<<20)), bucket.Cond{})
		if !errors.Is(err, bucket.ErrUnreachable) {
			t.Error(err)
		}
		if _, _, err := b.Get(t.Context(), "k", 0, bucket.All, ""); !errors.Is(err, bucket.ErrNotFound) {
			t.Error(err)
		}
	})
}
