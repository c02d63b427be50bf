package removals

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas/disk"
)

func openLog(t *testing.T, dir string) *Log {
	t.Helper()
	d, err := disk.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	in, err := Open(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		d.Close()
	})
	return in
}

func add(t *testing.T, in *Log, paths ...string) {
	t.Helper()
	for _, p := range paths {
		done, err := in.Add(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := done(true); err != nil {
			t.Fatal(err)
		}
	}
}

func holds(t *testing.T, what string, in *Log, want ...string) {
	t.Helper()
	if got := in.All(); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestIntents(t *testing.T) {
	dir := t.TempDir()
	in := openLog(t, dir)
	holds(t, "new", in)
	add(t, in, "runs/a/1", "runs/b", "runs/c")
	holds(t, "three", in, "runs/a/1", "runs/b", "runs/c")
	if err := in.Cut(1); err != nil {
		t.Fatal(err)
	}
	add(t, in, "runs/d")
	again := openLog(t, dir)
	holds(t, "opened again", again, "runs/b", "runs/c", "runs/d")
	if err := again.Cut(3); err != nil {
		t.Fatal(err)
	}
	holds(t, "all done", openLog(t, dir))
}

// What is under way when a push looks is not forgotten by it, and nothing behind it is.
func TestIntentUnderWay(t *testing.T) {
	in := openLog(t, t.TempDir())
	add(t, in, "runs/a")
	done, err := in.Add("runs/b")
	if err != nil {
		t.Fatal(err)
	}
	add(t, in, "runs/c")
	holds(t, "while b is removed", in, "runs/a")
	failed, err := in.Add("runs/d")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(done(true), failed(false)); err != nil {
		t.Fatal(err)
	}
	holds(t, "then", in, "runs/a", "runs/b", "runs/c")
}

// Wherever a kill or a power cut tears the log, the whole notes before are read, and later ones go behind
// them.
func TestIntentsTorn(t *testing.T) {
	dir := t.TempDir()
	add(t, openLog(t, dir), "runs/a", "runs/bb")
	whole, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	first := len(magic) + head + len("runs/a")
	for n := range whole {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		var want []string
		if n >= first {
			want = []string{"runs/a"}
		}
		in := openLog(t, dir)
		holds(t, "torn", in, want...)
		add(t, in, "runs/d")
		holds(t, "and on", openLog(t, dir), append(want, "runs/d")...)
	}
	flipped := slices.Clone(whole)
	flipped[first+head] ^= 1
	if err := os.WriteFile(filepath.Join(dir, File), flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	holds(t, "a flipped bit", openLog(t, dir), "runs/a")
}

func TestIntentsForeign(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, File), []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := disk.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := Open(d); err == nil || !strings.Contains(err.Error(), File) {
		t.Errorf("%v", err)
	}
}
