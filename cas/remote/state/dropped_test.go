package state

import (
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/remote/record"
)

// A write that the disk refuses takes no number of an object away that was told before: another object would
// get it, and places would name the wrong object.
func TestNumbersOutliveARefusedWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "remote.db")
	db := open(t, path)
	place := func(h cas.Hash) objects.Placed {
		return objects.Placed{Hash: h, Off: 64, Stored: 100, Raw: 200, CRC: 1, Kind: cas.Chunk}
	}
	find := func(h cas.Hash) record.Object {
		var at [1]objects.Place
		must(t, db.Find([]cas.Hash{h}, at[:]))
		return at[0].Object
	}
	first := record.Object{ID: record.ID{1}, Len: 1000, Class: 1}
	second := record.Object{ID: record.ID{2}, Len: 2000, Class: 1}
	a, b := cas.Hash{1, 1, 1}, cas.Hash{2, 2, 2}
	must(t, db.Learn(first, []objects.Placed{place(a)}))
	if got := find(a); got != first {
		t.Fatalf("%v", got)
	}
	signal.Ignore(syscall.SIGXFSZ)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: was.Max}))
	names := map[string][]byte{}
	for i := range 3000 {
		names[string(rune('a'+i%26))+string(rune(0x4e00+i))] = []byte("x")
	}
	err := db.SetNames(names)
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	if err == nil {
		t.Fatal("it was written")
	}
	t.Log(err)
	must(t, db.Learn(second, []objects.Placed{place(b)}))
	if got := find(b); got != second {
		t.Errorf("the record lies in %v, found in %v", second.ID, got.ID)
	}
	if got := find(a); got != first {
		t.Errorf("the record lies in %v, found in %v", first.ID, got.ID)
	}
}

// What the disk refused is not read either: who was told of an error relies on what there was.
func TestRefusedWriteIsUndone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "remote.db")
	db := open(t, path)
	must(t, db.SetNames(map[string][]byte{"a": []byte("old")}))
	signal.Ignore(syscall.SIGXFSZ)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: was.Max}))
	err := db.SetNames(map[string][]byte{"a": []byte("new"), "b": []byte("new")})
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	if err == nil {
		t.Fatal("it was written")
	}
	is := func() {
		t.Helper()
		for name, want := range map[string]string{"a": "old", "b": ""} {
			if got, err := db.Name(name); string(got) != want || err != nil {
				t.Errorf("%s is %q, %v, want %q", name, got, err, want)
			}
		}
	}
	is()
	must(t, db.SetNames(map[string][]byte{"c": []byte("later")}))
	is()
	must(t, db.Close())
	db = open(t, path)
	is()
}
