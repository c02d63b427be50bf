package local

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/remote/objects"
	"ckptfs/cas/segment"
	"ckptfs/cas/store"
	"ckptfs/formats"
	"ckptfs/index/chunks"
	"ckptfs/index/manifest"
)

func newStore(t *testing.T) *store.Store {
	t.Helper()
	m := disk.NewMem()
	for _, err := range []error{m.MkdirAll("/store", 0o755), m.SyncDir("/")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	x, err := chunks.Open(t.TempDir()+"/index.db", chunks.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(m, "/store/segments", [16]byte{}, x, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); x.Close() })
	return s
}

// text is version v of a text, in which lines change.
func text(v int) (p []byte) {
	for i := range 200 {
		p = append(p, byte('a'+i%7), byte('a'+(i*i)%23), byte('0'+i%10))
		if i == v {
			p = append(p, "changed"...)
		}
	}
	return p
}

// save puts a file of four texts, each against the one before, of which only the last two are the file's.
// The first of these is named twice, in a list and alone.
func save(t *testing.T, s *store.Store) (h cas.Hash, content []cas.Hash) {
	t.Helper()
	b := s.Begin()
	defer b.Release()
	put := func(kind cas.Kind, raw []byte, rel cas.Related) cas.Hash {
		t.Helper()
		h := cas.Sum(raw)
		if _, _, err := b.PutRelated(kind, h, raw, codec.Hint{}, rel); err != nil {
			t.Fatal(err)
		}
		return h
	}
	var texts []manifest.Span
	var prev cas.Hash
	for v := range 4 {
		raw := text(v)
		prev = put(cas.Chunk, raw, cas.Related{Prev: prev})
		texts = append(texts, manifest.Span{Hash: prev, Len: uint32(len(raw))})
	}
	one, two := texts[2], texts[3]
	list := put(cas.List, manifest.EncodeList([]manifest.Span{two, one}), cas.Related{})
	m := &manifest.Manifest{Format: "blob"}
	for _, o := range []manifest.Object{{Digest: one.Hash, Len: int64(one.Len)},
		{Digest: list, Len: int64(one.Len + two.Len), List: true},
		{Digest: list, Len: int64(one.Len + two.Len), List: true}} {
		m.Extents = append(m.Extents, manifest.Extent{Len: o.Len, Object: int32(len(m.Objects))})
		m.Regions = append(m.Regions, formats.Region{Off: m.Size, Len: o.Len, Kind: formats.Blob})
		m.Objects, m.Size = append(m.Objects, o), m.Size+o.Len
	}
	p, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	h = put(cas.Manifest, p, cas.Related{})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	return h, []cas.Hash{h, list, one.Hash, two.Hash, texts[0].Hash, texts[1].Hash}
}

// A closure has each record once, bases first, and lists and chunks in the order of their first names.
func TestClosure(t *testing.T) {
	s := newStore(t)
	h, all := save(t, s)
	src := Begin(s)
	defer src.Close()
	c, err := src.Closure(h)
	if err != nil {
		t.Fatal(err)
	}
	name := func(i int32) cas.Hash { return c.Records[i].Hash }
	if name(c.Manifest) != h || len(c.Lists) != 1 || name(c.Lists[0]) != all[1] || len(c.Chunks) != 2 ||
		name(c.Chunks[0]) != all[2] || name(c.Chunks[1]) != all[3] {
		t.Errorf("%+v", c)
	}
	var got []cas.Hash
	deltas := 0
	for i, r := range c.Records {
		got = append(got, r.Hash)
		for _, b := range r.Bases {
			if int(b) >= i || b >= 0 && c.Records[b].Number >= r.Number {
				t.Errorf("record %d is stored against %d", i, b)
			}
		}
		if r.Number > 0 {
			deltas++
		}
		raw, err := s.Get(r.Hash, nil)
		p := make([]byte, r.Stored)
		if perr := src.Payload(&r.Record, p); perr != nil || err != nil || r.XXH3 != cas.SumXXH3(raw) {
			t.Error(err, perr)
		}
		if r.Codec == codec.Raw && !bytes.Equal(p, raw) {
			t.Errorf("record %d: another payload", i)
		}
	}
	if deltas < 2 || !got[0].IsZero() && got[0] != h {
		t.Errorf("%d deltas; %v", deltas, got)
	}
	for _, want := range all[:4] {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not there", want.Short())
		}
	}
	if _, err := src.Closure(cas.Sum(nil)); !errors.Is(err, cas.ErrNotFound) {
		t.Error(err)
	}
	if _, err := src.Record(all[2]); err == nil {
		t.Error("a record that needs others")
	}
	if r, err := src.Record(h); err != nil || r.Kind != cas.Manifest {
		t.Error(r, err)
	}
}

