package tier

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/patient"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/remote/s3"
	"ckptfs/cas/remote/s3/s3test"
)

// script is an engine in this process whose answers to GETs go wrong as drawn from seed: one of so many.
type script struct {
	engine http.Handler
	oneOf  int
	only   string // of the faults; "": all

	mu     sync.Mutex
	random *rand.Rand
	last   []byte // a body that was given before
	faults map[string]int
}

// faults are what may become of a request. A nil answer is a connection that broke.
var faults = map[string]func(s *script, out *http.Response, p []byte) *http.Response{
	"503": func(_ *script, out *http.Response, _ []byte) *http.Response { return refusal(503, "SlowDown") },
	"500": func(_ *script, out *http.Response, _ []byte) *http.Response { return refusal(500, "Internal") },
	"429": func(_ *script, out *http.Response, _ []byte) *http.Response { return refusal(429, "") },
	"skewed": func(_ *script, out *http.Response, _ []byte) *http.Response {
		out = refusal(403, "RequestTimeTooSkewed")
		out.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		return out
	},
	"reset before": func(*script, *http.Response, []byte) *http.Response { return nil },
	"reset after": func(_ *script, out *http.Response, p []byte) *http.Response {
		return body(out, &cut{p: p[:len(p)/3], err: errors.New("connection reset by peer")})
	},
	"cut": func(_ *script, out *http.Response, p []byte) *http.Response {
		return body(out, &cut{p: p[:len(p)/2], err: io.ErrUnexpectedEOF})
	},
	"short": func(_ *script, out *http.Response, p []byte) *http.Response {
		return body(out, &cut{p: p[:len(p)/2], err: io.EOF})
	},
	"silent": func(_ *script, out *http.Response, p []byte) *http.Response {
		return body(out, &cut{p: p[:len(p)/2], err: io.ErrUnexpectedEOF, wait: time.Hour, ctx: out.Request})
	},
	"slow": func(_ *script, out *http.Response, p []byte) *http.Response {
		return body(out, &cut{p: p, err: io.EOF, each: 9 * time.Second, ctx: out.Request})
	},
	"flipped": func(s *script, out *http.Response, p []byte) *http.Response {
		p[s.random.IntN(len(p))] ^= 1 << s.random.IntN(8)
		return body(out, &cut{p: p, err: io.EOF})
	},
	"stale": func(s *script, out *http.Response, p []byte) *http.Response { // another object's, by a proxy
		copy(p, s.last)
		return body(out, &cut{p: p, err: io.EOF})
	},
}

// wrongs are the faults that only the bytes tell of.
var wrongs = []string{"flipped", "stale"}

func refusal(status int, code string) *http.Response {
	return &http.Response{StatusCode: status, Status: strconv.Itoa(status), Header: http.Header{},
		Body: io.NopCloser(strings.NewReader("<Error><Code>" + code + "</Code></Error>"))}
}

func body(out *http.Response, c *cut) *http.Response {
	out.Body = c
	return out
}

// cut is a body that ends with an error, and may be slow.
type cut struct {
	p          []byte
	err        error
	wait, each time.Duration // before the end; before each piece
	ctx        *http.Request
}

func (c *cut) Read(p []byte) (int, error) {
	d := c.each
	if len(c.p) == 0 {
		d = c.wait
	}
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.ctx.Context().Done():
			return 0, c.ctx.Context().Err()
		}
	}
	if len(c.p) == 0 {
		return 0, c.err
	}
	n := copy(p, c.p)
	c.p = c.p[n:]
	return n, nil
}

func (c *cut) Close() error { return nil }

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.engine.ServeHTTP(w, r)
	out := w.Result()
	out.Request = r
	if n := out.Header.Get("Content-Length"); n != "" {
		out.ContentLength, _ = strconv.ParseInt(n, 10, 64)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := w.Body.Bytes()
	if r.Method != http.MethodGet || s.oneOf == 0 || len(p) == 0 || s.random.IntN(s.oneOf) > 0 {
		s.last = bytes.Clone(p)
		return out, nil
	}
	name := s.only
	if name == "" {
		n := s.random.IntN(len(faults))
		for name = range faultNames {
			if n--; n < 0 {
				break
			}
		}
	}
	s.faults[name]++
	if out = faults[name](s, out, bytes.Clone(p)); out == nil {
		return nil, errors.New("connection reset by peer")
	}
	return out, nil
}

