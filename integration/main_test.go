// Package integration drives the real program through real mounts with real programs: PyTorch, safetensors,
// shell tools. It knows the command line and the mount, and nothing of what is inside.
//
// It needs /dev/fuse and fusermount3, and a Python that has torch (scripts/setup makes one, CKPTFS_PYTHON names
// another). What cannot run is skipped with a word; with CI=true it fails instead.
package integration

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ckptfsBin is the program under test, built by TestMain unless CKPTFS_BIN names a built one.
var Bin string

func TestMain(m *testing.M) {
	flag.Parse()
	if dir := os.Getenv(posixChildEnv); dir != "" {
		os.Exit(posixChild(dir))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
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
	build := exec.Command("go", "build", "-o", Bin, "ckptfs/cmd/ckptfs")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building ckptfs: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// missing skips the test, or fails it where everything is said to be there.
func Missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

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

func NeedRoot(t *testing.T, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root: %s", why)
	}
}
