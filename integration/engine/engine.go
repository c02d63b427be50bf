// Package engine runs a real object store for tests: versitygw, on loopback, with one bucket.
package engine

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"ckptfs/integration/daemon"
)

// version is that of scripts/setup-engine.
const version = "v1.8.0"

// Credentials of the engine.
const (
	User   = "ckptfs-tests"
	Secret = "a-secret-that-no-output-has"
)

// ErrMissing: scripts/setup-engine did not build one.
var ErrMissing = errors.New("no versitygw here (scripts/setup-engine builds it)")

// Engine is an object store that speaks S3.
type Engine struct {
	dir, address string
	cmd          *exec.Cmd
	said         bytes.Buffer

	Bucket   string
	Endpoint string
}

// New runs an engine on a folder of its own, which is there.
func New(dir string) (*Engine, error) {
	e := &Engine{dir: dir, Bucket: "models"}
	if err := os.MkdirAll(filepath.Join(dir, e.Bucket), 0o700); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e.address = l.Addr().String()
	e.Endpoint = "http://" + e.address
	l.Close()
	return e, e.Start()
}

// Environ is what a program needs to use the engine, and nothing else that may be on this machine.
func Environ(none string) map[string]string {
	return map[string]string{
		"AWS_ACCESS_KEY_ID": User, "AWS_SECRET_ACCESS_KEY": Secret, "AWS_REGION": "us-east-1",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none,
	}
}

// Find is ErrMissing where there is no engine.
func Find() error {
	_, err := program()
	return err
}

// program finds versitygw where scripts/setup-engine puts it: in XDG_CACHE_HOME or ~/.cache.
func program() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	p := filepath.Join(cache, "ckptfs", "tools", "versitygw-"+version, "versitygw")
	if _, err := os.Stat(p); err != nil {
		return "", ErrMissing
	}
	return p, nil
}

// Start runs the engine again on what is there, after Kill.
func (e *Engine) Start() error {
	p, err := program()
	if err != nil {
		return err
	}
	e.said.Reset()
	e.cmd = exec.Command(p, "--port", e.address, "--access", User, "--secret", Secret, "--quiet",
		"posix", e.dir)
	e.cmd.Dir, e.cmd.Stdout, e.cmd.Stderr, e.cmd.WaitDelay = e.dir, &e.said, &e.said, time.Second
	if err := e.cmd.Start(); err != nil {
		return err
	}
	err = daemon.Until("the engine to answer", func() bool {
		r, err := http.Get(e.Endpoint)
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
	if err != nil {
		e.Kill()
		err = fmt.Errorf("%w; it said: %s", err, &e.said)
	}
	return err
}

// Folder is where the engine keeps its objects: each is a file below the name of its bucket.
func (e *Engine) Folder() string { return e.dir }

// Kill ends the engine at once.
func (e *Engine) Kill() {
	if e.cmd != nil {
		_ = e.cmd.Process.Kill()
		_ = e.cmd.Wait()
		e.cmd = nil
	}
}

// PID is that of the process that runs.
func (e *Engine) PID() int { return e.cmd.Process.Pid }

// URL is that of a prefix of the bucket.
func (e *Engine) URL(prefix string) string { return fmt.Sprintf("s3://%s/%s", e.Bucket, prefix) }
