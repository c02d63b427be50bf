package tree

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
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

// A process that cannot keep the file, as on a full disk, leaves no note of the one before behind it, and one
// whose file cannot be written takes its own away.
func TestNoteNotKept(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, TreeDir), 0o700); err != nil {
		t.Fatal(err)
	}
	note := cas.Sum([]byte("all"))
	openWriting(t, dir, false, false).Settle(note)
	block := filepath.Join(dir, WritingFile+".new") // as if there were no room for it
	if err := os.MkdirAll(filepath.Join(block, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := disk.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	w, err := OpenWriting(d, false, false)
	if err == nil || w.Was != note {
		t.Fatalf("%v, %v", w.Was, err)
	}
	w.Unsettle() // and something is changed
	if err := os.RemoveAll(block); err != nil {
		t.Fatal(err)
	}
	if w = openWriting(t, dir, false, false); !w.Was.IsZero() {
		t.Error("a note stays that could not be taken away")
	}
	w.Settle(note)
	if err := unix.Mprotect(w.m, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	w.Unsettle()
	if w = openWriting(t, dir, false, false); !w.Was.IsZero() {
		t.Error("a note stays that the disk had no room to change")
	}
}
