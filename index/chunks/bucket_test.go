package chunks

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"ckptfs/cas"
)

// A bucket is like a map, whatever of it is late.
func TestBucketModel(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		path := filepath.Join(dir, fmt.Sprint(run))
		db := open(t, path)
		db.few.pairs = rapid.IntRange(-1, 12).Draw(rt, "few")
		model := map[string]string{}
		check := func() {
			b := db.Bucket("b")
			for n := range 8 {
				k := fmt.Sprint(n)
				v, err := b.Get([]byte(k))
				if want, has := model[k]; err != nil || string(v) != want || has != (v != nil) {
					rt.Fatalf("%s: %q, %v, want %q", k, v, err, want)
				}
			}
			for _, prefix := range []string{"", "3", "9"} {
				var got, want []string
				if err := b.Scan([]byte(prefix), func(key, value []byte) error {
					got = append(got, string(key)+"="+string(value))
					return nil
				}); err != nil {
					rt.Fatal(err)
				}
				for _, k := range slices.Sorted(maps.Keys(model)) {
					if bytes.HasPrefix([]byte(k), []byte(prefix)) {
						want = append(want, k+"="+model[k])
					}
				}
				if !slices.Equal(got, want) {
					rt.Fatalf("with %q: %v, want %v", prefix, got, want)
				}
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "writes") {
			var pairs []Pair
			for range rapid.IntRange(1, 4).Draw(rt, "pairs") {
				k := fmt.Sprint(rapid.IntRange(0, 7).Draw(rt, "key"))
				switch rapid.IntRange(0, 2).Draw(rt, "what") {
				case 0:
					pairs = append(pairs, Pair{Key: []byte(k)})
					delete(model, k)
				case 1:
					pairs = append(pairs, Pair{[]byte(k), []byte{}})
					model[k] = ""
				default:
					v := fmt.Sprint(len(model), len(pairs))
					pairs = append(pairs, Pair{[]byte(k), []byte(v)})
					model[k] = v
				}
			}
			if err := db.Bucket("b").Write(pairs); err != nil {
				rt.Fatal(err)
			}
			check()
		}
		if err := db.Close(); err != nil {
			rt.Fatal(err)
		}
		db = open(t, path)
		defer db.Close()
		check()
	})
}

// Many commits, and what goes into buckets, share one transaction; Remove and Close wait for none.
func TestTransactions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	db := open(t, path)
	count := 0
	db.commit = func(f *file, c change) error {
		count++
		return f.commit(c)
	}
	es := entries(1, 2000)
	for i := range es {
		if err := db.Commit(es[i:i+1], cas.Watermark{Segment: 1, Off: int64(i)}); err != nil {
			t.Fatal(err)
		}
		if err := db.Bucket("b").Write([]Pair{{[]byte(fmt.Sprint(i)), []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	if count != 0 {
		t.Errorf("%d transactions", count)
	}
	if err := db.Remove(nil); err != nil || count != 1 {
		t.Error(count, err)
	}
	onDisk := 0
	if err := db.view(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("b")).ForEach(func(_, _ []byte) error { onDisk++; return nil })
	}); err != nil || onDisk != len(es) {
		t.Errorf("%d pairs on the disk: %v", onDisk, err)
	}
	big := entries(2, 2) // the records of which are long
	big[0].Stored, big[1].Stored = 1<<19, 1<<19+1
	big[0].Segment, big[1].Segment = 2, 2
	db.few.bytes = 1 << 20
	for i, want := range []int{1, 2} {
		if err := db.Commit(big[i:i+1], cas.Watermark{Segment: 2}); err != nil || count != want {
			t.Errorf("%d: %d transactions, want %d (%v)", i, count, want, err)
		}
	}
	if err := db.Bucket("b").Write([]Pair{{[]byte("last"), []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil || count != 3 {
		t.Error(count, err)
	}
}

// An entry that lies before the watermark on the disk is on it at once: no start would look for it.
func TestBeforeTheMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	db := open(t, path)
	es := entries(1, 4)
	for i := range es {
		es[i].Segment, es[i].Off = uint32(i+1), 64
	}
	commit := func(i int, want bool) {
		t.Helper()
		if err := db.Commit(es[i:i+1], cas.Watermark{Segment: 3}); err != nil {
			t.Fatal(err)
		}
		if now := len(db.late.entries) == 0; now != want {
			t.Errorf("entry %d on the disk: %v, want %v", i, now, want)
		}
	}
	commit(0, false)
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	commit(2, false) // behind the mark
	commit(1, true)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, path)
	defer db.Close()
	commit(3, false)
	commit(0, true)
	if err := db.Renew(cas.ErrCorrupt); err != nil {
		t.Fatal(err)
	}
	commit(0, false)
}

// The mark that ends the making of an index is on the disk at once, if some of its entries are.
func TestMadeFromNothing(t *testing.T) {
	for _, n := range []int{5, 50} {
		db := newDB(t)
		db.few.entries = 20
		es := entries(1, n)
		for i := range es {
			if err := db.Commit(es[i:i+1], cas.Watermark{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Commit(nil, cas.Watermark{Segment: 9}); err != nil {
			t.Fatal(err)
		}
		if _, behind := db.late.watermark(); behind != (n == 5) {
			t.Errorf("%d entries: the mark is late: %v", n, behind)
		}
	}
}

// Pairs for which there is no room are lost, and cost no memory.
func TestPairsWithoutRoom(t *testing.T) {
	db := newDB(t)
	db.few.pairs = 10
	db.commit = func(*file, change) error { return syscall.ENOSPC }
	for i := range 100 {
		if err := db.Bucket("b").Write([]Pair{{[]byte{byte(i)}, []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		if n := len(db.late.pairs["b"]); n > 10 {
			t.Fatalf("%d pairs", n)
		}
	}
	db.commit = func(*file, change) error { return syscall.EIO }
	var err error
	for i := 0; i <= 10 && err == nil; i++ {
		err = db.Bucket("b").Write([]Pair{{[]byte{byte(i)}, []byte("x")}})
	}
	if !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	db.commit = (*file).commit
}
