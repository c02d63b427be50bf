package tree

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// A store is at home where it was vouched for, and no copy of it is.
func TestHome(t *testing.T) {
	dir := t.TempDir()
	mk := func(dir string) *disk.Folder {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, SegmentsDir), 0o700); err != nil {
			t.Fatal(err)
		}
		d, err := disk.OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	home := func(d *disk.Folder, set bool) bool {
		t.Helper()
		l, err := Acquire(d, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release(true)
		is := l.AtHome(d)
		if set {
			if err := l.SetHome(d); err != nil || !l.AtHome(d) {
				t.Fatal("not at home", err)
			}
		}
		return is
	}
	a := mk(filepath.Join(dir, "a"))
	if home(a, false) || home(a, true) || !home(a, false) {
		t.Error("wrong of a new store")
	}
	b := mk(filepath.Join(dir, "b"))
	line, err := os.ReadFile(a.Join(LockFile))
	if err == nil {
		err = os.WriteFile(b.Join(LockFile), line, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if home(b, false) {
		t.Error("a copy is at home")
	}
	if err := os.Rename(a.Path(), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	a = mk(filepath.Join(dir, "moved"))
	l, err := AcquireShared(a)
	if err != nil {
		t.Fatal(err)
	}
	if !l.AtHome(a) {
		t.Error("a store that was moved is not at home")
	}
	if err := l.SetHome(a); err != nil {
		t.Error(err)
	}
	l.Release(true)
	// A segments folder that was put in the place of the other.
	if err := os.Rename(a.Join(SegmentsDir), a.Join("was")); err != nil {
		t.Fatal(err)
	}
	if a = mk(a.Path()); home(a, false) {
		t.Error("other segments are at home")
	}
}

// What a process leaves word of is known to the next one, if it ended in order, and the store lies where it
// lay.
func TestKnows(t *testing.T) {
	dir := t.TempDir()
	said := cas.Sum([]byte("said"))
	open := func(name string) (*disk.Folder, *Lock) {
		t.Helper()
		d, err := disk.OpenFolder(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		l, err := Acquire(d, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return d, l
	}
	for _, name := range []string{"a", "b"} {
		if err := os.MkdirAll(filepath.Join(dir, name, SegmentsDir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct{ leave, clean, knows bool }{
		{true, true, false}, {true, false, true}, {true, true, false}, {false, true, true},
		{true, true, false},
	} {
		d, l := open("a")
		if l.Knows(d, said) != c.knows || l.Knows(d, cas.Sum(nil)) {
			t.Errorf("process %d: want %v", i, c.knows)
		}
		if c.leave {
			l.Leave(d, said)
		}
		if err := l.Release(c.clean); err != nil {
			t.Fatal(err)
		}
	}
	line, err := os.ReadFile(filepath.Join(dir, "a", LockFile))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "b", LockFile), line, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, l := open("b")
	defer l.Release(true)
	if l.Knows(d, said) {
		t.Error("a copy knows what was said of the other")
	}
}
