package mounttest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/integration/daemon"
)

// engineVersion is that of scripts/setup-engine.
const engineVersion = "v1.8.0"

// Credentials of the engine that tests run.
const (
	EngineUser   = "ckptfs-tests"
	EngineSecret = "a-secret-that-no-output-has"
)

// Engine is an object store that speaks S3, with one bucket, on loopback.
type Engine struct {
	t        testing.TB
	dir      string
	address  string
	process  *Process
	Bucket   string
	Endpoint string
}

// StartEngine runs versitygw until the test ends, and sets the credentials in the environment.
func StartEngine(t testing.TB) *Engine {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", EngineUser)
	t.Setenv("AWS_SECRET_ACCESS_KEY", EngineSecret)
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	e := &Engine{t: t, dir: t.TempDir(), Bucket: "models"}
	if err := os.Mkdir(filepath.Join(e.dir, e.Bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.address = l.Addr().String()
	e.Endpoint = "http://" + e.address
	l.Close()
	e.Start()
	return e
}

// Start runs the engine again on what is there, after Kill.
func (e *Engine) Start() {
	e.t.Helper()
	e.process = Begin(e.t, e.dir, engine(e.t), "--port", e.address, "--access", EngineUser,
		"--secret", EngineSecret, "--quiet", "posix", e.dir)
	err := daemon.Until("", func() bool {
		r, err := http.Get(e.Endpoint)
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
	if err != nil {
		e.t.Fatalf("the engine does not answer: %s", e.process.Text())
	}
}

// Kill ends the engine at once.
func (e *Engine) Kill() { e.process.Kill() }

// URL is that of a prefix of the bucket.
func (e *Engine) URL(prefix string) string { return fmt.Sprintf("s3://%s/%s", e.Bucket, prefix) }

// engine finds versitygw where scripts/setup-engine puts it, or skips the test (fails where CI=true).
func engine(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir() // as the script has it: XDG_CACHE_HOME or ~/.cache
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(cache, "ckptfs", "tools", "versitygw-"+engineVersion, "versitygw")
	if _, err := os.Stat(p); err != nil {
		Missing(t, "no versitygw here (scripts/setup-engine builds it)")
	}
	return p
}
