package chunks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"ckptfs/cas"
	"ckptfs/cas/store"
)

var _ store.Locator = (*DB)(nil)

var opts = Options{StoreID: [16]byte{1, 2, 3}, NoSync: true}

func open(t testing.TB, path string) *DB {
	t.Helper()
	db, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newDB(t testing.TB) *DB { return open(t, filepath.Join(t.TempDir(), "index.db")) }

// entries makes n entries with the hashes of a generator.
func entries(seed byte, n int) []cas.Entry {
	r := rand.NewChaCha8([32]byte{seed})
	es := make([]cas.Entry, n)
	for i := range es {
		r.Read(es[i].Hash[:])
		es[i].Location = cas.Location{Segment: 1 + uint32(i/4000), Off: int64(i%4000) * 262_200,
			Stored: uint32(i % 262_144), Raw: 262_144, Kind: cas.Chunk}
	}
	return es
}

func all(t testing.TB, db *DB) (es []cas.Entry) {
	t.Helper()
	err := db.ForEach(0, 0xffff, func(e cas.Entry) error {
		es = append(es, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return es
}

func expect(t testing.TB, db *DB, es []cas.Entry) {
	t.Helper()
	hashes, locs := make([]cas.Hash, len(es)), make([]cas.Location, len(es))
	for i := range es {
		hashes[i] = es[i].Hash
	}
	if err := db.Locate(hashes, locs); err != nil {
		t.Fatal(err)
	}
	for i := range es {
		if locs[i] != es[i].Location {
			t.Fatalf("entry %d at %+v, want %+v", i, locs[i], es[i].Location)
		}
	}
}

func TestCommitLocate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	db := open(t, path)
	if m, err := db.Watermark(); err != nil || m != (cas.Watermark{}) || db.Recovered() != "" {
		t.Fatalf("new index: %+v, %v, %q", m, err, db.Recovered())
	}
	es := entries(1, 5000)
	for i := 0; i < len(es); i += 700 {
		if err := db.Commit(es[i:min(i+700, len(es))], cas.Watermark{Segment: 1, Off: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, path)
	expect(t, db, es)
	unknown := entries(2, 100)
	for i := range unknown {
		unknown[i].Location = cas.Location{}
	}
	copy(unknown[0].Hash[:], es[0].Hash[:15]) // differs in the last byte that the index holds
	expect(t, db, unknown)
	if m, _ := db.Watermark(); m != (cas.Watermark{Segment: 1, Off: 4900}) {
		t.Errorf("watermark %+v", m)
	}
	if err := db.Check(); err != nil {
		t.Error(err)
	}
	if n, err := db.Size(); err != nil || n <= 0 {
		t.Error(n, err)
	}
	n := 0
	if err := db.ForEach(0x10, 0x20ff, func(e cas.Entry) error {
		if p := binary.BigEndian.Uint16(e.Hash[:]); p < 0x10 || p > 0x20ff {
			return fmt.Errorf("prefix %#x", p)
		}
		n++
		return nil
	}); err != nil || n < 400 || n > 900 {
		t.Errorf("%d entries, %v", n, err)
	}
	stop := errors.New("stop")
	if err := db.ForEach(0, 0xffff, func(cas.Entry) error { return stop }); err != stop {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	db := newDB(t)
	for _, l := range []cas.Location{
		{},
		{Segment: 1, Off: 4, Kind: cas.Chunk},
		{Segment: 1, Off: -8, Kind: cas.Chunk},
		{Segment: 1, Off: 8 << 32, Kind: cas.Chunk},
		{Segment: 1, Raw: cas.MaxChunk + 1, Kind: cas.Chunk},
		{Segment: 1, Stored: cas.MaxChunk + 1, Kind: cas.Chunk},
		{Segment: 1},
	} {
		if err := db.Commit([]cas.Entry{{Location: l}}, cas.Watermark{}); err == nil {
			t.Errorf("%+v taken", l)
		}
	}
}

// Any sequence of commits is like a map, and one commit of the end result makes the same index.
func TestModel(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		db := open(t, filepath.Join(dir, fmt.Sprint(run)))
		defer db.Close()
		db.few = bounds{entries: rapid.IntRange(-1, 60).Draw(rt, "few"), bytes: 1 << 24}
		db.file.portion = rapid.IntRange(1, 1000).Draw(rt, "portion")
		model := map[cas.Hash]cas.Location{}
		for range rapid.IntRange(1, 8).Draw(rt, "commits") {
			var es []cas.Entry
			for range rapid.IntRange(0, 30).Draw(rt, "entries") {
				e := cas.Entry{Location: cas.Location{
					Segment: rapid.Uint32Range(1, 3).Draw(rt, "segment"),
					Off:     rapid.Int64Range(0, 1<<30).Draw(rt, "offset") * 8,
					Stored:  rapid.Uint32Range(0, cas.MaxChunk).Draw(rt, "stored"),
					Raw:     rapid.Uint32Range(0, cas.MaxChunk).Draw(rt, "raw"),
					Kind:    cas.Kind(rapid.IntRange(1, 6).Draw(rt, "kind")),
				}}
				// Few hashes, so that prefixes are shared and entries replaced.
				e.Hash[1] = rapid.ByteRange(0, 2).Draw(rt, "prefix")
				e.Hash[15] = rapid.ByteRange(0, 9).Draw(rt, "tail")
				es = append(es, e)
				model[e.Hash] = e.Location
			}
			mark := cas.Watermark{Segment: 1, Off: rapid.Int64Range(0, 1<<40).Draw(rt, "mark")}
			if err := db.Commit(es, mark); err != nil {
				rt.Fatal(err)
			}
			if m, err := db.Watermark(); err != nil || m != mark {
				rt.Fatalf("watermark %+v, want %+v (%v)", m, mark, err)
			}
		}
		var want []cas.Entry
		for _, h := range slices.SortedFunc(maps.Keys(model),
			func(a, b cas.Hash) int { return bytes.Compare(a[:], b[:]) }) {
			want = append(want, cas.Entry{Hash: h, Location: model[h]})
		}
		expect(t, db, want)
		if n := len(all(t, db)); n != len(want) {
			rt.Fatalf("%d entries, want %d", n, len(want))
		}
		if err := db.Flush(); err != nil {
			rt.Fatal(err)
		}
		if err := db.Check(); err != nil {
			rt.Fatal(err)
		}
		if es := all(t, db); !slices.Equal(es, want) {
			rt.Fatalf("entries %+v, want %+v", es, want)
		}
		expect(t, db, want)
		again := open(t, filepath.Join(dir, fmt.Sprint(run, "again")))
		defer again.Close()
		if err := again.Commit(want, cas.Watermark{}); err != nil {
			rt.Fatal(err)
		}
		if err := again.Flush(); err != nil || !slices.Equal(all(t, again), want) {
			rt.Fatal("the rebuilt index differs")
		}
	})
}

func TestConcurrent(t *testing.T) {
	db := newDB(t)
	es := entries(3, 4000)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			part := es[g*1000:][:1000]
			for i := 0; i < 1000; i += 100 {
				if err := db.Commit(part[i:i+100], cas.Watermark{Segment: 1}); err != nil {
					t.Error(err)
				}
				expect(t, db, part[:i+100])
			}
		})
	}
	wg.Wait()
	expect(t, db, es)
	if err := db.Check(); err != nil {
		t.Error(err)
	}
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	open(t, path)
	if _, err := Open(path, opts); err == nil || errors.Is(err, cas.ErrCorrupt) {
		t.Fatal(err)
	}
	if names, _ := filepath.Glob(path + "*"); len(names) != 1 {
		t.Errorf("left %v", names)
	}
}

func TestUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, opts); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		t.Error("the directory was touched")
	}
}

