package tree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newContent(t *testing.T) (*Content, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := Create(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	return NewContent(dir), dir
}

func put(t *testing.T, f *os.File, err error, data string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestContent(t *testing.T) {
	c, dir := newContent(t)
	id := NewID()
	if _, err := c.Open(id, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of nothing: %v", err)
	}
	f, err := c.Create(id)
	put(t, f, err, "bytes")
	if want := filepath.Join(dir, "content", id.String()[:2], id.String()); c.Path(id) != want {
		t.Errorf("path %s, want %s", c.Path(id), want)
	}
	if _, err := c.Create(id); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made twice: %v", err)
	}
	if got, err := os.ReadFile(c.Path(id)); err != nil || string(got) != "bytes" {
		t.Errorf("%q, %v", got, err)
	}
	r, err := c.Open(id, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.WriteString("x"); err == nil {
		t.Error("written by a descriptor for reading")
	}
	var st unix.Stat_t
	if err := c.Stat(id, &st); err != nil || st.Size != 5 || st.Mode&0o777 != 0o600 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := c.SyncName(id); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := c.Remove(id); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if err := c.Stat(id, &st); err != unix.ENOENT {
		t.Errorf("stat of nothing: %v", err)
	}
}

func TestContentParts(t *testing.T) {
	c, _ := newContent(t)
	whole, half := NewID(), NewID()
	f, err := c.CreatePart(whole)
	put(t, f, err, "longer than the second try")
	f, err = c.CreatePart(whole) // begun anew
	put(t, f, err, "whole")
	if err := c.Publish(whole); err != nil {
		t.Fatal(err)
	}
	f, err = c.CreatePart(half)
	put(t, f, err, "half")
	dropped := NewID()
	f, err = c.CreatePart(dropped)
	put(t, f, err, "half")
	c.DropPart(dropped)
	c.DropPart(dropped)

	list := func() (ids []ID, odd []string) {
		t.Helper()
		if err := c.Each(func(id ID, _ *unix.Stat_t) error { ids = append(ids, id); return nil },
			func(path string) error { odd = append(odd, path); return nil }); err != nil {
			t.Fatal(err)
		}
		return ids, odd
	}
	if ids, odd := list(); len(ids) != 1 || ids[0] != whole || len(odd) != 1 || odd[0] != c.Path(half)+".part" {
		t.Errorf("%v, %v", ids, odd)
	}
	if err := c.DropParts(); err != nil {
		t.Fatal(err)
	}
	if ids, odd := list(); len(ids) != 1 || len(odd) != 0 {
		t.Errorf("%v, %v", ids, odd)
	}
	if got, err := os.ReadFile(c.Path(whole)); err != nil || string(got) != "whole" {
		t.Errorf("%q, %v", got, err)
	}
}

// What is none of ours is passed over, and stays.
func TestContentOdd(t *testing.T) {
	c, dir := newContent(t)
	a, b := NewID(), NewID()
	f, err := c.Create(a)
	put(t, f, err, "a")
	misplaced := filepath.Join(dir, "content", "00", b.String())
	if b[0] == 0 {
		misplaced = filepath.Join(dir, "content", "01", b.String())
	}
	stray := filepath.Join(dir, "content", ".probe1")
	for _, p := range []string{misplaced, stray, filepath.Join(dir, "content", "ff", "text"), c.Path(a) + "00"} {
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var ids []ID
	if err := c.Each(func(id ID, _ *unix.Stat_t) error { ids = append(ids, id); return nil }, nil); err != nil {
		t.Fatal(err)
	}
	if len(ids) != 1 || ids[0] != a {
		t.Errorf("%v", ids)
	}
	if err := c.DropParts(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(misplaced); err != nil {
		t.Error(err)
	}
	stop := errors.New("stop")
	if err := c.Each(func(ID, *unix.Stat_t) error { return stop }, nil); err != stop {
		t.Errorf("%v", err)
	}
}

func TestContentUnnamed(t *testing.T) {
	c, _ := newContent(t)
	id := NewID()
	f, err := c.CreateUnnamed(id)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("bytes")
	var st unix.Stat_t
	if err := c.Stat(id, &st); err != unix.ENOENT {
		t.Errorf("it has a name: %v", err)
	}
	if err := c.Name(f, id); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(c.Path(id)); err != nil || string(got) != "bytes" {
		t.Errorf("%q, %v", got, err)
	}
	if err := c.Name(f, id); !errors.Is(err, unix.EEXIST) {
		t.Errorf("named twice: %v", err)
	}
}

func TestNewID(t *testing.T) {
	seen := map[ID]bool{}
	for range 1000 {
		id := NewID()
		if id.IsZero() || seen[id] || len(id.String()) != 32 {
			t.Fatalf("%v", id)
		}
		seen[id] = true
		if back, err := parseID(id.String()); err != nil || back != id {
			t.Fatalf("%v, %v", back, err)
		}
	}
	for _, bad := range []string{"", "00", id(1).String() + ".part", "zz" + id(1).String()[2:]} {
		if _, err := parseID(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
