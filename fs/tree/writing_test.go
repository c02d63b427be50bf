package tree

import (
	"os"
	"path/filepath"
	"testing"
)

func openWriting(t *testing.T, dir string, clean, readOnly bool) *Writing {
	t.Helper()
	w, err := OpenWriting(folder(t, dir), clean, readOnly)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func TestWriting(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, TreeDir), 0o700); err != nil {
		t.Fatal(err)
	}
	state := func(w *Writing, ino uint64, open, torn bool) {
		t.Helper()
		if o, s := w.State(ino); o != open || s != torn {
			t.Errorf("%d: open %v, torn %v; want %v, %v", ino, o, s, open, torn)
		}
	}
	w := openWriting(t, dir, true, false)
	for ino := uint64(1); ino <= 5; ino++ {
		w.Begin(ino)
	}
	w.End(2, false)
	w.Begin(6) // in the place of 2
	w.End(4, false)
	w.End(77, false)
	state(w, 1, true, false)
	state(w, 2, false, false)

	// Killed: what was open is torn, also for a mount that only reads, and after an end in order of the next.
	for _, readOnly := range []bool{true, false} {
		r := openWriting(t, dir, false, readOnly)
		for ino, torn := range map[uint64]bool{1: true, 2: false, 3: true, 4: false, 5: true,
			6: true, 7: false} {
			state(r, ino, false, torn)
		}
	}
	w = openWriting(t, dir, true, false)
	if w.Torn() != 4 {
		t.Errorf("%d torn", w.Torn())
	}
	w.Begin(1) // written again
	state(w, 1, true, false)
	w.End(1, false)
	w.Gone(3)
	w.Begin(5)
	w = openWriting(t, dir, false, false)
	state(w, 1, false, false)
	state(w, 3, false, false)
	state(w, 5, false, true)
	state(w, 6, false, true)
}

// More files than there are slots are followed as long as the process lives.
func TestWritingFull(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, TreeDir), 0o700); err != nil {
		t.Fatal(err)
	}
	w := openWriting(t, dir, true, false)
	for ino := range uint64(writingSlots + 100) {
		w.Begin(ino + 1)
	}
	if open, _ := w.State(writingSlots + 50); !open {
		t.Error("a file without a slot is not known")
	}
	for ino := range uint64(writingSlots + 100) {
		w.End(ino+1, false)
	}
	w.Begin(1)
	if w = openWriting(t, dir, false, false); w.Torn() != 1 {
		t.Errorf("%d torn, want 1", w.Torn())
	}
}

// What belongs to another tree, is cut short or is no such file says nothing.
func TestWritingDoubted(t *testing.T) {
	for _, bad := range []string{"", "ckptopen", string(make([]byte, 128)),
		"ckptopen" + string(make([]byte, 56)) + "aaaaaaaa"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, TreeDir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, WritingFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if w := openWriting(t, dir, false, false); w.Torn() != 0 {
			t.Errorf("%q: %d torn", bad, w.Torn())
		}
	}
}
