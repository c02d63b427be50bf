package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/remote/writer"
)

var store = [16]byte{7}

func open(t testing.TB, path string) *DB {
	t.Helper()
	db, err := Open(path, store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func reopen(t testing.TB, db *DB, path string) *DB {
	t.Helper()
	must(t, db.Close())
	return open(t, path)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var me = writer.Identity{Writer: "gpu-17.5f4e3d2c", Instance: record.ID{1, 2}, Commit: record.ID{3},
	Sequence: 12, Pending: []record.ID{{4}, {5}}}

// What was set is there for the next process.
func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "remote.db")
	db := open(t, path)
	if id, err := db.Identity(); err != nil || !reflect.DeepEqual(id, writer.Identity{}) {
		t.Fatalf("%+v, %v", id, err)
	}
	must(t, db.SetIdentity(me))
	must(t, db.Condemn(3, []record.ID{{8}, {9}}))
	must(t, db.SetHeads(map[record.Writer]Kept{"a.00000001": {"v1", []byte("head")},
		"b.00000002": {"v2", nil}}))
	must(t, db.SetHeads(map[record.Writer]Kept{"b.00000002": {}}))
	db = reopen(t, db, path)
	if id, err := db.Identity(); err != nil || !reflect.DeepEqual(id, me) {
		t.Errorf("%+v, %v", id, err)
	}
	gone := make([]bool, 3)
	must(t, db.Condemned([]record.ID{{7}, {8}, {9}}, gone))
	if e, err := db.Epoch(); err != nil || e != 3 || !slices.Equal(gone, []bool{false, true, true}) {
		t.Errorf("epoch %d, %v, %v", e, gone, err)
	}
	var heads []string
	must(t, db.Heads(func(w record.Writer, v bucket.Version, p []byte) error {
		heads = append(heads, fmt.Sprintf("%s %s %s", w, v, p))
		return nil
	}))
	if !slices.Equal(heads, []string{"a.00000001 v1 head"}) {
		t.Errorf("%q", heads)
	}
}

func TestNames(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "remote.db"))
	all := []string{"runs/a", "runs/a/3", "runs/a/3/model.pt", "runs/a/30", "runs/a-b", "runs/a-b/1"}
	names := map[string][]byte{"runs/gone": []byte("x")}
	for _, p := range all {
		names[p] = []byte(p)
	}
	must(t, db.SetNames(names))
	must(t, db.SetNames(map[string][]byte{"runs/gone": nil}))
	for below, want := range map[string][]string{"": all, "runs/a": all[:4], "runs/a/3": all[1:3],
		"runs/a/3/m": nil, "runs/a-b": all[4:], "runs/gone": nil} {
		var got []string
		must(t, db.EachName(below, func(path string, p []byte) error {
			if string(p) != path {
				t.Errorf("%s: %s", path, p)
			}
			got = append(got, path)
			return nil
		}))
		if !slices.Equal(got, want) {
			t.Errorf("below %q: %q, want %q", below, got, want)
		}
	}
	if p, err := db.Name("runs/a/30"); err != nil || string(p) != "runs/a/30" {
		t.Errorf("%q, %v", p, err)
	}
	stop := errors.New("stop")
	if err := db.EachName("", func(string, []byte) error { return stop }); err != stop {
		t.Error(err)
	}
}

// Places are those of a map of what was learned, whichever hashes share their beginnings.
func TestPlaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "remote.db")
	db := open(t, path)
	r := rand.New(rand.NewPCG(1, 1))
	want := map[cas.Hash]objects.Place{}
	hash := func() (h cas.Hash) {
		h[0], h[5], h[15] = byte(r.IntN(3)), byte(r.IntN(16)), byte(r.IntN(8))
		return h
	}
	check := func() {
		t.Helper()
		var hashes []cas.Hash
		for range 200 {
			hashes = append(hashes, hash())
		}
		got := make([]objects.Place, len(hashes))
		must(t, db.Find(hashes, got))
		for i, h := range hashes {
			if got[i] != want[h] {
				t.Fatalf("%s: %+v, want %+v", h.Short(), got[i], want[h])
			}
		}
	}
	for n := range 40 {
		o := record.Object{ID: record.ID{byte(n % 30)}, Class: record.ClassData, Len: 1<<20 + int64(n%30)}
		var recs []objects.Placed
		for range r.IntN(20) {
			x := objects.Placed{Hash: hash(), Off: int64(r.IntN(1<<23)) * 8, Raw: uint32(r.IntN(1 << 24)),
				Stored: uint32(r.IntN(1 << 24)), CRC: r.Uint32(), Kind: cas.Kind(1 + r.IntN(4)),
				Based: r.IntN(2) == 0}
			recs, want[x.Hash] = append(recs, x), objects.Place{Object: o, Placed: x}
		}
		must(t, db.Learn(o, recs))
		check()
	}
	db = reopen(t, db, path)
	check()
	must(t, db.Forget())
	clear(want)
	check()
	if err := db.Learn(record.Object{ID: record.ID{1}}, []objects.Placed{{Off: 4}}); err == nil {
		t.Error("an offset that cannot be held")
	}
}

