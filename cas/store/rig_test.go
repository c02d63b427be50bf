package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
)

var storeID = [16]byte{1, 2, 3}

const dir = "/store/segments"

// newMem is an empty disk with a durable /store.
func newMem() *disk.Mem {
	m := disk.NewMem()
	if err := m.MkdirAll("/store", 0o755); err != nil {
		panic(err)
	}
	if err := m.SyncDir("/"); err != nil {
		panic(err)
	}
	return m
}

func open(t testing.TB, fsys disk.FS, x Locator, opt Options) *Store {
	t.Helper()
	s, err := Open(fsys, dir, storeID, x, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// chunk i of some bytes; every third compresses.
func chunk(i int) []byte {
	if i%3 == 0 {
		return []byte(strings.Repeat(fmt.Sprint("chunk ", i, "; "), 30+i%50))
	}
	p := make([]byte, 100+i*37%900)
	_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(p)
	return p
}

func put(t testing.TB, b *Batch, kind cas.Kind, raw []byte) (fresh bool) {
	t.Helper()
	fresh, err := b.Put(kind, cas.Sum(raw), raw, codec.Hint{})
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

// commit commits b, and waits until what is full is sealed.
func commit(t testing.TB, b *Batch) {
	t.Helper()
	defer b.Release()
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	b.s.drain()
	b.s.appender.tails.AwaitDrained(0)
}

func wantGet(t testing.TB, s *Store, raw []byte) {
	t.Helper()
	got, err := s.Get(cas.Sum(raw), []byte("pre"))
	if err != nil || string(got[:3]) != "pre" || !bytes.Equal(got[3:], raw) {
		t.Fatalf("%d bytes of %d, %v", len(got)-3, len(raw), err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}
