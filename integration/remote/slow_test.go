package remote

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// slow is a network: every request takes a while before it begins, and bytes come no faster than a bound for
// all connections, and one for each.
type slow struct {
	http.RoundTripper
	latency   time.Duration
	all, each float64 // bytes a second

	requests, got, sent atomic.Int64
	mu                  sync.Mutex
	next                time.Time // when the line is free again
}

// take waits until n bytes went over the line.
func (s *slow) take(n int) {
	s.mu.Lock()
	now := time.Now()
	if s.next.Before(now) {
		s.next = now
	}
	s.next = s.next.Add(time.Duration(float64(n) / s.all * 1e9))
	wait := s.next.Sub(now)
	s.mu.Unlock()
	sleep(wait)
}

// sleep passes over what is too short to be slept exactly: the next piece waits for it.
func sleep(d time.Duration) {
	if d > 2*time.Millisecond {
		time.Sleep(d)
	}
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests.Add(1)
	time.Sleep(s.latency)
	if r.Body != nil && r.Body != http.NoBody {
		r = r.Clone(r.Context())
		r.Body = &slowBody{ReadCloser: r.Body, s: s, count: &s.sent, begun: time.Now()}
	}
	out, err := s.RoundTripper.RoundTrip(r)
	if err == nil {
		out.Body = &slowBody{ReadCloser: out.Body, s: s, count: &s.got, begun: time.Now()}
	}
	return out, err
}

// asked is what was asked since it was called last.
func (s *slow) asked() (requests, got, sent int64) {
	return s.requests.Swap(0), s.got.Swap(0), s.sent.Swap(0)
}

type slowBody struct {
	io.ReadCloser
	s     *slow
	count *atomic.Int64
	begun time.Time
	total int64
}

// piece is how many bytes are waited for at a time.
const piece = 256 << 10

func (b *slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), piece)])
	b.count.Add(int64(n))
	b.s.take(n)
	b.total += int64(n)
	sleep(time.Duration(float64(b.total)/b.s.each*1e9) - time.Since(b.begun))
	return n, err
}
