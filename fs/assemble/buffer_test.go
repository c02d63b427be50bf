package assemble

import (
	"bytes"
	"testing"
	"unsafe"

	"ckptfs/cas"
	"ckptfs/cas/pages"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// Slots stay within the cache's bound, also when what is kept are small chunks by and by, and are let go of
// at the end.
func TestSlots(t *testing.T) {
	s := newShelf()
	want := random(96<<20, 3)
	h := s.grid(t, want)
	small := random(96<<20, 4)
	n := int64(len(small))
	hs := s.manifest(t, &manifest.Manifest{
		Format: "test", Size: n, Objects: []manifest.Object{s.object(small, 32<<10)},
		Extents: []manifest.Extent{{Len: n}},
		Regions: []formats.Region{{Len: n, Kind: formats.Data}},
	})
	r := New(s, Options{CacheBytes: minSlots})
	r.readAhead = 0 // what is being fetched takes slots beyond the bound
	big, little := file(t, r, h), file(t, r, hs)
	p := make([]byte, 4096)
	check := func(f *File, want []byte, off int64) {
		t.Helper()
		if _, err := f.ReadAt(p, off); err != nil || !bytes.Equal(p, want[off:off+4096]) {
			t.Fatal(off, err)
		}
		c := r.chunks
		c.mu.Lock()
		defer c.mu.Unlock()
		mapped, free := c.slots.Room()
		if took := mapped + c.heap(); took > c.max+pages.SlabSize {
			t.Fatalf("%d bytes taken, %d of them mapped with %d slots free, %d may be", took, mapped, free, c.max)
		}
	}
	for i := range int64(600) {
		check(big, want, i*37%(int64(len(want))/cas.ChunkSize)*cas.ChunkSize)
		check(big, want, i%9*cas.ChunkSize) // what is used again and again stays, and its slabs with it
	}
	if r.chunks.inSlots < 50 {
		t.Errorf("%d chunks in slots", r.chunks.inSlots)
	}
	for i := range int64(3000) {
		check(little, small, i*37%(n/(32<<10))*(32<<10))
		check(big, want, i%9*cas.ChunkSize)
	}
	for _, n := range []int64{minSlots / 2, minSlots, 0} { // it yields memory, and takes it back
		r.Yield(n)
		if most := max(minSlots-n, minSlots/4); r.chunks.max != most || r.chunks.bytes > most {
			t.Errorf("%d bytes of %d, at most %d", r.chunks.bytes, r.chunks.max, most)
		}
		check(big, want, 0)
	}
	r.Close()
	r.chunks.slots.Trim()
	if mapped, _ := r.chunks.slots.Room(); mapped != 0 || r.chunks.bytes != 0 || r.chunks.inSlots != 0 {
		t.Errorf("%d bytes mapped, %d counted, %d in slots", mapped, r.chunks.bytes, r.chunks.inSlots)
	}
}

// A chunk begins where it begins in a page of the file.
func TestPhase(t *testing.T) {
	s := newShelf()
	want := random(8<<20, 5)
	n := int64(len(want))
	const head = 1000
	h := s.manifest(t, &manifest.Manifest{
		Format: "test", Size: head + n, Objects: []manifest.Object{s.object(want, cas.ChunkSize)},
		Extents: []manifest.Extent{{Len: head, Object: -1}, {Len: n}},
		Regions: []formats.Region{{Len: head + n, Kind: formats.Data}},
	})
	r := New(s, Options{})
	f := file(t, r, h)
	p := make([]byte, 1<<20)
	for off := int64(0); off+1<<20 <= head+n; off += 1 << 20 {
		l, got, err := f.Lend(off, 1<<20, head+n)
		if err != nil || l == nil || got != 1<<20 {
			t.Fatal(got, err)
		}
		at := off
		for i, part := range l.Parts() {
			if place := int64(uintptr(unsafe.Pointer(&part[0])) % page); place != at%page &&
				(off > 0 || i > 0) {
				t.Fatalf("byte %d of the file lies at %d of a page", at, place)
			}
			at += int64(copy(p[at-off:], part))
		}
		l.Done()
		if whole := append(make([]byte, head), want...)[off : off+1<<20]; !bytes.Equal(p, whole) {
			t.Fatal("wrong bytes at", off)
		}
	}
}
