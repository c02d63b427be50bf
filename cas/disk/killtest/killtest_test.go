package killtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const where = "KILLTEST_DIR"

// again is a command that runs a test once more, in a process that is to work in dir.
func again(test, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), where+"="+dir)
	return cmd
}

// A child that makes changes is killed before each, and once it is done.
func TestRun(t *testing.T) {
	if dir := os.Getenv(where); dir != "" {
		child(dir)
	}
	all := []string{"mkdir %s/d", "open %s/a", "write %s/a", "open b", "rename %s/c"}
	for n := range len(all) + 1 {
		dir := t.TempDir()
		var want []string
		for _, c := range all[:min(n+1, len(all))] {
			want = append(want, strings.ReplaceAll(c, "%s", dir))
		}
		changes, killed, err := Run(again("TestRun", dir), n)
		var got []string
		for _, c := range changes {
			got = append(got, c.String())
		}
		if err != nil || killed != (n < len(all)) || !slices.Equal(got, want) {
			t.Fatalf("%d: %v, %v, %v", n, got, killed, err)
		}
		there, err := filepath.Glob(filepath.Join(dir, "?"))
		if names := []int{0, 1, 2, 2, 3, 3}; len(there) != names[n] || err != nil {
			t.Errorf("%d: %v, %v", n, there, err)
		}
	}
}

// A child that makes changes finds that one fails, and goes on.
func TestFail(t *testing.T) {
	if dir := os.Getenv(where); dir != "" {
		if err := Watch(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		err := os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600)
		if !errors.Is(err, unix.ENOSPC) || os.Mkdir(filepath.Join(dir, "d"), 0o700) != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	dir := t.TempDir()
	changes, err := Fail(again("TestFail", dir), func(i int, c Change) unix.Errno {
		if c.Call == "write" {
			return unix.ENOSPC
		}
		return 0
	})
	if err != nil || len(changes) != 3 {
		t.Error(changes, err)
	}
	if p, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || len(p) > 0 {
		t.Errorf("%q, %v", p, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "d")); err != nil {
		t.Error(err)
	}
}

// child makes its changes, with calls between them that are none.
func child(dir string) {
	if err := Watch(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	err := os.Mkdir(filepath.Join(dir, "d"), 0o700)
	if err == nil {
		err = os.WriteFile(a, []byte("a"), 0o600)
	}
	if err == nil {
		_, err = os.ReadFile(a)
	}
	if err == nil {
		err = create(dir, "b")
	}
	if err == nil {
		err = os.Rename(b, c)
	}
	if fmt.Println(err); err != nil {
		os.Exit(1)
	}
	unix.Kill(os.Getpid(), unix.SIGKILL)
}

// create makes a file by openat2(2), and reads it.
func create(dir, name string) error {
	at, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	for _, how := range []unix.OpenHow{
		{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o600}, {Flags: unix.O_RDONLY}} {
		fd, err := unix.Openat2(at, name, &how)
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	return nil
}

// A child that ends before it is watched is an error, with what it said.
func TestNeverWatched(t *testing.T) {
	if os.Getenv(where) != "" {
		fmt.Println("no seccomp here")
		os.Exit(1)
	}
	_, _, err := Run(again("TestNeverWatched", t.TempDir()), 0)
	if err == nil || !strings.Contains(err.Error(), "no seccomp here") {
		t.Error(err)
	}
}
