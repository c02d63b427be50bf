package chunks

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"ckptfs/cas"
)

// keeping has so many lookups made that db keeps what they find.
func keeping(t *testing.T, db *DB, es []cas.Entry) {
	t.Helper()
	for range worthKeeping/len(es) + 2 {
		expect(t, db, es)
	}
	if db.file.lookups.tx == nil {
		t.Fatal("nothing is kept")
	}
}

// What Locate keeps is never older than the last change, and keeps neither a change nor Close from going on.
func TestLookupsFollow(t *testing.T) {
	db := newDB(t)
	db.few = none
	es := entries(1, 300)
	commit := func(es []cas.Entry) {
		t.Helper()
		if err := db.Commit(es, cas.Watermark{Segment: 1}); err != nil {
			t.Fatal(err)
		}
	}
	commit(es[:200])
	keeping(t, db, es[:200])
	commit(es[200:])
	if db.file.lookups.tx != nil {
		t.Error("a transaction is open after a change")
	}
	expect(t, db, es)
	keeping(t, db, es)
	es[0].Segment++
	commit(es[:1])
	expect(t, db, es)
	keeping(t, db, es)
	if err := db.Remove(es[:1]); err != nil {
		t.Fatal(err)
	}
	var loc [1]cas.Location
	if err := db.Locate([]cas.Hash{es[0].Hash}, loc[:]); err != nil || loc[0].Segment != 0 {
		t.Errorf("what was removed is at %+v, %v", loc[0], err)
	}
	keeping(t, db, es[1:])
	if err := db.Bucket("other").Write([]Pair{{[]byte("k"), []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	keeping(t, db, es[1:])
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// A value that rots behind the first look at it is met by the next.
func TestLookupsAreChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	db := open(t, path)
	es := entries(1, 100)
	db.few = none
	if err := db.Commit(es, cas.Watermark{Segment: 1}); err != nil {
		t.Fatal(err)
	}
	keeping(t, db, es)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tail := es[7].Hash[prefixLen:keyLen]
	for off := 0; ; off++ { // pages of earlier commits have it, too
		i := bytes.Index(raw[off:], tail)
		if i < 0 {
			break
		}
		off += i
		if _, err := f.WriteAt([]byte{raw[off+tailLen] + 1}, int64(off+tailLen)); err != nil {
			t.Fatal(err)
		}
	}
	var loc [1]cas.Location
	if err := db.Locate([]cas.Hash{es[7].Hash}, loc[:]); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("it is at %+v, %v", loc[0], err)
	}
}

// Lookups, by several at a time, and changes do not wait for each other for ever, and each lookup sees the
// changes that were done before it.
func TestLookupsBesideChanges(t *testing.T) {
	db := newDB(t)
	db.opt.NoSync = true
	db.few = none
	es := entries(1, 2000)
	if err := db.Commit(es, cas.Watermark{Segment: 1}); err != nil {
		t.Fatal(err)
	}
	hashes := make([]cas.Hash, len(es))
	for i := range es {
		hashes[i] = es[i].Hash
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			locs := make([]cas.Location, len(es))
			var last uint32 // segment of the entry that changes
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := db.Locate(hashes, locs); err != nil {
					t.Error(err)
					return
				}
				if locs[3].Segment < last {
					t.Errorf("segment %d after %d", locs[3].Segment, last)
				}
				last = locs[3].Segment
			}
		})
	}
	for i := range uint32(60) {
		es[3].Segment = 1000 + i
		if err := db.Commit(es[3:4], cas.Watermark{Segment: 1}); err != nil {
			t.Fatal(err)
		}
		expect(t, db, es[3:4])
	}
	close(stop)
	readers.Wait()
}
