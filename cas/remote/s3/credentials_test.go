package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/patient"
	"ckptfs/cas/remote/s3"
	"ckptfs/cas/remote/s3/s3test"
)

// Credentials that expired are looked for again, once, and requests go on with new ones if there are any.
func TestExpired(t *testing.T) {
	s3test.Credentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	write := func(key string) {
		t.Helper()
		err := os.WriteFile(file, fmt.Appendf(nil,
			"[default]\naws_access_key_id = %s\naws_secret_access_key = s\naws_session_token = t\n", key), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	var takes atomic.Value
	takes.Store("first")
	var refused atomic.Int64
	engine := &s3test.Engine{Bucket: &bucket.Mem{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+takes.Load().(string)+"/") {
			refused.Add(1)
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>ExpiredToken</Code></Error>")
			return
		}
		engine.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	b := patient.New(open(t, s3.Config{Bucket: s3test.Name, Endpoint: server.URL, PathStyle: true}),
		patient.Options{Requests: 8, For: time.Minute})
	puts := func() error {
		var group sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			group.Go(func() {
				_, errs[i] = b.Put(t.Context(), fmt.Sprint("k", i), bucket.Bytes([]byte("b")), bucket.Cond{})
			})
		}
		group.Wait()
		return errors.Join(errs...)
	}
	if err := puts(); err != nil || refused.Load() != 0 {
		t.Fatalf("%v, %d refused", err, refused.Load())
	}
	takes.Store("second")
	if err := puts(); !errors.Is(err, bucket.ErrDenied) || errors.Is(err, bucket.ErrBusy) ||
		refused.Load() != 8 {
		t.Errorf("nobody has others: %v, %d refused", err, refused.Load())
	}
	write("second")
	if err := puts(); err != nil || refused.Load() > 16 {
		t.Errorf("others are there: %v, %d refused", err, refused.Load())
	}
}