// A half-made index from a crash is no obstacle, and is not taken for one.
func TestHalfMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	if err := os.WriteFile(path+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if db := open(t, path); db.Recovered() != "" {
		t.Error(db.Recovered())
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestRemove(t *testing.T) {
	db := newDB(t)
	es := entries(1, 5000)
	mark := cas.Watermark{Segment: 9, Off: 64}
	if err := db.Commit(es, mark); err != nil {
		t.Fatal(err)
	}
	moved := es[3]
	moved.Off += 8
	gone := slices.Clone(es[:1000])
	gone[3] = moved                          // the index has another place
	gone = append(gone, entries(2, 1000)...) // not there
	if err := db.Remove(gone); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if i != 3 {
			es[i].Location = cas.Location{}
		}
	}
	expect(t, db, es)
	if n := len(all(t, db)); n != 4001 {
		t.Errorf("%d entries", n)
	}
	if err := db.Check(); err != nil {
		t.Error(err)
	}
	if m, err := db.Watermark(); err != nil || m != mark {
		t.Error(m, err)
	}
	if err := db.Remove(es[1000:]); err != nil {
		t.Fatal(err)
	}
	if err := db.Remove(es[3:4]); err != nil {
		t.Fatal(err)
	}
	if n := len(all(t, db)); n != 0 {
		t.Errorf("%d entries", n)
	}
	if err := db.Check(); err != nil {
		t.Error(err)
	}
}

func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	ro := opts
	ro.ReadOnly = true
	if _, err := Open(path, ro); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	db := open(t, path)
	es := entries(1, 1000)
	if err := db.Commit(es, cas.Watermark{Segment: 1}); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	db, err := Open(path, ro)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, db, es)
	if err := db.Check(); err != nil {
		t.Error(err)
	}
	if err := db.Commit(es[:1], cas.Watermark{}); err == nil {
		t.Error("committed")
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("not an index at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, ro); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestAside(t *testing.T) {
	dir := t.TempDir()
	path, o := filepath.Join(dir, "index.db"), opts
	o.Aside = filepath.Join(dir, "lost+found")
	for i := range 2 {
		if err := os.WriteFile(path, []byte("not an index at all"), 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		db.Close()
		aside := filepath.Join(o.Aside, fmt.Sprintf("index.db.corrupt-%d", i+1))
		if !strings.Contains(db.Recovered(), aside) {
			t.Error(db.Recovered())
		}
		if p, err := os.ReadFile(aside); err != nil || !strings.HasPrefix(string(p), "not an index") {
			t.Error(string(p), err)
		}
	}
}

// The highest segment stays known when its entries have gone, and a damaged one is noticed.
func TestHighest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	db := open(t, path)
	want := func(n uint32) {
		t.Helper()
		if got, err := db.Highest(); got != n || err != nil {
			t.Errorf("%d, %v; want %d", got, err, n)
		}
	}
	want(0)
	es := entries(1, 9000)
	if err := db.Commit(es, cas.Watermark{Segment: 1}); err != nil {
		t.Fatal(err)
	}
	want(3)
	if err := db.Remove(es); err != nil {
		t.Fatal(err)
	}
	if err := db.Commit(es[:1], cas.Watermark{Segment: 1}); err != nil {
		t.Fatal(err)
	}
	db.Close()
	db = open(t, path)
	want(3)
	err := db.file.update(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketMeta).Put(keyHighest, []byte("damaged!"))
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	if db = open(t, path); db.Recovered() == "" {
		t.Error("not noticed")
	}
	want(0)
}
