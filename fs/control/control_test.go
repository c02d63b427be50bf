package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
)

// shelf is a Volume of files that are either resident or packed, in memory.
type shelf struct {
	mu     sync.Mutex
	packed map[string]bool
	fail   error         // what every call returns, when set
	hold   chan struct{} // Sync waits for it, when set
	asked  []string      // paths of Evict, Hydrate and Show
}

func newShelf() *shelf {
	return &shelf{packed: map[string]bool{"runs/a/1/model.pt": true, "runs/a/2/model.pt": true,
		"notes": false}}
}

func (s *shelf) Stats(context.Context) (*Stats, error) {
	if s.fail != nil {
		return nil, s.fail
	}
	return &Stats{Files: int64(len(s.packed)), Ratio: 2.5, Runs: []RunStats{{Run: "a", Steps: 2}}}, nil
}

func (s *shelf) Status(context.Context) (*Status, error) {
	return &Status{Queue: Queue{Files: 1, Bytes: 7}, HotSize: 99}, s.fail
}

func (s *shelf) Du(_ context.Context, o DuOptions) (*Du, error) {
	return &Du{Use: Use{Name: fmt.Sprint(o)}}, s.fail
}

func (s *shelf) Sync(ctx context.Context, progress func(Progress)) error {
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	const n = 1000
	for i := range n {
		progress(Progress{DoneBytes: int64(i + 1), TotalBytes: n, DoneFiles: i + 1, TotalFiles: n,
			Current: fmt.Sprint(i)})
	}
	return s.fail
}

func (s *shelf) move(path, to string, progress func(Progress)) (*Moved, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, path)
	m := &Moved{}
	for name, packed := range s.packed {
		switch {
		case path != "" && name != path && !strings.HasPrefix(name, path+"/"):
		case packed:
			m.Files++
			m.Bytes += 10
			progress(Progress{DoneFiles: m.Files, Current: name})
		default:
			m.Skipped = append(m.Skipped, Skip{name, "not packed, so not " + to})
		}
	}
	return m, s.fail
}

func (s *shelf) Evict(_ context.Context, path string, progress func(Progress)) (*Moved, error) {
	return s.move(path, "evicted", progress)
}

func (s *shelf) Hydrate(_ context.Context, path string, progress func(Progress)) (*Moved, error) {
	return s.move(path, "hydrated", progress)
}

func (s *shelf) Compact(_ context.Context, o CompactOptions, _ func(Progress)) (*Compacted, error) {
	return &Compacted{DryRun: o.DryRun}, s.fail
}

func (s *shelf) Prune(_ context.Context, o PruneOptions, progress func(Progress)) (*Pruned, error) {
	progress(Progress{DoneFiles: 1, TotalFiles: 1})
	return &Pruned{DryRun: o.DryRun, Young: int(o.Grace / time.Hour), FreedBytes: int64(o.MaxUnused * 100)},
		s.fail
}

func (s *shelf) Check(_ context.Context, o CheckOptions, _ func(Progress)) (*Checked, error) {
	c := &Checked{Problems: []Problem{}}
	if o.ReadData {
		c.Damaged = int64(o.Subset * 100)
		c.Problems = append(c.Problems,
			Problem{Path: "a", What: "lost", Tensors: []string{"w"}, TensorCount: 1, Repair: "tree"})
	}
	return c, s.fail
}

func (s *shelf) Show(_ context.Context, path string, _ Passes) (*File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, path)
	if s.fail != nil {
		return nil, s.fail
	}
	if _, ok := s.packed[path]; !ok {
		return nil, &fs.PathError{Op: "show", Path: path, Err: syscall.ENOENT}
	}
	return &File{Path: path, Format: "safetensors", State: StateResident,
		Tensors: []Tensor{{Name: "w", Shape: []int64{2, 3}}}}, nil
}

// bothWays runs a test against a server on a socket and in the process; all that is said must be the same.
func bothWays(t *testing.T, m Mount, test func(t *testing.T, s *shelf, c *Client)) {
	var s *shelf
	services := func() Services { s = newShelf(); return allOf(s) }
	eachWay(t, m, services, func(t *testing.T, c *Client) { test(t, s, c) })
}

