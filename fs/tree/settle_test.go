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
	same := func() bool { return false }
	w.Settle(note, same)
	w.Begin(7)
	w = want("a writer came", cas.Hash{})
	w.Settle(note, func() bool { return true })
	w = want("changed", cas.Hash{})
	w.Settle(note, same)
	want("noted", note)
	w = want("noted, and nothing done", note)
	w.Unsettle()
	w = want("taken away", cas.Hash{})
	w.Unsettle()
	w.Settle(note, same)
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

// A process that cannot write the file, as on a full disk, could not take the note away.
func TestSettledAndNoRoom(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, TreeDir), 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := disk.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	w := openWriting(t, dir, true, false)
	w.Settle(cas.Sum([]byte("all")), func() bool { return false })
	tmp := filepath.Join(dir, WritingFile+".new", "x") // no file can be made there
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err = OpenWriting(d, false, false)
	if err == nil {
		t.Fatal("the file was written")
	}
	w.Unsettle()
	if err := os.RemoveAll(filepath.Dir(tmp)); err != nil {
		t.Fatal(err)
	}
	if w = openWriting(t, dir, false, false); !w.Was.IsZero() {
		t.Error("it is noted still")
	}
	w.Settle(cas.Sum([]byte("all")), func() bool { return false })
	if err := unix.Mprotect(w.m, unix.PROT_READ); err != nil { // as if there were no room to change it
		t.Fatal(err)
	}
	w.Unsettle()
	if w = openWriting(t, dir, false, false); !w.Was.IsZero() {
		t.Error("it is noted still, and the file could not be changed")
	}
}
