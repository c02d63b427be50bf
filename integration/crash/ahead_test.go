package crash

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
	"ckptfs/index/chunks"
	"ckptfs/integration/mounttest"
)

// TestWritebackFailsAhead has a disk that loses what the store syncs while it still writes. The kernel tells
// of it once, and not the commit. The commit fails all the same, and what is put again is on the disk.
func TestWritebackFailsAhead(t *testing.T) {
	d := mounttest.NewThinDisk(t, 160)
	id := [16]byte{1}
	db, err := chunks.Open(filepath.Join(t.TempDir(), "index.db"), chunks.Options{StoreID: id})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	dir := filepath.Join(d.Dir, "segments")
	s, err := store.Open(disk.OS{}, dir, id, db, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	save := func(p []byte) error {
		b := s.Begin()
		defer b.Release()
		for c := range slices.Chunk(p, cas.ChunkSize) {
			if _, err := b.Put(cas.Chunk, cas.Sum(c), c, codec.Hint{}); err != nil {
				return err
			}
		}
		return b.Commit()
	}
	first, second := mounttest.Noise(1, 8*mib), mounttest.Noise(2, 50*mib)
	if err := save(first); err != nil {
		t.Fatal(err)
	}
	d.Starve()
	if err := save(second); err == nil {
		t.Error("committed, and on no disk")
	}
	d.Feed()
	if err := save(second); err != nil {
		t.Fatal(err)
	}
	numbers, err := segment.Numbers(disk.OS{}, dir)
	if err != nil || len(numbers) < 2 {
		t.Errorf("segments %v, %v: none was given up", numbers, err)
	}
	for _, n := range numbers {
		d.Drop(segment.Path(dir, n))
	}
	for c := range slices.Chunk(append(first, second...), cas.ChunkSize) {
		if got, err := s.Get(cas.Sum(c), nil); err != nil || !bytes.Equal(got, c) {
			t.Fatal(err)
		}
	}
}
