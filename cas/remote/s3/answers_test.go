package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/s3"
	"ckptfs/cas/remote/s3/s3test"
)

// serve opens a bucket of an engine that answers with f.
func serve(t *testing.T, f http.HandlerFunc) *s3.Bucket {
	t.Helper()
	s3test.Credentials(t)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return open(t, s3.Config{Bucket: "b", Endpoint: server.URL, PathStyle: true})
}

func put(b *s3.Bucket) error {
	_, err := b.Put(context.Background(), "k", bucket.Bytes([]byte("body")), bucket.Cond{})
	return err
}

func get(b *s3.Bucket, off, n int64) error {
	r, _, err := b.Get(context.Background(), "k", off, n, "")
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

func list(b *s3.Bucket) (keys []string, err error) {
	for info, err := range b.List(context.Background(), "", "") {
		if err != nil {
			return keys, err
		}
		keys = append(keys, info.Key)
	}
	return keys, nil
}

func want(t *testing.T, what string, err, kind error) {
	t.Helper()
	var e *bucket.Error
	if !errors.Is(err, kind) || !errors.As(err, &e) {
		t.Errorf("%s: error is %v, want %v", what, err, kind)
	}
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		status   int
		code     string
		get, put error
	}{
		{400, "BadDigest", bucket.ErrDamaged, bucket.ErrDamaged},
		{400, "InvalidRequest", bucket.ErrRefused, bucket.ErrRefused},
		{401, "", bucket.ErrDenied, bucket.ErrDenied},
		{403, "AccessDenied", bucket.ErrDenied, bucket.ErrDenied},
		{403, "ExpiredToken", bucket.ErrDenied, bucket.ErrDenied},
		{403, "InvalidObjectState", bucket.ErrArchived, bucket.ErrArchived},
		{403, "RequestTimeTooSkewed", bucket.ErrBusy, bucket.ErrBusy},
		{403, "QuotaExceeded", bucket.ErrFull, bucket.ErrFull},
		{404, "NoSuchKey", bucket.ErrNotFound, bucket.ErrNotFound},
		{404, "XAdminUserNotFound", bucket.ErrDenied, bucket.ErrDenied},
		{404, "NoSuchBucket", bucket.ErrNoBucket, bucket.ErrNoBucket},
		{409, "ConditionalRequestConflict", bucket.ErrConflict, bucket.ErrConflict},
		{409, "ObjectParentIsFile", bucket.ErrRefused, bucket.ErrRefused},
		{412, "PreconditionFailed", bucket.ErrPrecondition, bucket.ErrPrecondition},
		{416, "InvalidRange", bucket.ErrRange, bucket.ErrRange},
		{429, "", bucket.ErrBusy, bucket.ErrBusy},
		{500, "InternalError", bucket.ErrBusy, bucket.ErrDoubt},
		{502, "", bucket.ErrBusy, bucket.ErrDoubt},
		{503, "SlowDown", bucket.ErrBusy, bucket.ErrBusy},
		{503, "", bucket.ErrBusy, bucket.ErrDoubt},
		{507, "", bucket.ErrFull, bucket.ErrFull},
	} {
		asked, listed := 0, 0
		b := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("list-type") {
				listed++
			} else {
				asked++
			}
			w.WriteHeader(c.status)
			if c.code != "" {
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as told</Message></Error>", c.code)
			}
		})
		what := fmt.Sprint(c.status, " ", c.code)
		want(t, "get "+what, get(b, 0, bucket.All), c.get)
		err := put(b)
		want(t, "put "+what, err, c.put)
		if c.code != "" && !strings.Contains(err.Error(), c.code+" as told") {
			t.Errorf("%s: the error does not say what the engine said: %v", what, err)
		}
		if asked != 2 {
			t.Errorf("%s: %d requests, want one for each call", what, asked)
		}
		if absent := c.status == 403 && c.code == "AccessDenied"; listed > 1 || (listed == 1) != absent {
			t.Errorf("%s: %d listings; it may be absent: %v", what, listed, absent)
		}
	}
}

// hangUp closes the connection of a request.
func hangUp(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		c.Close()
	}
}

func TestLostAnswer(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		hangUp(w)
	})
	want(t, "put", put(b), bucket.ErrDoubt)
	want(t, "get", get(b, 0, bucket.All), bucket.ErrUnreachable)
	want(t, "delete", b.Delete(t.Context(), []string{"k"}), bucket.ErrDoubt)
}

// What an engine has done whose answer is cut off is in doubt, and not refused.
func TestCutAnswer(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "<DeleteResult>")
		http.NewResponseController(w).Flush()
		hangUp(w)
	})
	want(t, "delete", b.Delete(t.Context(), []string{"k"}), bucket.ErrDoubt)
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s3test.Credentials(t)
	b := open(t, s3.Config{Bucket: "b", Endpoint: "http://" + l.Addr().String(), PathStyle: true})
	want(t, "put", put(b), bucket.ErrUnreachable)
	want(t, "get", get(b, 0, bucket.All), bucket.ErrUnreachable)
	_, err = list(b)
	want(t, "list", err, bucket.ErrUnreachable)
	if s := err.Error(); !strings.Contains(s, "Get \"http") || strings.Contains(s, "operation error") {
		t.Errorf("the error says %s", s)
	}
}

