package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/s3/s3test"
)

// server shows a bucket in memory over plain HTTP.
func server(t *testing.T, wrap func(http.Handler) http.Handler) (*bucket.Mem, *Bucket) {
	t.Helper()
	m := &bucket.Mem{}
	var h http.Handler = &s3test.Engine{Bucket: m}
	if wrap != nil {
		h = wrap(h)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	b, err := Open(s.URL+"/"+s3test.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m, b
}

func put(t *testing.T, b bucket.Bucket, key, data string) bucket.Version {
	t.Helper()
	v, err := b.Put(t.Context(), key, bucket.Bytes([]byte(data)), bucket.Cond{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func get(b bucket.Bucket, key string, off, n int64) (string, bucket.Info, error) {
	r, info, err := b.Get(context.Background(), key, off, n, "")
	if err != nil {
		return "", info, err
	}
	defer r.Close()
	p, err := io.ReadAll(r)
	return string(p), info, err
}

func TestRead(t *testing.T) {
	m, b := server(t, nil)
	v := put(t, m, "format", "0123456789")
	put(t, m, "empty", "")
	for _, c := range []struct {
		off, n int64
		want   string
	}{{0, bucket.All, "0123456789"}, {3, bucket.All, "3456789"}, {2, 3, "234"}, {8, 9, "89"},
		{0, 20, "0123456789"}, {0, 0, ""}} {
		got, info, err := get(b, "format", c.off, c.n)
		if err != nil || got != c.want || info.Size != 10 || info.Version != v || info.Date.IsZero() ||
			info.Modified.IsZero() {
			t.Errorf("%d at %d: %q, %+v, %v", c.n, c.off, got, info, err)
		}
	}
	if got, info, err := get(b, "empty", 0, bucket.All); got != "" || info.Size != 0 || err != nil {
		t.Errorf("%q, %+v, %v", got, info, err)
	}
	for _, c := range []struct {
		key  string
		off  int64
		want error
	}{{"missing", 0, bucket.ErrNotFound}, {"format", 10, bucket.ErrRange}} {
		if _, _, err := get(b, c.key, c.off, 5); !errors.Is(err, c.want) {
			t.Errorf("%s at %d: %v", c.key, c.off, err)
		}
	}
	if _, _, err := b.Get(t.Context(), "format", 0, bucket.All, v); !errors.Is(err, bucket.ErrUnchanged) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := b.Get(ctx, "format", 0, 5, ""); !errors.Is(err, bucket.ErrUnreachable) {
		t.Error(err)
	}
}

// Without an ETag no two answers are said to be of one content.
func TestNoETag(t *testing.T) {
	n := 0
	m, b := server(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			w.Header().Set("Date", time.Unix(int64(n), 0).UTC().Format(http.TimeFormat))
			h.ServeHTTP(silent{w}, r)
		})
	})
	m.Now = func() time.Time { return time.Time{} }
	put(t, m, "k", "x")
	_, first, err := get(b, "k", 0, 1)
	if err != nil || first.Version == "" {
		t.Fatal(first, err)
	}
	if _, second, err := get(b, "k", 0, 1); err != nil || second.Version == first.Version {
		t.Error(second, err)
	}
}

// silent says no ETag.
type silent struct{ http.ResponseWriter }

func (s silent) WriteHeader(status int) {
	s.Header().Del("ETag")
	s.ResponseWriter.WriteHeader(status)
}

// A server that gives no part of an object is found out by one request. Others are not judged.
func TestCheckRanges(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(http.Handler) http.Handler
		has  string
		fit  bool
	}{
		"ranges":    {nil, record.FormatKey, true},
		"not there": {nil, "other", true},
		"whole objects": {func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del("Range")
				h.ServeHTTP(w, r)
			})
		}, record.FormatKey, false},
		"an error": {func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) })
		}, record.FormatKey, true},
	} {
		m, b := server(t, c.wrap)
		put(t, m, c.has, strings.Repeat("x", 100))
		err := b.CheckRanges(t.Context())
		if errors.Is(err, bucket.ErrUnfit) == c.fit || c.fit && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nothing is written or listed, but the head of what was exported.
func TestReadOnly(t *testing.T) {
	m, b := server(t, nil)
	_, err := b.Put(t.Context(), "k", bucket.Bytes(nil), bucket.Cond{})
	if derr := b.Delete(t.Context(), []string{"k"}); !errors.Is(err, bucket.ErrDenied) ||
		!errors.Is(derr, bucket.ErrDenied) {
		t.Error(err, derr)
	}
	list := func(prefix, after string) (keys []string, err error) {
		for info, err := range b.List(t.Context(), prefix, after) {
			if err != nil {
				return keys, err
			}
			keys = append(keys, info.Key)
		}
		return keys, nil
	}
	put(t, m, record.HeadKey("a.00000000"), "x")
	if keys, err := list(record.Heads, ""); len(keys) > 0 || err != nil {
		t.Error(keys, err)
	}
	exports := record.HeadKey(record.ExportsWriter)
	put(t, m, exports, "x")
	if keys, err := list(record.Heads, ""); len(keys) != 1 || keys[0] != exports || err != nil {
		t.Error(keys, err)
	}
	if keys, err := list(record.Heads, exports); len(keys) > 0 || err != nil {
		t.Error(keys, err)
	}
	if _, err := list("d/", ""); !errors.Is(err, bucket.ErrDenied) {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	for _, s := range []string{"", "models", "s3://models/x", "https://", "https://u:hidden@h/x", "https://h/x?y=z",
		"https://h/x#y", "http://h\x7f/hidden"} {
		if _, err := Open(s, nil); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// A server that ignores ranges, or encodes what it sends, is refused.
func TestServersThatLie(t *testing.T) {
	for name, change := range map[string]func(http.Handler) http.Handler{
		"no ranges": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del("Range")
				h.ServeHTTP(w, r)
			})
		},
		"encoded": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "br")
				h.ServeHTTP(w, r)
			})
		},
		"another range": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("Range", "bytes=0-3")
				h.ServeHTTP(w, r)
			})
		},
		"no length": func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusPartialContent)
				w.(http.Flusher).Flush()
				io.WriteString(w, "2345")
			})
		},
	} {
		m, b := server(t, change)
		put(t, m, "k", "0123456789")
		if got, _, err := get(b, "k", 2, 4); !errors.Is(err, bucket.ErrRefused) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// What changes is asked for past what is kept on the way, and so is everything by Past.
func TestPastCaches(t *testing.T) {
	var mu sync.Mutex
	said := map[string]string{}
	m, b := server(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			said[r.URL.Path] = r.Header.Get("Cache-Control")
			mu.Unlock()
			h.ServeHTTP(w, r)
		})
	})
	object, hint := record.ClassData.Key(record.ID{1}), record.HintKey
	for _, c := range []struct {
		key, want string
		b         bucket.Bucket
	}{{object, "", b}, {hint, "no-cache", b}, {object, "no-cache", b.Past()}} {
		put(t, m, c.key, "x")
		if _, _, err := get(c.b, c.key, 0, 1); err != nil || said["/"+s3test.Name+"/"+c.key] != c.want {
			t.Errorf("%s: %q, want %q; %v", c.key, said["/"+s3test.Name+"/"+c.key], c.want, err)
		}
	}
}

