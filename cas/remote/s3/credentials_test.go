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

// Credentials are looked for again, too, when who gave them has none any more.
func TestGiverFails(t *testing.T) {
	s3test.Credentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	dir := t.TempDir()
	given, shared := filepath.Join(dir, "given"), filepath.Join(dir, "shared")
	settings := filepath.Join(dir, "config")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", shared)
	t.Setenv("AWS_CONFIG_FILE", settings)
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(settings, "[default]\ncredential_process = cat "+given+"\n")
	write(given, `{"Version": 1, "AccessKeyId": "first", "SecretAccessKey": "s", "SessionToken": "t",
		"Expiration": "2020-01-01T00:00:00Z"}`) // so it is asked each time
	engine := &s3test.Engine{Bucket: &bucket.Mem{}}
	var by atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by.Store(r.Header.Get("Authorization"))
		engine.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	b := open(t, s3.Config{Bucket: s3test.Name, Endpoint: server.URL, PathStyle: true})
	put := func() error {
		_, err := b.Put(t.Context(), "k", bucket.Bytes([]byte("b")), bucket.Cond{})
		return err
	}
	if err := put(); err != nil || !strings.Contains(by.Load().(string), "Credential=first/") {
		t.Fatal(err, by.Load())
	}
	if err := os.Remove(given); err != nil {
		t.Fatal(err)
	}
	if put() == nil {
		t.Error("nobody has credentials")
	}
	write(shared, "[default]\naws_access_key_id = second\naws_secret_access_key = s\n")
	if err := put(); err != nil || !strings.Contains(by.Load().(string), "Credential=second/") {
		t.Error(err, by.Load())
	}
}

// A machine without a role has no credentials: the error says so, and nothing else is said anywhere.
func TestRefusedByTheRole(t *testing.T) {
	s3test.Credentials(t)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer role.Close()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", role.URL)
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	was := os.Stderr
	os.Stderr = said
	defer func() { os.Stderr = was }()
	err = get(open(t, s3.Config{Bucket: "b", Endpoint: role.URL, PathStyle: true}), 0, bucket.All)
	if !errors.Is(err, bucket.ErrDenied) || !strings.Contains(err.Error(), "credentials") {
		t.Error(err)
	}
	if info, err := said.Stat(); err != nil || info.Size() > 0 {
		p, _ := os.ReadFile(said.Name())
		t.Errorf("said %s, %v", p, err)
	}
}