// What was listed stays until the source is closed, though nothing else names it.
func TestPinned(t *testing.T) {
	s := newStore(t)
	h, _ := save(t, s)
	src := Begin(s)
	c, err := src.Closure(h)
	if err != nil {
		t.Fatal(err)
	}
	sweep := func() {
		t.Helper()
		_, err := s.Sweep(t.Context(), store.SweepOptions{},
			func(context.Context, *store.Marking) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	for i := range c.Records {
		r := &c.Records[i].Record
		if err := src.Payload(r, make([]byte, r.Stored)); err != nil {
			t.Error(err)
		}
	}
	last := c.Records[len(c.Records)-1].Record
	changed := []func(r *segment.Record){
		func(r *segment.Record) { r.CRC++ },
		func(r *segment.Record) { r.Codec++ },
		func(r *segment.Record) { r.Stored++ },
	}
	for _, change := range changed {
		r := last
		change(&r)
		if err := src.Payload(&r, make([]byte, r.Stored)); !errors.Is(err, objects.ErrChanged) {
			t.Error(err)
		}
	}
	src.Close()
	sweep()
	if err := src.Payload(&last, make([]byte, last.Stored)); err == nil {
		t.Error("it is there for ever")
	}
	if _, err := Begin(s).Closure(h); !errors.Is(err, cas.ErrNotFound) {
		t.Error(err)
	}
}

// What a file needs is listed once, in the order in which it is read, and needs nothing else.
func TestAlone(t *testing.T) {
	s := newStore(t)
	h, content := save(t, s)
	src := Begin(s)
	defer src.Close()
	alone := BeginAlone(src)
	c, err := alone.Closure(h)
	if err != nil {
		t.Fatal(err)
	}
	based, err := src.Closure(h)
	if err != nil || c.Size != based.Size || len(c.Records) >= len(based.Records) ||
		len(c.Chunks) != len(based.Chunks) || len(c.Lists) != len(based.Lists) || c.Manifest != 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	want := map[cas.Hash]bool{h: true}
	for _, x := range content {
		want[x] = true
	}
	for _, r := range c.Records {
		if r.Number != 0 || len(r.Bases) > 0 {
			t.Errorf("%s is based", r.Hash.Short())
		}
		p := make([]byte, r.Stored)
		if err := alone.Payload(&r.Record, p); err != nil {
			t.Fatal(err)
		}
		raw, err := codec.Decode(nil, r.Codec, p, int(r.Raw))
		if err != nil || cas.Check(raw, r.Hash) != nil || cas.CheckXXH3(raw, r.XXH3) != nil ||
			r.CheckPayload(p) != nil {
			t.Errorf("%s: %v", r.Hash.Short(), err)
		}
	}
	for i := range c.Chunks {
		if c.Records[c.Chunks[i]].Hash != based.Records[based.Chunks[i]].Hash {
			t.Errorf("chunk %d is another", i)
		}
	}
}

// Lists and manifests that the store has as differences are listed as if they stood alone, chunks are not.
func TestListsAlone(t *testing.T) {
	s := newStore(t)
	b := s.Begin()
	defer b.Release()
	var prev [3]cas.Hash // a chunk, the list, the manifest
	for v := range 2 {
		put := func(i int, kind cas.Kind, raw []byte) cas.Hash {
			h := cas.Sum(raw)
			if _, _, err := b.PutRelated(kind, h, raw, codec.Hint{}, cas.Related{Prev: prev[i]}); err != nil {
				t.Fatal(err)
			}
			return h
		}
		raw := text(v)
		chunk := put(0, cas.Chunk, raw)
		spans := []manifest.Span{{Hash: chunk, Len: uint32(len(raw))}}
		for i := range 200 {
			raw := []byte{byte(i)}
			h := cas.Sum(raw)
			if _, _, err := b.PutRelated(cas.Chunk, h, raw, codec.Hint{}, cas.Related{}); err != nil {
				t.Fatal(err)
			}
			spans = append(spans, manifest.Span{Hash: h, Len: 1})
		}
		list := put(1, cas.List, manifest.EncodeList(spans))
		size := int64(len(raw) + 200)
		m := &manifest.Manifest{Format: "blob", Size: 100 * size,
			Objects: []manifest.Object{{Digest: list, Len: size, List: true}}}
		for i := range int64(100) {
			m.Extents = append(m.Extents, manifest.Extent{Len: size})
			m.Regions = append(m.Regions, formats.Region{Off: i * size, Len: size, Kind: formats.Blob})
		}
		p, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		prev = [3]cas.Hash{chunk, list, put(2, cas.Manifest, p)}
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	src := Begin(s)
	defer src.Close()
	if _, err := src.Record(prev[1]); err == nil {
		t.Fatal("the list stands alone in the store")
	}
	c, err := src.Closure(prev[2])
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Records) != 1+1+201+1 || c.Records[c.Chunks[0]].Number != 1 {
		t.Errorf("%d records, %+v", len(c.Records), c.Records[c.Chunks[0]])
	}
	for _, i := range []int32{c.Manifest, c.Lists[0]} {
		r := c.Records[i]
		room := bytes.Repeat([]byte{7}, int(r.Stored)+64)
		if err := src.Payload(&r.Record, room[:r.Stored]); err != nil {
			t.Fatal(err)
		}
		raw, err := codec.Decode(nil, r.Codec, room[:r.Stored], int(r.Raw))
		if err != nil || cas.Check(raw, r.Hash) != nil || r.CheckPayload(room[:r.Stored]) != nil ||
			r.Number != 0 || len(r.Bases) > 0 {
			t.Errorf("%s: %+v, %v", r.Kind, r, err)
		}
		if !bytes.Equal(room[r.Stored:], bytes.Repeat([]byte{7}, 64)) {
			t.Errorf("%s: bytes behind the payload are written", r.Kind)
		}
	}
}
