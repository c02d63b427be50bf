package remotetest

import (
	"context"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/cas/remote/bucket"
)

// Network is a bucket behind a network: every request takes a round trip before its first byte, and bytes
// come no faster than a bound for all connections, and one for each. A listing is one request.
type Network struct {
	bucket.Bucket
	Latency   time.Duration
	All, Each float64 // bytes a second; 0: as fast as it goes

	requests, got, sent atomic.Int64
	mu                  sync.Mutex
	next                time.Time // when the line is free again
}

// Asked is how many requests there were since it was called last, and the bytes of their bodies.
func (n *Network) Asked() (requests, got, sent int64) {
	return n.requests.Swap(0), n.got.Swap(0), n.sent.Swap(0)
}

// begin is the round trip of a request.
func (n *Network) begin() {
	n.requests.Add(1)
	time.Sleep(n.Latency)
}

// Get gets over the network.
func (n *Network) Get(ctx context.Context, key string, off, length int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	n.begin()
	r, info, err := n.Bucket.Get(ctx, key, off, length, unless)
	if err != nil {
		return r, info, err
	}
	return n.over(r, &n.got), info, nil
}

// Put sends over the network.
func (n *Network) Put(ctx context.Context, key string, body bucket.Body, cond bucket.Cond) (
	bucket.Version, error) {
	n.begin()
	open := body.Open
	body.Open = func() (io.ReadCloser, error) {
		r, err := open()
		if err != nil {
			return nil, err
		}
		return n.over(r, &n.sent), nil
	}
	return n.Bucket.Put(ctx, key, body, cond)
}

// Delete takes a round trip.
func (n *Network) Delete(ctx context.Context, keys []string) error {
	n.begin()
	return n.Bucket.Delete(ctx, keys)
}

// List takes a round trip.
func (n *Network) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	n.begin()
	return n.Bucket.List(ctx, prefix, after)
}

// take waits until some bytes went over the line.
func (n *Network) take(bytes int) {
	if n.All == 0 {
		return
	}
	n.mu.Lock()
	now := time.Now()
	if n.next.Before(now) {
		n.next = now
	}
	n.next = n.next.Add(time.Duration(float64(bytes) / n.All * 1e9))
	wait := n.next.Sub(now)
	n.mu.Unlock()
	sleep(wait)
}

// sleep passes over what is too short to be slept exactly: the next piece waits for it.
func sleep(d time.Duration) {
	if d > 2*time.Millisecond {
		time.Sleep(d)
	}
}

func (n *Network) over(r io.ReadCloser, count *atomic.Int64) io.ReadCloser {
	return &connection{ReadCloser: r, n: n, count: count, begun: time.Now()}
}

// connection is one body.
type connection struct {
	io.ReadCloser
	n     *Network
	count *atomic.Int64
	begun time.Time
	total int64
}

// piece is how many bytes are waited for at a time.
const piece = 256 << 10

func (c *connection) Read(p []byte) (int, error) {
	k, err := c.ReadCloser.Read(p[:min(len(p), piece)])
	c.count.Add(int64(k))
	c.n.take(k)
	c.total += int64(k)
	if c.n.Each > 0 {
		sleep(time.Duration(float64(c.total)/c.n.Each*1e9) - time.Since(c.begun))
	}
	return k, err
}
