package tree

import (
	"os"
	"path/filepath"
	"testing"

	"ckptfs/cas"
)

// What was noted is there for the next process of the same tree until it is taken away, and so are writers.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, TreeDir)
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	want := func(when string, note cas.Hash) *Writing {
		t.Helper()
		w := openWriting(t, dir, false, false)
		if w.Was != note {
			t.Errorf("%s: %v, want %v", when, w.Was, note)
		}
		if _, torn := w.State(7); !torn {
			t.Errorf("%s: the writer is not known", when)
		}
		return w
	}
	note := cas.Sum([]byte("all"))
	w := openWriting(t, dir, true, false)
	w.Begin(7)
	w.Settle(note)
	want("noted", note)
	w = want("noted, and nothing done", note)
	w.Unsettle()
	w = want("taken away", cas.Hash{})
	w.Unsettle()
	w.Settle(note)
	want("noted again", note)

	// The name of another tree.
	if err := os.Rename(at, at+"-was"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if w = openWriting(t, dir, false, false); !w.Was.IsZero() {
		t.Error("another tree: noted")
	}
}
