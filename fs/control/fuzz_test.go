package control

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"
)

// recording is a volume that checks what it is asked for.
type recording struct {
	Volume
	t *testing.T
}

func (v recording) path(p string) {
	if p != path.Clean("/" + p)[1:] || strings.HasPrefix(p, "/") || p == ".." ||
		strings.HasPrefix(p, "../") || strings.ContainsRune(p, 0) {
		v.t.Errorf("the volume is asked for %q", p)
	}
}

func (v recording) Show(_ context.Context, p string, _ Passes) (*File, error) {
	v.path(p)
	return &File{}, nil
}

func (v recording) Evict(_ context.Context, p string, _ func(Progress)) (*Moved, error) {
	v.path(p)
	return &Moved{}, nil
}

func (v recording) Hydrate(ctx context.Context, p string, f func(Progress)) (*Moved, error) {
	return v.Evict(ctx, p, f)
}

func (v recording) Stats(context.Context) (*Stats, error)      { return &Stats{}, nil }
func (v recording) Status(context.Context) (*Status, error)    { return &Status{}, nil }
func (v recording) Sync(context.Context, func(Progress)) error { return nil }

// FuzzRequest: whatever is asked, the volume gets paths inside of the mount, and the asker gets an answer in
// JSON.
func FuzzRequest(f *testing.F) {
	for _, verb := range []string{"stats", "status", "show", "sync", "evict", "hydrate", "unmount", "no"} {
		f.Add("GET", "/v1/"+verb, "path=a/../b", "")
		f.Add("POST", "/v1/"+verb, "path=/../../etc/passwd&lazy=1", "{}")
		f.Add("PUT", "//v1//"+verb, "path=%00&path=..%2f..", "[")
	}
	f.Fuzz(func(t *testing.T, method, target, query, body string) {
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(body))
		r.Method, r.URL.Path, r.URL.RawQuery = method, target, query
		w := httptest.NewRecorder()
		NewHandler(allOf(recording{t: t}), Mount{Store: "/s"}).ServeHTTP(w, r)
		if w.Code >= 300 && w.Code < 400 || w.Code == http.StatusMethodNotAllowed { // net/http's own answers
			return
		}
		if got := w.Body.String(); !strings.HasPrefix(got, "{") || !strings.HasSuffix(got, "}\n") {
			t.Errorf("%d: %q", w.Code, got)
		}
	})
}

// answer is a daemon that says something, whatever it is asked.
type answer struct {
	status int
	body   string
}

func (a answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// FuzzAnswer: whatever the daemon says, a client has a value or an error of a known shape, at once.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"result":{"files":1,"skipped":[{"path":"a","reason":"open"}]}}`, `{"progress":{"done_bytes":1}}` + "\n" + `{"result":{}}`,
		`{"error":{"code":"busy","message":"in use","errno":"EBUSY"}}`, `{"code":"corrupt","message":"x"}`, `{"result":null}`, `{"error":null}`,
		"null", `{"path":"a","tensors":[{"name":"t","shape":[1,2]}]}`, strings.Repeat("[", 20_000), `{"progress":{"done_bytes":1e99}}`,
	} {
		f.Add(200, body)
		f.Add(500, body)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 999 {
			return
		}
		c := InProcess(answer{status, body})
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lines := 0
		count := func(Progress) { lines++ }
		_, err1 := c.Stats(ctx)
		_, err2 := c.Show(ctx, "a", nil)
		_, err3 := c.Evict(ctx, "a", count)
		err4 := c.Sync(ctx, count)
		for _, err := range []error{err1, err2, err3, err4} {
			var e *Error
			if err != nil && !errors.As(err, &e) {
				t.Errorf("an error of no code: %T %v", err, err)
			}
			if status != http.StatusOK && err == nil {
				t.Errorf("status %d is a success", status)
			}
		}
		if lines > len(body) {
			t.Errorf("%d lines of progress in %d bytes", lines, len(body))
		}
	})
}
