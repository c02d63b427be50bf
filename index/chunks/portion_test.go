package chunks

import (
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"ckptfs/cas"
)

// A crash between the transactions of a commit leaves the watermark where it was, and the highest segment as
// high as any entry that is there; the same commit again completes it.
func TestCrashBetweenPortions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	db := open(t, path)
	before := cas.Watermark{Segment: 1, Off: 8}
	if err := db.Commit(entries(1, 10), before); err != nil {
		t.Fatal(err)
	}
	if err := db.Sync(); err != nil {
		t.Fatal(err)
	}
	es := entries(2, 9000) // segments 1 to 3
	db.file.portion = 1000
	transactions := 0
	crash := rewriting{entries: es, change: merge, last: func(*bolt.Tx) error { panic("the last one") }}
	crash.each = func(tx *bolt.Tx) error {
		if transactions++; transactions == 5 {
			return cas.ErrNotFound // any error that is nobody else's
		}
		return raiseHighest(tx.Bucket(bucketMeta), 3)
	}
	if err := db.file.rewrite(crash); err != cas.ErrNotFound {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	db = open(t, path)
	if n := len(all(t, db)); n <= 10 || n >= 9010 {
		t.Errorf("%d entries, want those of some portions", n)
	}
	mark, err := db.Watermark()
	if highest, herr := db.Highest(); err != nil || herr != nil || mark != before || highest != 3 {
		t.Errorf("watermark %v, highest segment %d; %v, %v", mark, highest, err, herr)
	}
	if err := db.Check(); err != nil {
		t.Error(err)
	}
	db.file.portion = 1000
	after := cas.Watermark{Segment: 3, Off: 16}
	if err := db.Commit(es, after); err != nil {
		t.Fatal(err)
	}
	if err := db.Sync(); err != nil {
		t.Fatal(err)
	}
	expect(t, db, append(es, entries(1, 10)...))
	if mark, err := db.Watermark(); err != nil || mark != after {
		t.Error(mark, err)
	}
	if err := db.Remove(es); err != nil {
		t.Fatal(err)
	}
	if n := len(all(t, db)); n != 10 {
		t.Errorf("%d entries are left, want 10", n)
	}
}
