// Package mounttest gives each test a store of its own, mounted by the real program, and the real programs
// that use it: PyTorch, safetensors, shell tools. The tests of integration/ share it. It knows the command
// line and the mount, and nothing of what is inside.
//
// It needs /dev/fuse and fusermount3, and a Python that has torch (scripts/setup makes one, CKPTFS_PYTHON
// names another). What cannot run is skipped with a reason; with CI=true it fails instead.
package mounttest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ckptfs/integration/daemon"
)

// Bin is the program under test, built by Main unless CKPTFS_BIN names a built one.
var Bin string

// Main is the TestMain of a package of tests: it builds the program, runs the tests and returns the exit
// status.
func Main(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		return m.Run()
	}
	defer stopPython()
	if Bin = os.Getenv("CKPTFS_BIN"); Bin != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "ckptfs-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Another user runs it, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	Bin = filepath.Join(dir, "ckptfs")
	if err := daemon.Build(Bin, ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// BuildWith builds the program with tags, for one test.
func BuildWith(t *testing.T, tags string) (bin string) {
	t.Helper()
	bin = filepath.Join(t.TempDir(), "ckptfs")
	if err := daemon.Build(bin, tags); err != nil {
		t.Fatal(err)
	}
	return bin
}

// Missing skips the test, or fails it where everything is said to be there.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// NeedFUSE skips the test with -short, and where nothing can be mounted.
func NeedFUSE(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no mounts")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		Missing(t, "no /dev/fuse here (modprobe fuse, or a container started with --device /dev/fuse)")
	}
	if _, err := exec.LookPath("fusermount3"); err != nil {
		Missing(t, "no fusermount3 here (apt-get install fuse3)")
	}
}

// NeedRoot skips the test unless it runs as root; why says what root is needed for.
func NeedRoot(t *testing.T, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root: %s", why)
	}
}
