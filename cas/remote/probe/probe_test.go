package probe_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/probe"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func clock() time.Time { return noon }

func run(t *testing.T, full bool, nodes ...bucket.Bucket) *probe.Report {
	t.Helper()
	report, err := probe.Run(t.Context(), probe.Options{Full: full, Now: clock}, nodes...)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestFit(t *testing.T) {
	processors := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(processors)
	for _, full := range []bool{false, true} {
		m := &bucket.Mem{Now: clock}
		if !full { // its requests are counted: each swap that loses to another one takes two more
			runtime.GOMAXPROCS(1)
		}
		report := run(t, full, m, m)
		runtime.GOMAXPROCS(processors)
		for _, c := range report.Checks {
			if c.Failed != "" || c.Told != "" {
				t.Errorf("%+v", c)
			}
		}
		if !full && report.Requests > 300 {
			t.Errorf("%d requests, want no more than 300", report.Requests)
		}
		for info := range m.List(t.Context(), "", "") {
			t.Errorf("%s was left behind", info.Key)
		}
		if err := probe.Conditions(t.Context(), m, "probe/here"); err != nil {
			t.Error(err)
		}
	}
}

// liar is an engine that changes what is asked of a true one.
type liar struct {
	bucket.Bucket
	cond    func(bucket.Cond) bucket.Cond
	body    func(bucket.Body) bucket.Body
	version func(bucket.Version) bucket.Version
	ranged  func(off, n int64) (int64, int64)
	unless  func(bucket.Version) bucket.Version
	info    func(bucket.Info) bucket.Info
}

func (l *liar) Put(ctx context.Context, key string, body bucket.Body,
	cond bucket.Cond) (bucket.Version, error) {
	if l.cond != nil {
		cond = l.cond(cond)
	}
	if l.body != nil {
		body = l.body(body)
	}
	v, err := l.Bucket.Put(ctx, key, body, cond)
	if l.version != nil && err == nil {
		v = l.version(v)
	}
	return v, err
}

func (l *liar) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	if l.ranged != nil {
		off, n = l.ranged(off, n)
	}
	if l.unless != nil {
		unless = l.unless(unless)
	}
	r, info, err := l.Bucket.Get(ctx, key, off, n, unless)
	if l.info != nil {
		info = l.info(info)
	}
	return r, info, err
}

// creator makes an object on If-Match where there is none, as an engine was seen to do.
type creator struct{ *bucket.Mem }

func (c creator) Put(ctx context.Context, key string, body bucket.Body,
	cond bucket.Cond) (bucket.Version, error) {
	v, err := c.Mem.Put(ctx, key, body, cond)
	if errors.Is(err, bucket.ErrNotFound) {
		return c.Mem.Put(ctx, key, body, bucket.Cond{})
	}
	return v, err
}

// node keeps conditions among its own requests, and not against those of another node. Those of one key
// meet: both have looked before one of them writes.
type node struct {
	*bucket.Mem
	mu     *sync.Mutex // the node's own
	meet   chan struct{}
	second bool
}

func (n node) Put(ctx context.Context, key string, body bucket.Body,
	cond bucket.Cond) (bucket.Version, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, info, err := n.Mem.Get(ctx, key, 0, 0, "")
	there := err == nil
	if cond.Absent && there || cond.Version != "" && info.Version != cond.Version {
		return "", &bucket.Error{Op: "put", Key: key, Kind: bucket.ErrPrecondition}
	}
	if cond != (bucket.Cond{}) && (strings.Contains(key, "race") || strings.HasSuffix(key, "counter")) {
		n.rendezvous()
	}
	return n.Mem.Put(ctx, key, body, bucket.Cond{})
}

// rendezvous waits a moment for a request to the other node.
func (n node) rendezvous() {
	if n.second {
		select {
		case <-n.meet:
		case <-time.After(5 * time.Millisecond):
		}
		return
	}
	select {
	case n.meet <- struct{}{}:
	case <-time.After(5 * time.Millisecond):
	}
}

// late is an engine whose listings lag: they have what is deleted, too.
type late struct {
	*bucket.Mem
	mu      sync.Mutex
	deleted []bucket.Info
}

func (l *late) Delete(ctx context.Context, keys []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		if _, info, err := l.Mem.Get(ctx, k, 0, 0, ""); err == nil {
			l.deleted = append(l.deleted, info)
		}
	}
	return l.Mem.Delete(ctx, keys)
}

func (l *late) List(ctx context.Context, prefix, after string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		for info, err := range l.Mem.List(ctx, prefix, after) {
			if !yield(info, err) {
				return
			}
		}
		l.mu.Lock()
		deleted := slices.Clone(l.deleted)
		l.mu.Unlock()
		for _, info := range deleted {
			if strings.HasPrefix(info.Key, prefix) && !yield(info, nil) {
				return
			}
		}
	}
}

