// Package reader tests scripts/python/ckptfs/reader.py, which reads a store without ckptfs: that it reads
// every codec, and every file as a mount shows it.
package reader

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ckptfs/integration/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m)) }

const program = "../../scripts/python/ckptfs/reader.py"

// interpreter is a Python of 3.11 or later, of which no package but the standard library is used.
func interpreter(t *testing.T) string {
	t.Helper()
	name := os.Getenv("CKPTFS_PYTHON")
	if name == "" {
		name = "python3"
	}
	if err := exec.Command(name, "-c", "import sys; sys.exit(sys.version_info < (3, 11))").Run(); err != nil {
		mounttest.Missing(t, "%s is no Python of 3.11 or later: %v", name, err)
	}
	return name
}

// python runs a program, without what is installed beside the standard library.
func python(t *testing.T, program string, args ...string) (out, said []byte, code int) {
	t.Helper()
	path, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-I", "-S", "-B", path}, args...)
	cmd := exec.CommandContext(t.Context(), interpreter(t), args...)
	out, err = cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		said = exit.Stderr
	}
	return out, said, cmd.ProcessState.ExitCode()
}

// read runs the reader, which has to succeed.
func read(t *testing.T, args ...string) []byte {
	t.Helper()
	out, said, code := python(t, program, args...)
	if code != 0 {
		t.Fatalf("reader.py %q: exit %d: %s", args, code, said)
	}
	return out
}
