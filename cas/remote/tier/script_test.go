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
	"ckptfs/cas/disk"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/cache"
	"ckptfs/cas/remote/fetch"
	"ckptfs/cas/remote/patient"
	"ckptfs/cas/remote/remotetest"
	"ckptfs/cas/remote/s3"
	"ckptfs/cas/remote/s3/s3test"
	"ckptfs/cas/segment"
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
	"skewed": func(*script, *http.Response, []byte) *http.Response {
		out := refusal(403, "RequestTimeTooSkewed")
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

// read is a record as the remote has it.
type read struct {
	fetch.Record
	payload []byte
}

// recordsOf are the records of a file.
func recordsOf(t *testing.T, r *rig, f *remotetest.Saved) (all []read) {
	t.Helper()
	from := &fetch.Reader{Bucket: r.remote}
	p, err := from.Plan(t.Context(), r.files[f.Manifest])
	if err != nil {
		t.Fatal(err)
	}
	x := newPlan(p, r.files[f.Manifest].Plan, nil, nil)
	for n := range x.keys {
		all = append(all, read{Record: wanted{x, n}.record()})
	}
	if err := eachOf(t, from, all, func(i int, payload []byte) error {
		all[i].payload = bytes.Clone(payload)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func eachOf(t *testing.T, from *fetch.Reader, all []read, f func(i int, payload []byte) error) error {
	records := make([]fetch.Record, len(all))
	for i := range all {
		records[i] = all[i].Record
	}
	return from.Each(t.Context(), records, func(i int, _ *segment.Record, payload []byte) error {
		return f(i, payload)
	})
}

// through is a reader of a remote through a cache, with patience, over an engine whose answers go wrong. It
// is made in a bubble, where nothing is decoded: what decodes keeps channels for others.
func (s *script) through(t *testing.T, r *rig) *fetch.Reader {
	t.Helper()
	s.engine, s.faults = &s3test.Engine{Bucket: r.remote}, map[string]int{}
	b, err := s3.Open(t.Context(), s3.Config{Bucket: s3test.Name, Endpoint: "http://engine",
		Region: "us-east-1", PathStyle: true, Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := disk.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	c, err := cache.Open(dir, cache.Options{Max: 1 << 30, Disk: empty})
	if err != nil {
		t.Fatal(err)
	}
	return &fetch.Reader{Bucket: c.Bucket(patient.New(b, patient.Options{Requests: 8, For: 5 * time.Minute})),
		Here: func(r *fetch.Record) bool { return c.Has(r.Object.ID, r.Off, r.Len()) }}
}

// Whatever becomes of requests, the right bytes come, or an error if they were wrong twice.
func TestScript(t *testing.T) {
	s3test.Credentials(t)
	r := newRig(t)
	all := recordsOf(t, r, r.publish(t, remotetest.Small, 6))
	counts := map[string]int{}
	run := func(s *script) {
		synctest.Test(t, func(t *testing.T) {
			from := s.through(t, r)
			for n := 0; ; n++ {
				err := eachOf(t, from, all, func(i int, payload []byte) error {
					if !bytes.Equal(payload, all[i].payload) {
						t.Errorf("%s: wrong bytes", s.only)
					}
					return nil
				})
				if err == nil {
					break
				}
				var at *fetch.Error
				if !errors.Is(err, cas.ErrCorrupt) || !errors.As(err, &at) || n > 50 ||
					s.faults["flipped"]+s.faults["stale"] < 2 {
					t.Fatalf("%s: %v, after %v", s.only, err, s.faults)
				}
			}
		})
		for name, n := range s.faults {
			counts[name] += n
		}
	}
	for name := range faultNames {
		if run(&script{oneOf: 2, only: name, random: rand.New(rand.NewPCG(1, 1))}); counts[name] < 2 {
			t.Errorf("%s: %v", name, counts)
		}
	}
	seeds := uint64(500)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		run(&script{oneOf: 2, random: rand.New(rand.NewPCG(seed, 2))})
	}
	t.Log(counts)
}

// An engine that never answers is an error once the time for it is over, and not much later.
func TestTimeout(t *testing.T) {
	s3test.Credentials(t)
	r := newRig(t)
	all := recordsOf(t, r, r.publish(t, remotetest.Small, 1))
	for _, fault := range []string{"503", "reset before"} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{oneOf: 1, only: fault, random: rand.New(rand.NewPCG(1, 1))}
			from := s.through(t, r)
			begun := time.Now()
			err := eachOf(t, from, all, func(int, []byte) error { return nil })
			var e *bucket.Error
			if d := time.Since(begun); d > 5*time.Minute || d < 4*time.Minute || !unreachable(err) ||
				!errors.As(err, &e) {
				t.Errorf("%s: %v after %v", fault, err, d)
			}
		})
	}
}
