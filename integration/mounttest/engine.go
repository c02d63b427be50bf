package mounttest

import (
	"errors"
	"path/filepath"
	"testing"

	"ckptfs/integration/engine"
)

// Engine is an object store for a test.
type Engine struct {
	*engine.Engine
	t testing.TB
}

// StartEngine runs versitygw until the test ends, and sets the credentials in the environment. Without one
// the test is skipped (fails where CI=true).
func StartEngine(t testing.TB) *Engine {
	t.Helper()
	for name, value := range engine.Environ(filepath.Join(t.TempDir(), "none")) {
		t.Setenv(name, value)
	}
	e, err := engine.New(t.TempDir())
	if errors.Is(err, engine.ErrMissing) {
		Missing(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return &Engine{e, t}
}

// Start runs the engine again on what is there, after Kill.
func (e *Engine) Start() {
	e.t.Helper()
	if err := e.Engine.Start(); err != nil {
		e.t.Fatal(err)
	}
}

// Join has the store of a mount join a remote, below a prefix of the engine's bucket. The mount uses it from
// then on.
func (m *Mount) Join(e *Engine, prefix, writer string) {
	m.T.Helper()
	m.Run("remote", "add", e.URL(prefix), m.Dir, "--endpoint", e.Endpoint, "--writer", writer)
}