// eachWay is bothWays of services, which are made for each.
func eachWay(t *testing.T, m Mount, services func() Services, test func(t *testing.T, c *Client)) {
	t.Run("socket", func(t *testing.T) {
		store := t.TempDir()
		srv, err := Serve(store, NewHandler(services(), m))
		if err != nil {
			t.Fatal(err)
		}
		c, err := Dial(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		test(t, c)
		c.Close()
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Run("in process", func(t *testing.T) { test(t, InProcess(NewHandler(services(), m))) })
}

func TestQueries(t *testing.T) {
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := Mount{Version: "1.2", Store: "/s", Mountpoint: "/m", Mode: ModeServed, ModeReason: "not root",
		PID: 7, Started: started, Kernels: "avx2"}
	bothWays(t, m, func(t *testing.T, s *shelf, c *Client) {
		want, _ := s.Stats(t.Context())
		if got, err := c.Stats(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("stats: %+v, %v", got, err)
		}
		wantStatus := &Status{Version: "1.2", Store: "/s", Mountpoint: "/m", Mode: ModeServed,
			ModeReason: "not root", PID: 7, Started: started, Upkeep: Upkeep{Kernels: "avx2"},
			Queue: Queue{1, 7}, HotSize: 99, Packing: []string{}, Failures: []Failure{}}
		if got, err := c.Status(t.Context()); err != nil || !reflect.DeepEqual(got, wantStatus) {
			t.Errorf("status: %+v, %v", got, err)
		}
		wantFile, _ := s.Show(t.Context(), "runs/a/1/model.pt", nil)
		if got, err := c.Show(t.Context(), "runs/a/1/model.pt", nil); err != nil ||
			!reflect.DeepEqual(got, wantFile) {
			t.Errorf("show: %+v, %v", got, err)
		}
		for _, o := range []DuOptions{
			{Paths: []string{"runs/a", "\xff&\n=1"}, ByUser: true},
			{Paths: slices.Repeat([]string{strings.Repeat("x", 999)}, 2000), Brief: true},
			{Paths: []string{"runs"}, Only: DuSharers},
		} {
			want := &Du{Parts: []Use{}, SharedWith: []Sharer{}}
			want.Name = strings.ToValidUTF8(fmt.Sprint(o), "\ufffd")
			if got, err := c.Du(t.Context(), o); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("du: %.100v, %v", got, err)
			}
		}
		if c.PID() != os.Getpid() {
			t.Errorf("pid %d, am %d", c.PID(), os.Getpid())
		}
	})
}

func TestMoves(t *testing.T) {
	bothWays(t, Mount{}, func(t *testing.T, s *shelf, c *Client) {
		seen := 0
		m, err := c.Evict(t.Context(), "runs/a", func(Progress) { seen++ })
		if err != nil || m.Files != 2 || m.Bytes != 20 || len(m.Skipped) != 0 || m.Skipped == nil {
			t.Errorf("evict: %+v, %v", m, err)
		}
		if seen == 0 {
			t.Error("no progress")
		}
		m, err = c.Hydrate(t.Context(), "notes", nil)
		if err != nil || m.Files != 0 || !reflect.DeepEqual(m.Skipped, []Skip{{"notes", "not packed, so not hydrated"}}) {
			t.Errorf("hydrate: %+v, %v", m, err)
		}
	})
}

func TestProgressEndsWithTheLast(t *testing.T) {
	bothWays(t, Mount{}, func(t *testing.T, s *shelf, c *Client) {
		var last Progress
		if err := c.Sync(t.Context(), func(p Progress) {
			if p.DoneBytes <= last.DoneBytes {
				t.Errorf("%d after %d", p.DoneBytes, last.DoneBytes)
			}
			last = p
		}); err != nil {
			t.Fatal(err)
		}
		if last.DoneBytes != 1000 || last.Current != "999" {
			t.Errorf("last progress was %+v", last)
		}
	})
}

func TestPathsArriveWhole(t *testing.T) {
	bothWays(t, Mount{}, func(t *testing.T, s *shelf, c *Client) {
		for sent, want := range map[string]string{
			"":                       "",
			"/":                      "",
			"a/./b//c/":              "a/b/c",
			"../../etc/passwd":       "etc/passwd",
			"a/../..":                "",
			"sp ace+plus%20&path=x#": "sp ace+plus%20&path=x#",
			"caf\xe9/\xff":           "caf\xe9/\xff",
			"line\nbreak":            "line\nbreak",
		} {
			s.asked = nil
			_, _ = c.Show(t.Context(), sent, nil)
			if len(s.asked) != 1 || s.asked[0] != want {
				t.Errorf("%q arrived as %q, want %q", sent, s.asked, want)
			}
		}
		s.asked = nil
		_, err := c.Show(t.Context(), "a\x00b", nil)
		if !errors.Is(err, syscall.EINVAL) || s.asked != nil {
			t.Errorf("a zero byte: %v, asked %q", err, s.asked)
		}
	})
}

func TestErrorsReadTheSame(t *testing.T) {
	chunk := &cas.ChunkError{Loc: cas.Location{Segment: 3, Off: 64}, Err: cas.ErrCorrupt}
	for _, tc := range []struct {
		err  error
		code Code
		is   []error
	}{
		{errors.New("odd"), CodeInternal, nil},
		{fmt.Errorf("x: %w", syscall.EBUSY), CodeBusy, []error{syscall.EBUSY}},
		{fmt.Errorf("x: %w", syscall.ENOSPC), CodeNoSpace, []error{syscall.ENOSPC}},
		{&fs.PathError{Op: "open", Path: "p", Err: syscall.ENOENT}, CodeNotFound,
			[]error{fs.ErrNotExist, syscall.ENOENT}},
		{fmt.Errorf("x: %w", fs.ErrNotExist), CodeNotFound, []error{fs.ErrNotExist}},
		{fmt.Errorf("x: %w", syscall.EACCES), CodeDenied, []error{fs.ErrPermission}},
		{fmt.Errorf("read m.pt: %w", chunk), CodeCorrupt, []error{cas.ErrCorrupt}},
		{fmt.Errorf("x: %w", cas.ErrNewer), CodeNewer, []error{cas.ErrNewer}},
		{fmt.Errorf("x: %w", syscall.EXDEV), CodeInternal, []error{syscall.EXDEV}},
		{fmt.Errorf("x: %w", bucket.ErrUnfit), CodeUnfit, []error{bucket.ErrUnfit}},
		{context.Canceled, CodeCancelled, []error{context.Canceled}},
		{context.DeadlineExceeded, CodeCancelled, nil},
		{fmt.Errorf("x: %w: %w", bucket.ErrUnreachable, context.Canceled), CodeCancelled, nil},
		{fmt.Errorf("x: %w: %w", bucket.ErrUnreachable, context.DeadlineExceeded), CodeUnreachable,
			[]error{bucket.ErrUnreachable}},
		{fmt.Errorf("more: %w", &Error{Code: CodeUnsupported, Message: "no", Errno: "EPERM"}),
			CodeUnsupported, []error{syscall.EPERM}},
	} {
		bothWays(t, Mount{}, func(t *testing.T, s *shelf, c *Client) {
			s.fail = tc.err
			_, plain := c.Stats(t.Context())
			streamed := c.Sync(t.Context(), nil)
			for how, err := range map[string]error{"plain": plain, "stream": streamed} {
				var e *Error
				if !errors.As(err, &e) || e.Code != tc.code || err.Error() != tc.err.Error() {
					t.Errorf("%s: %v came as %#v", how, tc.err, err)
				}
				for _, target := range tc.is {
					if !errors.Is(err, target) {
						t.Errorf("%s: %v is not %v", how, err, target)
					}
				}
			}
		})
	}
}

func TestUnmount(t *testing.T) {
	bothWays(t, Mount{Store: "/s"}, func(t *testing.T, s *shelf, c *Client) {
		var e *Error
		if err := c.Unmount(t.Context(), false); !errors.As(err, &e) || e.Code != CodeUnsupported ||
			e.Message != "/s is not mounted" {
			t.Errorf("unmount of an unmounted store: %v", err)
		}
	})
	var lazies []bool
	m := Mount{Mode: ModeServed, Unmount: func(_ context.Context, lazy bool) error {
		lazies = append(lazies, lazy)
		if !lazy {
			return syscall.EBUSY
		}
		return nil
	}}
	bothWays(t, m, func(t *testing.T, s *shelf, c *Client) {
		lazies = nil
		if err := c.Unmount(t.Context(), false); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("busy: %v", err)
		}
		if err := c.Unmount(t.Context(), true); err != nil {
			t.Errorf("lazy: %v", err)
		}
		if !reflect.DeepEqual(lazies, []bool{false, true}) {
			t.Errorf("asked with lazy = %v", lazies)
		}
	})
}

func TestUnknownRequest(t *testing.T) {
	bothWays(t, Mount{Version: "0.9"}, func(t *testing.T, s *shelf, c *Client) {
		_, err := ask[Stats](t.Context(), c, http.MethodGet, "horoscope", nil)
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeInvalid || !strings.Contains(e.Message, "0.9") {
			t.Errorf("%v", err)
		}
	})
}

func TestCancel(t *testing.T) {
	bothWays(t, Mount{}, func(t *testing.T, s *shelf, c *Client) {
		s.hold = make(chan struct{}) // never closed
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Sync(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

func TestClosingTheBodyEndsTheHandler(t *testing.T) {
	s := newShelf()
	s.hold = make(chan struct{})
	ended := make(chan struct{})
	h := NewHandler(allOf(s), Mount{})
	c := InProcess(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		h.ServeHTTP(w, r)
		close(ended)
	}))
	body, err := c.send(t.Context(), http.MethodPost, "sync", nil)
	if err != nil {
		t.Fatal(err)
	}
	body.Close()
	<-ended
}

func TestDaemonGoesAway(t *testing.T) {
	s := newShelf()
	s.hold = make(chan struct{})
	store := t.TempDir()
	srv, err := Serve(store, NewHandler(allOf(s), Mount{}))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	result := make(chan error)
	go func() { result <- c.Sync(context.Background(), nil) }()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := srv.Close(now); err != nil {
		t.Error(err)
	}
	// Depending on how far the request was: cut off, or told by the handler that its context ended.
	var e *Error
	if err := <-result; !errors.As(err, &e) || e.Code != CodeUnavailable && e.Code != CodeCancelled {
		t.Errorf("%v", err)
	}
	if _, err := Dial(t.Context(), store); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("after the end: %v", err)
	}
}

// allOf are the services that v has.
func allOf(v Volume) Services {
	s := Services{Volume: v}
	s.Models, _ = v.(Models)
	s.Tensors, _ = v.(Tensors)
	s.Files, _ = v.(Files)
	return s
}
