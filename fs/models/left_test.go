package models

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/fs/steps"
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
		prints: map[steps.Print]bool{{7}: true, {2, 1}: true}}
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
