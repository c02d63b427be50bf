// Package rated is a bucket whose requests send, or get, no more than so many bytes a second: those of
// bodies, which are nearly all. All requests share one token bucket for each direction. A body goes through
// it in pieces of an eighth of a second, so that several share it and none stands still for long.
package rated

import (
	"context"
	"io"

	"golang.org/x/time/rate"

	"ckptfs/cas/remote/bucket"
)

// Least is the lowest rate, in bytes a second. With less an engine would take a request for one that hangs.
const Least = 16 << 10

// Rates are in bytes a second; 0: as fast as it goes.
type Rates struct{ Put, Get int64 }

// Bucket is a bucket with bounds.
type Bucket struct {
	bucket.Bucket
	put, get *rate.Limiter // nil: none
}

// New bounds b.
func New(b bucket.Bucket, r Rates) *Bucket {
	return &Bucket{Bucket: b, put: limiter(r.Put), get: limiter(r.Get)}
}

func limiter(n int64) *rate.Limiter {
	if n == 0 {
		return nil
	}
	n = max(n, Least)
	return rate.NewLimiter(rate.Limit(n), int(min(n/8, 1<<20)))
}

// Past is what bucket.Past returns, within the same bounds.
func (b *Bucket) Past() bucket.Bucket { return &Bucket{bucket.Past(b.Bucket), b.put, b.get} }

// Get bounds how fast the object is read.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	r, info, err := b.Bucket.Get(ctx, key, off, n, unless)
	if err != nil || b.get == nil {
		return r, info, err
	}
	return &reader{r, ctx, b.get, "get", key}, info, nil
}

// Put bounds how fast the body is sent.
func (b *Bucket) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	if open := body.Open; b.put != nil {
		body.Open = func() (io.ReadCloser, error) {
			r, err := open()
			if err != nil {
				return nil, err
			}
			return &reader{r, ctx, b.put, "put", key}, nil
		}
	}
	return b.Bucket.Put(ctx, key, body, cond)
}

// reader gives bytes as the limiter lets it.
type reader struct {
	io.ReadCloser
	ctx     context.Context
	limiter *rate.Limiter
	op, key string
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p[:min(len(p), r.limiter.Burst())])
	if n > 0 {
		if ended := r.limiter.WaitN(r.ctx, n); ended != nil {
			return 0, &bucket.Error{Op: r.op, Key: r.key, Kind: bucket.ErrUnreachable, Err: ended}
		}
	}
	return n, err
}
