package killtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

const where = "KILLTEST_DIR"

// A child that makes three files is killed before each, and after the last one.
func TestRun(t *testing.T) {
	if dir := os.Getenv(where); dir != "" {
		child(dir)
	}
	for n := range 4 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^TestRun$")
		cmd.Env = append(os.Environ(), where+"="+dir)
		changes, killed, err := Run(cmd, n)
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		if err != nil || killed != (n < 3) || len(changes) != min(n+1, 3) {
			t.Fatalf("%d: %v, %v, %v", n, changes, killed, err)
		}
		if made, err := os.ReadDir(dir); len(made) != n || err != nil {
			t.Errorf("%d: %v, %v", n, made, err)
		}
		last := len(changes) - 1
		if want := "mkdir " + filepath.Join(dir, fmt.Sprint(last)); changes[last].String() != want {
			t.Errorf("%d: %v, want %s", n, changes[last], want)
		}
	}
}

func child(dir string) {
	if err := Watch(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := range 3 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o700); err != nil {
			os.Exit(1)
		}
	}
	unix.Kill(os.Getpid(), unix.SIGKILL)
}
