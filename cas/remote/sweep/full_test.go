package sweep_test

import (
	"context"
	"errors"
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/sweep"
)

// brimful is a bucket that takes so many more objects, and then is full.
type brimful struct {
	bucket.Bucket
	left int
}

func (f *brimful) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	if f.left--; f.left < 0 {
		return "", &bucket.Error{Op: "put", Key: key, Kind: bucket.ErrFull}
	}
	return f.Bucket.Put(ctx, key, body, cond)
}

// A collection of a bucket that becomes full fails, wherever it is, and deletes nothing that is needed; once
// there is room for its notes the next one ends it.
func TestFullBucket(t *testing.T) {
	for n := 0; ; n++ {
		r := newRemote(t)
		kept, unneeded := r.object(1), r.object(2)
		r.head(alice, nil, needs(alice, "runs/a/f", 1, kept))
		_, err := sweep.Collect(t.Context(), &brimful{r.mem, n}, r.options())
		if err == nil {
			if n < 5 {
				t.Errorf("it takes %d objects", n)
			}
			return
		}
		if !errors.Is(err, bucket.ErrFull) || !r.has(kept) || len(r.read(alice).Tail) != 1 {
			t.Fatalf("room for %d: %v", n, err)
		}
		r.collect(nil)
		if !r.has(kept) || r.has(unneeded) || r.keys("")[record.StateKey] == "" {
			t.Fatalf("room for %d, and then for all: %v", n, r.keys(""))
		}
	}
}