// faultNames yields the names in one order.
func faultNames(yield func(string) bool) {
	for _, name := range []string{"503", "500", "429", "skewed", "reset before", "reset after", "cut",
		"short", "silent", "slow", "flipped", "stale"} {
		if !yield(name) {
			return
		}
	}
}

// readThrough reads a file over an engine whose answers go wrong. A read that fails because bytes were wrong
// twice is made again.
func readThrough(t *testing.T, oneOf int, only string, seed uint64) *script {
	t.Helper()
	var s *script
	r := newRig(t)
	f := r.publish(t, remotetest.Small, 6)
	synctest.Test(t, func(t *testing.T) {
		s = &script{engine: &s3test.Engine{Bucket: r.remote}, oneOf: oneOf, only: only,
			random: rand.New(rand.NewPCG(seed, 1)), faults: map[string]int{}}
		b, err := s3.Open(t.Context(), s3.Config{Bucket: s3test.Name, Endpoint: "http://engine",
			Region: "us-east-1", PathStyle: true, Transport: s})
		if err != nil {
			t.Fatal(err)
		}
		r.over = patient.New(b, patient.Options{Requests: 8, For: 5 * time.Minute})
		r.open(t, 1<<30)
		defer r.close()
		for n := 0; ; n++ {
			got, err := r.read(f, 4000)
			if !bytes.Equal(got, f.Content[:len(got)]) {
				t.Fatalf("%s, seed %d: wrong bytes", only, seed)
			}
			if err == nil {
				break
			}
			var at *fetch.Error
			if !errors.Is(err, cas.ErrCorrupt) || !errors.As(err, &at) ||
				s.faults[wrongs[0]]+s.faults[wrongs[1]] < 2 || n > 50 {
				t.Fatalf("%s, seed %d: %v, after %v", only, seed, err, s.faults)
			}
		}
	})
	return s
}

// Whatever becomes of requests, the right bytes come, or an error if they were wrong twice.
func TestScript(t *testing.T) {
	s3test.Credentials(t)
	for name := range faultNames {
		if s := readThrough(t, 2, name, 1); s.faults[name] < 2 {
			t.Errorf("%s: %v", name, s.faults)
		}
	}
	seeds := uint64(60)
	if testing.Short() {
		seeds = 6
	}
	all := map[string]int{}
	for seed := range seeds {
		for name, n := range readThrough(t, 3, "", seed).faults {
			all[name] += n
		}
	}
	t.Log(all)
}

// An engine that never answers is an error once the time for it is over, and not much later.
func TestTimeout(t *testing.T) {
	s3test.Credentials(t)
	for _, fault := range []string{"503", "reset before"} {
		r := newRig(t)
		f := r.publish(t, remotetest.Small, 1)
		synctest.Test(t, func(t *testing.T) {
			s := &script{engine: &s3test.Engine{Bucket: r.remote}, oneOf: 1, only: fault,
				random: rand.New(rand.NewPCG(1, 1)), faults: map[string]int{}}
			b, err := s3.Open(t.Context(), s3.Config{Bucket: s3test.Name, Endpoint: "http://engine",
				Region: "us-east-1", PathStyle: true, Transport: s})
			if err != nil {
				t.Fatal(err)
			}
			r.over = patient.New(b, patient.Options{Requests: 8, For: 5 * time.Minute})
			r.open(t, 1<<30)
			defer r.close()
			begun := time.Now()
			_, err = r.read(f, 4000)
			if d := time.Since(begun); d > 5*time.Minute || d < 4*time.Minute || !unreachable(err) {
				t.Errorf("%s: %v after %v", fault, err, d)
			}
			var e *bucket.Error
			if !errors.As(err, &e) {
				t.Error(err)
			}
		})
	}
}