// scripted answers Gets as it is told, and counts them.
type scripted struct {
	bucket.Bucket
	gets int
	err  error
	cut  int // after so many bytes, if not 0
}

func (s *scripted) Get(ctx context.Context, key string, off, n int64, unless bucket.Version) (
	io.ReadCloser, bucket.Info, error) {
	s.gets++
	if s.err != nil {
		return nil, bucket.Info{}, &bucket.Error{Op: "get", Key: key, Kind: s.err}
	}
	r, info, err := s.Bucket.Get(ctx, key, off, n, unless)
	if err == nil && s.cut > 0 {
		p, _ := io.ReadAll(r)
		cut := &bucket.Error{Op: "get", Key: key, Kind: bucket.ErrCut}
		r = io.NopCloser(io.MultiReader(bytes.NewReader(p[:min(s.cut, len(p))]), broken{cut}))
	}
	return r, info, err
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// Objects that never change come from the mirror, as far as it has them.
func TestMirror(t *testing.T) {
	m := &bucket.Mem{}
	object, missing := record.ClassData.Key(record.ID{1}), record.ClassMeta.Key(record.ID{2})
	put(t, m, object, "0123456789")
	copies, origin := &scripted{Bucket: m}, &scripted{Bucket: m}
	var mirror *Mirror
	asks := func(key string, off, n int64, want string, fromCopies, fromOrigin int) {
		t.Helper()
		copies.gets, origin.gets = 0, 0
		got, info, err := get(mirror, key, off, n)
		if got != want || err != nil || info.Size != int64(len("0123456789")) || copies.gets != fromCopies ||
			origin.gets != fromOrigin {
			t.Errorf("%s: %q, %+v, %v; %d, %d requests", key, got, info, err, copies.gets, origin.gets)
		}
	}
	mirror = NewMirror(copies, origin)
	asks(object, 2, 4, "2345", 1, 0)
	put(t, m, record.HintKey, "0123456789")
	asks(record.HintKey, 2, 4, "2345", 0, 1)
	copies.cut = 2
	asks(object, 2, 6, "234567", 1, 1)
	asks(object, 2, 6, "234567", 0, 1) // it rests
	mirror, copies.cut = NewMirror(copies, origin), 0
	copies.err = bucket.ErrNotFound
	asks(object, 2, 4, "2345", 1, 1)
	copies.err = bucket.ErrUnreachable
	asks(object, 2, 4, "2345", 1, 1)
	asks(object, 2, 4, "2345", 0, 1)
	if _, _, err := get(mirror, missing, 0, 1); !errors.Is(err, bucket.ErrNotFound) {
		t.Error(err)
	}
	if mirror.Past() != bucket.Bucket(origin) {
		t.Error("past the mirror is not the bucket")
	}
	// Who gives up says nothing of the mirror.
	mirror, copies.err = NewMirror(copies, origin), bucket.ErrUnreachable
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := mirror.Get(ctx, object, 0, 1, ""); err == nil {
		t.Error("the context has ended")
	}
	copies.err = nil
	asks(object, 2, 4, "2345", 1, 0)
}
