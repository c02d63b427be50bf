package posix

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ckptfs/integration/mounttest"
)

// The suites are other people's programs, run on the mount and, where that says something, on a plain folder.
// They are small here; with CKPTFS_POSIX_FULL=1 (make posix) they have their full sizes.
func full() bool { return os.Getenv("CKPTFS_POSIX_FULL") != "" }

// sized is small, or large when the suites are to be run in full.
func sized[T any](small, large T) T {
	if full() {
		return large
	}
	return small
}

// suiteTool finds a suite's program, in the path or where scripts/setup-posix puts it, or skips the test
// (fails where CI=true).
func suiteTool(t *testing.T, name string) string {
	t.Helper()
	mounttest.NeedFUSE(t)
	cache, err := os.UserCacheDir() // as the script has it: XDG_CACHE_HOME or ~/.cache
	if err == nil {
		p := filepath.Join(cache, "ckptfs", "tools", "bin", name)
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	p, err := exec.LookPath(name)
	if err != nil {
		mounttest.Missing(t, "no %s here (scripts/setup-posix installs it)", name)
	}
	return p
}

// suiteRun runs a program and returns what it printed. It is killed when it does not end.
func suiteRun(t *testing.T, dir string, patience time.Duration, program string,
	args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done after %v: %w", patience, err)
	}
	return string(out), err
}

// suiteMount is mounttest.New for a suite, which may take longer than a test.
func suiteMount(t *testing.T, flags ...string) *mounttest.Mount {
	t.Helper()
	dir, err := os.MkdirTemp("", "ck-") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := mounttest.PrepareFor(t, dir, sized(mounttest.MaxLife, 2*time.Hour), flags...)
	m.Must(os.Chmod(dir, 0o755)) // suites become other users
	m.Must(m.Start())
	return m
}

// plainFolder is a folder beside the store, on the same disk.
func plainFolder(m *mounttest.Mount) string {
	m.T.Helper()
	p := filepath.Join(filepath.Dir(m.Store), "plain")
	m.Must(os.MkdirAll(p, 0o755))
	return p
}

// churn packs, evicts and hydrates all the time, until the returned function is called. It sees to it that at
// least one round was done.
func churn(m *mounttest.Mount) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	first := make(chan struct{})
	go func() {
		defer wg.Done()
		for i := 0; ; i++ {
			// Each may be refused, as when a file is open for writing or has just gone.
			_, _ = m.CLI("sync", m.Dir)
			_, _ = m.CLI("evict", m.Dir)
			if i%3 == 2 {
				_, _ = m.CLI("hydrate", m.Dir)
			}
			if i == 0 {
				close(first)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	return func() {
		<-first
		close(done)
		wg.Wait()
	}
}

// tail is the end of a long output.
func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
