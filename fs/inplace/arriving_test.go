package inplace

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ckptfs/fs/tree"
)

// A copy that did not end is known by what it is of, and as being made while it is.
func TestCopies(t *testing.T) {
	up := t.TempDir()
	store, dir := filepath.Join(up, "store"), filepath.Join(up, "a folder")
	must(t, os.Mkdir(dir, 0o755))
	d, err := tree.OpenOrCreate(store, false, time.Unix(1, 0))
	must(t, err)
	defer d.Close()
	for to, words := range map[string][]string{
		"":       {"ckptfs", "adopt", "--store", store, dir},
		"/mnt/x": {"ckptfs", "adopt", "--into", "/mnt/x", dir},
	} {
		at, err := NewArriving(d, dir)
		must(t, err)
		at.Note(to)
		must(t, os.MkdirAll(at.Path(), 0o700))
		want := Copy{Path: at.Path(), Dir: dir, To: to, Moving: true}
		if got := Copies(store); len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		must(t, at.Close())
		want.Moving = false
		if got := Copies(store); len(got) != 1 || got[0] != want || !slices.Equal(got[0].Words(store), words) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	must(t, os.RemoveAll(filepath.Join(store, tree.ArrivingDir)))
	if got := Copies(store); got != nil {
		t.Errorf("%+v", got)
	}
}