// A damaged state, and one of another store, is as good as none, and never tells what was not set.
func TestLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "remote.db")
	db := open(t, path)
	must(t, db.SetIdentity(me))
	o := record.Object{ID: record.ID{1}, Class: record.ClassData, Len: 1 << 20}
	x := objects.Placed{Hash: cas.Sum(nil), Off: 64, Raw: 9, Stored: 9, Kind: cas.Chunk}
	must(t, db.Learn(o, []objects.Placed{x}))
	must(t, db.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	r := rand.New(rand.NewPCG(2, 2))
	for range 6 {
		p := slices.Clone(whole)
		for n := 0; n < 64; {
			if i := r.IntN(len(p)); p[i] != 0 {
				p[i] ^= 1 << r.IntN(8)
				n++
			}
		}
		must(t, os.WriteFile(path, p, 0o600))
		db, err := Open(path, store)
		if err != nil {
			t.Fatal(err)
		}
		id, err := db.Identity()
		if err != nil || !reflect.DeepEqual(id, me) && !reflect.DeepEqual(id, writer.Identity{}) {
			t.Errorf("%+v, %v", id, err)
		}
		got := make([]objects.Place, 1)
		must(t, db.Find([]cas.Hash{x.Hash}, got))
		if got[0] != (objects.Place{}) && got[0] != (objects.Place{Object: o, Placed: x}) {
			t.Errorf("%+v", got[0])
		}
		must(t, db.SetIdentity(me))
		if id, err := db.Identity(); err != nil || !reflect.DeepEqual(id, me) {
			t.Errorf("%+v, %v", id, err)
		}
		must(t, db.Close())
	}
	must(t, os.WriteFile(path, whole, 0o600))
	other, err := Open(path, [16]byte{8})
	must(t, err)
	defer other.Close()
	if id, err := other.Identity(); err != nil || id.Writer != "" || other.Recovered() == "" {
		t.Errorf("%+v, %v", id, err)
	}
}

// Damage that is met later is as that which is met by Open.
func TestLostLater(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "remote.db"))
	must(t, db.SetIdentity(me))
	var objs []record.Object
	for i := range byte(2) {
		objs = append(objs, record.Object{ID: record.ID{i + 1}, Class: record.ClassData, Len: 1 << 20})
		must(t, db.Learn(objs[i], []objects.Placed{{Hash: cas.Hash{i}, Off: 64, Kind: cas.Chunk}}))
	}
	got := make([]objects.Place, 2)
	must(t, db.Find([]cas.Hash{{0}, {1}}, got))
	tries := 0
	must(t, db.use(func() error {
		if tries++; tries == 1 {
			return cas.ErrCorrupt
		}
		return nil
	}))
	if id, err := db.Identity(); err != nil || id.Writer != "" || db.Recovered() == "" || tries != 2 {
		t.Errorf("%+v, %v, %d tries", id, err, tries)
	}
	must(t, db.Learn(objs[1], []objects.Placed{{Hash: cas.Hash{1}, Off: 64, Kind: cas.Chunk}}))
	must(t, db.Find([]cas.Hash{{0}, {1}}, got))
	if got[0] != (objects.Place{}) || got[1].Object != objs[1] {
		t.Errorf("%+v", got)
	}
}

func TestNewer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "remote.db")
	db := open(t, path)
	must(t, db.put(db.tables.self, formatKey, be.AppendUint32(nil, version+1)))
	must(t, db.Close())
	if _, err := Open(path, store); !errors.Is(err, cas.ErrNewer) {
		t.Error(err)
	}
}

// What was set is on the disk when that returns: a copy of the file, as a kill leaves it, has it.
func TestDurable(t *testing.T) {
	path, killed := filepath.Join(t.TempDir(), "remote.db"), filepath.Join(t.TempDir(), "killed.db")
	db := open(t, path)
	id := writer.Identity{Writer: "a.00000001", Instance: record.ID{1}, Sequence: 3}
	copied := func() *DB {
		p, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(killed, p, 0o600))
		return open(t, killed)
	}
	must(t, db.SetIdentity(id))
	was := copied()
	if got, err := was.Identity(); err != nil || !reflect.DeepEqual(got, id) {
		t.Errorf("%+v, %v", got, err)
	}
	must(t, was.Close())
	must(t, db.SetNames(map[string][]byte{"runs/x": []byte("known")}))
	must(t, db.Condemn(1, []record.ID{{2}}))
	was = copied()
	if got, err := was.Name("runs/x"); err != nil || string(got) != "known" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := was.Epoch(); err != nil || got != 1 {
		t.Errorf("%d, %v", got, err)
	}
}

// What is known of one remote is not known of another.
func TestOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "remote.db")
	db := open(t, path)
	must(t, db.SetIdentity(me)) // as by a version that did not note the remote
	for _, tc := range []struct {
		of    record.ID
		knows bool
	}{{record.ID{1}, true}, {record.ID{1}, true}, {record.ID{2}, false}, {record.ID{1}, false}} {
		must(t, db.Of(tc.of))
		id, err := db.Identity()
		if knows := reflect.DeepEqual(id, me); err != nil || knows != tc.knows {
			t.Fatalf("of %v: %+v, %v", tc.of, id, err)
		}
		if !tc.knows {
			must(t, db.SetIdentity(me))
		}
		db = reopen(t, db, path)
	}
}
