package models

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/index/ledger"
	"ckptfs/index/lineage"
)

// What encodeLeft writes is found by path and by number, and nothing is read of what is not whole.
func TestLeft(t *testing.T) {
	live := map[uint64]*ledger.Entry{}
	for i, p := range []string{
		"runs/b/1/m", "runs/a/1/m", "runs/a/1-x/m", "runs/a/1/sub/m", "runs/a/1", "runs/a/10/m",
	} {
		e := &ledger.Entry{Model: lineage.Model{Seq: uint64(10 + i)}, Version: 1, Ino: uint64(i + 1), Path: p}
		live[e.Ino] = e
	}
	at := asOf{epoch: 5, problems: 3, folders: steps.Folders{3: 1 << 60, 2: -1},
		prints: map[steps.Print][]byte{{7}: []byte("says"), {2, 1}: {}}}
	p, h, err := encodeLeft([]byte("index"), live, at)
	if err != nil {
		t.Fatal(err)
	}
	index, left, err := decodeLeft(p)
	if err != nil || string(index) != "index" || !reflect.DeepEqual(left.asOf, at) ||
		h != cas.Sum(p[leftHeader:]) {
		t.Fatalf("%q, %v", index, err)
	}
	for at, want := range map[string]string{
		"runs/a/1": "runs/a/1 runs/a/1/m runs/a/1/sub/m", "runs/a/1/m": "runs/a/1/m", "runs/b": "runs/b/1/m",
		"runs/a/1-x": "runs/a/1-x/m", "runs/c": "", "runs/a/2": "",
	} {
		var got []string
		for _, e := range left.at(at) {
			got = append(got, e.Path)
			if e.Seq != live[e.Ino].Seq || left.get(e.Seq).Path != e.Path {
				t.Errorf("%s is %d", e.Path, e.Seq)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("at %s: %q, want %s", at, got, want)
		}
	}
	if left.get(7) != nil {
		t.Error("a model that is none")
	}
	for i := range p {
		q := slices.Clone(p)
		q[i] ^= 4
		if _, _, err := decodeLeft(q); !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) {
			t.Fatal(fmt.Sprintf("byte %d is another", i), err)
		}
		if _, _, err := decodeLeft(p[:i]); !errors.Is(err, cas.ErrCorrupt) {
			t.Fatal(fmt.Sprintf("%d bytes", i), err)
		}
	}
}

// recorded is a model in a step, "run/step", as its record says.
func recorded(t *testing.T, seq uint64, step string, size int64) *ledger.Entry {
	t.Helper()
	e := &ledger.Entry{Model: lineage.Model{Seq: seq}, Version: 1, Ino: seq, Size: size,
		Path: "runs/" + step + "/m"}
	p, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if e, err = ledger.Decode(p); err != nil {
		t.Fatal(err)
	}
	e.Record = cas.Sum(p)
	return e
}

// Others are the steps of which the ledger has another model, or one more or less.
func TestOthers(t *testing.T) {
	same := recorded(t, 1, "a/1", 1)
	live := map[uint64]*ledger.Entry{}
	for _, e := range []*ledger.Entry{same, recorded(t, 2, "a/2", 1), recorded(t, 3, "a/3", 1)} {
		live[e.Ino] = e
	}
	p, _, err := encodeLeft(nil, live, asOf{})
	if err != nil {
		t.Fatal(err)
	}
	_, left, err := decodeLeft(p)
	if err != nil {
		t.Fatal(err)
	}
	book, _ := ledger.New([]*ledger.Entry{same, recorded(t, 2, "a/2", 2), recorded(t, 4, "a/4", 1)})
	got := left.others(book)
	if want := map[string]bool{"a/2": true, "a/3": true, "a/4": true}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What was left before the host went down is not read, unless it is known to be all.
func TestLeftEpoch(t *testing.T) {
	dir := t.TempDir()
	folder, err := disk.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	p, h, err := encodeLeft([]byte("index"), nil, asOf{epoch: 5})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, tree.CatalogueFile), p, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		epoch       uint32
		known, read bool
	}{{5, false, true}, {5, true, true}, {6, true, true}, {6, false, false}} {
		m := New(Options{Folder: folder, Epoch: func() uint32 { return c.epoch },
			Known: func(is cas.Hash) bool { return c.known && is == h }})
		m.mu.Lock()
		_, left, all := m.readLeftLocked()
		m.mu.Unlock()
		if (left != nil) != c.read || all != c.known {
			t.Errorf("%+v: read %v, all %v", c, left != nil, all)
		}
	}
}