const (
	sees     = "what was put is read, listed, and gone once it is deleted"
	creates  = "an object is created only where there is none"
	swaps    = "an object is replaced only if it is as expected"
	missing  = "a missing object is not made where one was expected"
	creators = "of several that create an object at once, one does"
	counts   = "of several that replace an object, none undoes another"
	ranges   = "ranges of an object are read exactly"
	polls    = "an object that has not changed is not sent again"
)

// Each engine that lies fails at its row, and at those that build on the same thing; also at those where it
// depends on who comes when.
func TestLiars(t *testing.T) {
	a, b := nodes()
	for _, c := range []struct {
		name  string
		nodes []bucket.Bucket
		want  []string
		also  string
	}{
		{"drops the headers of conditions", []bucket.Bucket{&liar{Bucket: &bucket.Mem{},
			cond: func(bucket.Cond) bucket.Cond { return bucket.Cond{} }}},
			[]string{creates, swaps, missing, creators}, counts},
		{"drops If-None-Match", []bucket.Bucket{&liar{Bucket: &bucket.Mem{},
			cond: func(c bucket.Cond) bucket.Cond { return bucket.Cond{Version: c.Version} }}},
			[]string{creates, creators}, ""},
		{"drops If-Match", []bucket.Bucket{&liar{Bucket: &bucket.Mem{},
			cond: func(c bucket.Cond) bucket.Cond { return bucket.Cond{Absent: c.Absent} }}},
			[]string{swaps, missing}, counts},
		{"creates on If-Match", []bucket.Bucket{creator{&bucket.Mem{}}}, []string{missing}, ""},
		{"has constant ETags", []bucket.Bucket{&liar{Bucket: &bucket.Mem{},
			version: func(bucket.Version) bucket.Version { return "etag" }}}, []string{sees, swaps,
			polls}, ""},
		{"races between its nodes", []bucket.Bucket{a, b}, []string{creators, counts}, ""},
		{"lists what is deleted", []bucket.Bucket{&late{Mem: &bucket.Mem{}}}, []string{sees}, ""},
		{"ignores ranges", []bucket.Bucket{&liar{Bucket: &bucket.Mem{},
			ranged: func(off, n int64) (int64, int64) {
				if n == 0 {
					return off, n
				}
				return 0, bucket.All
			}}}, []string{ranges}, ""},
		{"sends what has not changed", []bucket.Bucket{&liar{Bucket: &bucket.Mem{},
			unless: func(bucket.Version) bucket.Version { return "" }}}, []string{polls}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, failed := range run(t, false, c.nodes...).Unfit() {
				if failed.Name != c.also {
					got = append(got, failed.Name)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("fails at %q, want %q", got, c.want)
			}
			if slices.Contains(c.want, swaps) || slices.Contains(c.want, creates) {
				if err := probe.Conditions(t.Context(), c.nodes[0], "probe/here"); err == nil {
					t.Fatal("what is asked at each mount does not find it")
				}
			}
		})
	}
}

// nodes are two nodes of one engine.
func nodes() (a, b node) {
	a = node{Mem: &bucket.Mem{}, mu: &sync.Mutex{}, meet: make(chan struct{})}
	b = a
	b.mu, b.second = &sync.Mutex{}, true
	return a, b
}

// What a remote can do without is told, and keeps no engine from being used.
func TestTold(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine *liar
		told   string
	}{
		{"takes damaged bodies", &liar{body: func(b bucket.Body) bucket.Body {
			data, _ := b.Open()
			p, _ := io.ReadAll(data)
			return bucket.Bytes(p)
		}}, "check --remote --read-data"},
		{"is an hour ahead", &liar{info: func(i bucket.Info) bucket.Info {
			i.Date = i.Date.Add(time.Hour)
			return i
		}}, "1h0m0s ahead"},
		{"is an hour behind", &liar{info: func(i bucket.Info) bucket.Info {
			i.Date = i.Date.Add(-time.Hour)
			return i
		}}, "1h0m0s behind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.engine.Bucket = &bucket.Mem{Now: clock}
			report := run(t, false, c.engine)
			if unfit := report.Unfit(); unfit != nil {
				t.Fatalf("unfit: %v", unfit)
			}
			var told strings.Builder
			for _, c := range report.Checks {
				told.WriteString(c.Told)
			}
			if !strings.Contains(told.String(), c.told) {
				t.Fatalf("told is %q, want %q", told.String(), c.told)
			}
		})
	}
}

// broken answers every put with one error.
type broken struct {
	*bucket.Mem
	kind error
}

func (b broken) Put(context.Context, string, bucket.Body, bucket.Cond) (bucket.Version, error) {
	return "", &bucket.Error{Op: "put", Key: "k", Kind: b.kind}
}

// What says nothing of the engine is an error of the probe, not a failure of the engine.
func TestNoAnswer(t *testing.T) {
	for _, kind := range []error{bucket.ErrUnreachable, bucket.ErrDenied, bucket.ErrNoBucket,
		bucket.ErrFull} {
		_, err := probe.Run(t.Context(), probe.Options{}, broken{&bucket.Mem{}, kind})
		if !errors.Is(err, kind) {
			t.Errorf("error is %v, want %v", err, kind)
		}
	}
}
