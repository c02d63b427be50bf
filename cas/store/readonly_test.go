package store

import (
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
)

// A store that was closed in order can be read without changing it; one that was not says so.
func TestReadOnlyStore(t *testing.T) {
	m, x := newMem(), newIndex()
	s := open(t, m, x, Options{})
	b := s.Begin()
	put(t, b, cas.Chunk, chunk(1))
	commit(t, b)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ro := func() (*Store, error) {
		return Open(disk.ReadOnly{FS: m}, dir, storeID, x, Options{ReadOnly: true})
	}
	commits := x.commits
	s, err := ro()
	if err != nil {
		t.Fatal(err)
	}
	wantGet(t, s, chunk(1))
	b = s.Begin()
	if _, err := b.Put(cas.Chunk, cas.Sum(chunk(2)), chunk(2), codec.Hint{}); err == nil {
		t.Error("a chunk was stored in a store that is only read")
	}
	b.Release()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if x.commits != commits {
		t.Error("the index was written")
	}

	// Not closed: a later index has not seen the records.
	old := x.clone()
	s = open(t, m, x, Options{})
	b = s.Begin()
	put(t, b, cas.Chunk, chunk(3))
	commit(t, b)
	x = old
	_, err = ro()
	wantErr(t, err, ErrNeedsRecovery)
}