func TestNoCredentials(t *testing.T) {
	b := func() *s3.Bucket {
		s3test.Credentials(t)
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		return open(t, s3.Config{Bucket: "b", Endpoint: "http://127.0.0.1:1", PathStyle: true})
	}()
	want(t, "put", put(b), bucket.ErrDenied)
	want(t, "get", get(b, 0, bucket.All), bucket.ErrDenied)
}

func TestCutBody(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.Header().Set("ETag", `"1"`)
		w.Write(make([]byte, 60))
		http.NewResponseController(w).Flush()
		hangUp(w)
	})
	want(t, "get", get(b, 0, bucket.All), bucket.ErrCut)
}

// An answer of other bytes than were asked for is refused before one of them is taken for those.
func TestOtherRange(t *testing.T) {
	for _, c := range []struct {
		status int
		ranged string
	}{{200, ""}, {206, "bytes 0-99/1000"}, {206, "bytes 100-150/1000"}, {206, "bytes 100-199/150"}, {206, "bytes x"}} {
		b := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if c.ranged != "" {
				w.Header().Set("Content-Range", c.ranged)
			}
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(c.status)
			w.Write(make([]byte, 100))
		})
		want(t, c.ranged, get(b, 100, 100), bucket.ErrRefused)
	}
}

func TestListings(t *testing.T) {
	entry := func(key string) string {
		return "<Contents><Key>" + key + `</Key><Size>1</Size><ETag>"1"</ETag>` +
			"<LastModified>2026-07-01T12:00:00.000Z</LastModified></Contents>"
	}
	for _, c := range []struct {
		name, page string
		want       int // keys before the error
	}{
		{"descending", entry("b") + entry("a"), 1},
		{"twice", entry("a") + entry("a"), 1},
		{"the same page again", entry("a") + "<IsTruncated>true</IsTruncated>" +
			"<NextContinuationToken>t</NextContinuationToken>", 1},
		{"no next page", entry("a") + "<IsTruncated>true</IsTruncated>", 1},
		{"empty pages for ever", "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>", 0},
		{"a key of another prefix", entry("other"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := serve(t, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "<ListBucketResult>%s</ListBucketResult>", c.page)
			})
			if c.name == "a key of another prefix" {
				for _, err := range b.List(t.Context(), "a", "") {
					want(t, c.name, err, bucket.ErrRefused)
				}
				return
			}
			keys, err := list(b)
			want(t, c.name, err, bucket.ErrRefused)
			if len(keys) != c.want {
				t.Errorf("%q were listed", keys)
			}
		})
	}
}

// silent answers with the head of an object whose body never comes.
type silent struct{ ctx context.Context }

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{}
	h.Set("ETag", `"1"`)
	h.Set("Content-Length", "100")
	return &http.Response{StatusCode: 200, Header: h, ContentLength: 100, Request: r,
		Body: silent{r.Context()}}, nil
}

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (silent) Close() error { return nil }

func TestSilence(t *testing.T) {
	s3test.Credentials(t)
	synctest.Test(t, func(t *testing.T) {
		b := open(t, s3.Config{Bucket: "b", Endpoint: "http://engine.invalid", PathStyle: true, Transport: silent{}})
		err := get(b, 0, bucket.All)
		want(t, "get", err, bucket.ErrCut)
		if !strings.Contains(err.Error(), "no byte came") {
			t.Errorf("the error does not say why: %v", err)
		}
	})
}

// Nothing that is secret is in an error.
func TestErrorsHoldNoSecrets(t *testing.T) {
	b := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403) })
	if err := put(b); strings.Contains(fmt.Sprintf("%+v", err), "secret-of-the-test") {
		t.Errorf("%v", err)
	}
}

// Who may list some names alone is refused what is not there, with Amazon. It is not there all the same; what
// is there, or may not be listed either, is refused.
func TestRefusedWhatIsNotThere(t *testing.T) {
	for _, c := range []struct {
		name   string
		has    []string
		listed bool
		want   error
	}{
		{"nothing", nil, true, bucket.ErrNotFound},
		{"another", []string{"k2"}, true, bucket.ErrNotFound},
		{"it", []string{"k", "k2"}, true, bucket.ErrDenied},
		{"no listing", nil, false, bucket.ErrDenied},
	} {
		engine := &bucket.Mem{}
		for _, key := range c.has {
			if _, err := engine.Put(t.Context(), key, bucket.Bytes(nil), bucket.Cond{}); err != nil {
				t.Fatal(err)
			}
		}
		behind := &s3test.Engine{Bucket: engine}
		b := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if list := r.URL.Query().Has("list-type"); !list || !c.listed {
				w.WriteHeader(http.StatusForbidden)
				if r.Method != http.MethodHead {
					fmt.Fprint(w, "<Error><Code>AccessDenied</Code></Error>")
				}
				return
			}
			r.URL.Path = "/" + s3test.Name
			behind.ServeHTTP(w, r)
		})
		want(t, c.name+": get", get(b, 0, bucket.All), c.want)
		want(t, c.name+": head", get(b, 0, 0), c.want)
	}
}
