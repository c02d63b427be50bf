package artifacts

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"

	"ckptfs/cas"
	"ckptfs/index/chunks"
)

func TestArtifacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	var index *chunks.DB
	open := func() *Table {
		var err error
		if index, err = chunks.Open(path, chunks.Options{NoSync: true}); err != nil {
			t.Fatal(err)
		}
		return New(index.Bucket(BucketName))
	}
	d := open()
	id := func(n byte) (h [64]byte) { h[0], h[63] = n, n; return h }
	m := func(n byte) (h cas.Hash) { h[31] = n; return h }
	all := []Artifact{{id(1), m(1), "a"}, {id(1), m(2), "b/ü"}, {id(2), m(3), ""}}
	for i := range all {
		if err := d.Put(&all[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := index.Close(); err != nil {
		t.Fatal(err)
	}
	d = open()
	defer func() { index.Close() }()
	list := func(id *[64]byte) (out []Artifact) {
		if err := d.Each(id, func(a Artifact) error { out = append(out, a); return nil }); err != nil {
			t.Error(err)
		}
		return out
	}
	one, three := id(1), id(3)
	for what, got := range map[string][2][]Artifact{
		"all": {list(nil), all}, "one": {list(&one), all[:2]}, "none": {list(&three), nil},
	} {
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s: %v, want %v", what, got[0], got[1])
		}
	}
	if got, ok, err := d.Of(m(2)); got != id(1) || !ok || err != nil {
		t.Error(got, ok, err)
	}
	if _, ok, err := d.Of(m(9)); ok || err != nil {
		t.Error(ok, err)
	}
	if err := d.Each(nil, func(Artifact) error { return fmt.Errorf("stop") }); err == nil {
		t.Error("f's error is lost")
	}
	if err := d.Drop(all[:1]); err != nil || len(list(&one)) != 1 {
		t.Error(err, list(&one))
	}
	for _, n := range []byte{5, 6} {
		if err := d.PutNone(m(n)); err != nil {
			t.Error(err)
		}
	}
	for n, want := range map[byte]bool{1: false, 2: true, 5: true, 9: false} {
		if known, err := d.Known(m(n)); known != want || err != nil {
			t.Errorf("manifest %d: %v, %v", n, known, err)
		}
	}
	if _, ok, err := d.Of(m(5)); ok || err != nil {
		t.Error("an id that is none:", ok, err)
	}
	none := func() (out []cas.Hash) {
		if err := d.EachNone(func(m cas.Hash) error { out = append(out, m); return nil }); err != nil {
			t.Error(err)
		}
		return out
	}
	if got := none(); !slices.Equal(got, []cas.Hash{m(5), m(6)}) {
		t.Error(got)
	}
	if err := d.Drop([]Artifact{{Manifest: m(5)}}); err != nil || !slices.Equal(none(), []cas.Hash{m(6)}) {
		t.Error(err, none())
	}
	// What is damaged is not known.
	if err := index.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		of, by := all[1].keys()
		b := tx.Bucket([]byte(BucketName))
		if err := b.Put(of, append(make([]byte, 67), 1)); err != nil {
			return err
		}
		return b.Put(by, nil)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	d = open()
	if known, err := d.Known(m(2)); known || err != nil {
		t.Error(known, err)
	}
	if _, ok, err := d.Of(m(2)); ok || err != nil || len(list(&one)) != 0 {
		t.Error(ok, err, list(&one))
	}
	if err := index.Check(); err != nil {
		t.Error(err)
	}
}
