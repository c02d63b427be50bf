package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A folder that moves into an open store is packed, and shows its views. Nothing is moved over a name.
func TestTakeIn(t *testing.T) {
	r := newRig(t)
	from := filepath.Join(filepath.Dir(r.dir), "from")
	t.Cleanup(func() { os.RemoveAll(from) })
	fill := func() {
		if err := os.MkdirAll(filepath.Join(from, "0"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, "0", "f"), random(1<<20, 1), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	r.mkdir("runs")
	if err := r.TakeIn(t.Context(), from, "runs/a"); err != nil {
		t.Fatal(err)
	}
	r.sync()
	r.want("runs/a/0/f", both)
	r.evictAll()
	r.same("runs/a/0/f", random(1<<20, 1))
	fill()
	for to, want := range map[string]error{
		"runs/a": unix.EEXIST, "no/a": unix.ENOENT, ".ckptfs/a": unix.EPERM, "": unix.EEXIST,
		"runs/a/0/f/x": unix.ENOTDIR,
	} {
		if err := r.TakeIn(t.Context(), from, to); !errors.Is(err, want) {
			t.Errorf("to %q: %v, want %v", to, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(from, "0", "f")); err != nil {
		t.Error(err)
	}
}
