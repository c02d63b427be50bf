package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/procs"
)

// realDir is a fresh folder whose name holds no symlink.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func makeFile(t *testing.T, path, content string) {
	t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

// opened is Open of a folder on whatever device it is.
func opened(t *testing.T, dir string) *os.Root {
	t.Helper()
	run, err := Open(dir, deviceAt(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	return run
}

func deviceAt(t *testing.T, dir string) procs.Device {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	return procs.Device{Major: int(unix.Major(st.Dev)), Minor: int(unix.Minor(st.Dev))}
}

// A run whose folder is replaced by a link loses its own steps, and nobody else's.
func TestRemoveStepOfSwappedRun(t *testing.T) {
	base := realDir(t)
	mine, moved := filepath.Join(base, "mine"), filepath.Join(base, "moved")
	others := filepath.Join(base, "others")
	left := Forgotten + "0123456789abcdef"
	for _, dir := range []string{mine, others} {
		makeFile(t, filepath.Join(dir, "1/model.pt"), "x")
		makeFile(t, filepath.Join(dir, left, "model.pt"), "x")
	}
	makeFile(t, filepath.Join(others, "deep/1/model.pt"), "x")
	if err := os.Symlink(filepath.Join(others, "deep"), filepath.Join(mine, "1/link")); err != nil {
		t.Fatal(err)
	}
	run := opened(t, mine)
	if err := errors.Join(os.Rename(mine, moved), os.Symlink(others, mine)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(RemoveStep(run, "1"), RemoveLeft(run)); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(moved); err != nil || len(names) != 0 {
		t.Errorf("left in the run: %v, %v", names, err)
	}
	for _, name := range []string{"1/model.pt", left + "/model.pt", "deep/1/model.pt"} {
		if _, err := os.Stat(filepath.Join(others, name)); err != nil {
			t.Error(err)
		}
	}
	if run, err := Open(mine, deviceAt(t, others)); err == nil {
		run.Close()
		t.Error("a link is opened as a run")
	}
	if run, err := Open(others, procs.Device{Major: 1, Minor: 2}); err == nil {
		run.Close()
		t.Error("a folder on another device is opened as a run")
	}
}

func TestRemoveStep(t *testing.T) {
	dir := realDir(t)
	for name, content := range map[string]string{"9/deep/model.pt": "y", "10/model.pt": "x", "notes.txt": "n",
		Forgotten + "0123456789abcdef/model.pt": "left", Forgotten + "notes/mine": "kept"} {
		makeFile(t, filepath.Join(dir, name), content)
	}
	run := opened(t, dir)
	if err := RemoveStep(run, "9"); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("s", 255)
	makeFile(t, filepath.Join(dir, long, "model.pt"), "z")
	if err := RemoveStep(run, long); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"epoch=1.ckpt", Forgotten + "fedcba9876543210"} {
		makeFile(t, filepath.Join(dir, name), "f")
	}
	if err := RemoveStep(run, "epoch=1.ckpt"); err != nil {
		t.Fatal(err)
	}
	if err := RemoveLeft(run); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 || left[0].Name() != Forgotten+"notes" || left[1].Name() != "10" ||
		left[2].Name() != "notes.txt" {
		t.Errorf("%q", left)
	}
}
