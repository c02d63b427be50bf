package chunks

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/store"
)

const segments = "/store/segments"

func chunkOf(i int) []byte {
	p := make([]byte, 300)
	_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), 7}).Read(p)
	return p
}

func openStore(fsys disk.FS, d *DB) (*store.Store, error) {
	return store.Open(fsys, segments, opts.StoreID, d, store.Options{
		SegmentSize: 64 << 10,
		NewIndex:    func(reason error) (store.Locator, error) { return d, d.Renew(reason) },
	})
}

func putAll(t *testing.T, s *store.Store, from, to int) (fresh int) {
	t.Helper()
	b := s.Begin()
	defer b.Release()
	for i := from; i < to; i++ {
		raw := chunkOf(i)
		f, err := b.Put(cas.Chunk, cas.Sum(raw), raw, codec.Hint{})
		if err != nil {
			t.Fatal(err)
		}
		if f {
			fresh++
		}
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	return fresh
}

// Whatever becomes of the index file, before a start or under way, the store reads everything, and takes
// everything that is put again: it never believes that it holds what it does not.
func TestIndexDamageIsMended(t *testing.T) {
	const n = 1500
	m := disk.NewMem()
	if err := errors.Join(m.MkdirAll("/store", 0o755), m.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "index.db")
	d, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(m, d)
	if err != nil {
		t.Fatal(err)
	}
	putAll(t, s, 0, n/2)
	early := readFile(t, path) // an index of the past
	putAll(t, s, n/2, n)
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	sound := readFile(t, path)
	later := m.CrashClone(nil) // segments of the past beside an index of the future
	for _, name := range []string{"00000003.seg", "00000004.seg", "00000005.seg", "00000006.seg",
		"00000007.seg", "00000008.seg"} {
		_ = later.Remove(segments + "/" + name)
	}

	try := func(what string, fsys *disk.Mem, index []byte, live bool, least int) {
		t.Helper()
		fsys = fsys.CrashClone(nil)
		o := opts
		dir := t.TempDir()
		o.Aside = filepath.Join(dir, "lost+found")
		path := filepath.Join(dir, "index.db")
		if live {
			writeFile(t, path, sound)
		} else if index != nil {
			writeFile(t, path, index)
		}
		d, err := Open(path, o)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer d.Close()
		s, err := openStore(fsys, d)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer s.Close()
		if live {
			writeFile(t, path, index)
		}
		got := 0
		for i := range n {
			p, err := s.Get(cas.Sum(chunkOf(i)), nil)
			if err == nil && bytes.Equal(p, chunkOf(i)) {
				got++
			} else if err == nil || i < least {
				t.Fatalf("%s: chunk %d: %v (%s)", what, i, err, d.Recovered())
			}
		}
		if fresh := putAll(t, s, 0, n); fresh != n-got {
			t.Fatalf("%s: %d of %d could be read, %d were stored afresh", what, got, n, fresh)
		}
		putAll(t, s, n, n+20)
		for i := range n + 20 {
			if p, err := s.Get(cas.Sum(chunkOf(i)), nil); err != nil || !bytes.Equal(p, chunkOf(i)) {
				t.Fatalf("%s: after all was put again: chunk %d: %v", what, i, err)
			}
		}
	}
	try("sound", m, sound, false, n)
	try("deleted", m, nil, false, n)
	try("of the past", m, early, false, n)
	try("of the future", later, sound, false, 0)
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range rounds {
		p := bytes.Clone(sound)
		var what string
		switch i % 4 {
		case 0, 1:
			at := r.IntN(len(p))
			p[at] ^= 1 << r.IntN(8)
			what = fmt.Sprintf("bit at %d of %d", at, len(p))
		case 2:
			at := r.IntN(len(p)/4096) * 4096
			clear(p[at : at+4096])
			what = fmt.Sprintf("page at %d zeroed", at)
		case 3:
			at, from := r.IntN(len(p)/4096)*4096, r.IntN(len(p)/4096)*4096
			copy(p[at:at+4096], p[from:])
			what = fmt.Sprintf("page at %d overwritten with that at %d", at, from)
		}
		try(what, m, p, false, n)
		try(what+", while open", m, p, true, n)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// writeFile overwrites a file, which may be open.
func writeFile(t *testing.T, path string, p []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(p, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
