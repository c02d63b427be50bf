package probe

import (
	"context"
	"io"
	"iter"
	"sync/atomic"

	"ckptfs/cas/remote/bucket"
)

// counter counts requests; of listings it counts the calls, not the pages.
type counter struct{ requests atomic.Int64 }

func (c *counter) n() int { return int(c.requests.Load()) }

type counting struct {
	b bucket.Bucket
	c *counter
}

func (c counting) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	c.c.requests.Add(1)
	return c.b.Get(ctx, key, off, n, unless)
}

func (c counting) Put(ctx context.Context, key string, body bucket.Body,
	cond bucket.Cond) (bucket.Version, error) {
	c.c.requests.Add(1)
	return c.b.Put(ctx, key, body, cond)
}

func (c counting) Delete(ctx context.Context, keys []string) error {
	c.c.requests.Add(1)
	return c.b.Delete(ctx, keys)
}

func (c counting) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	c.c.requests.Add(1)
	return c.b.List(ctx, prefix, after)
}
