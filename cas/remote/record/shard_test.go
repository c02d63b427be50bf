package record

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/golden"
)

func exampleIndexHead() *Head {
	return &Head{Remote: id(1), Instance: id(2), Commit: id(3), Sequence: 7, Stamp: 9, Time: 1e18,
		Index: Index{Made: 8, Seen: []Replaced{{ArchiveWriter, 5}, {me, 300}},
			Shards: []Shard{{ID: id(0x55), First: 0x10, Items: 2},
				{ID: id(0x44), First: 1 << 63, Items: 600}}}}
}

// exampleItems are n of every digest that is a multiple of 16.
func exampleItems(n int) (items []Item) {
	for i := range n {
		items = append(items, Item{Digest(16 * (i + 1)), Ref{Object: id(byte(i)), Off: 64 + 8*int64(i),
			Stored: uint32(100 + i)}})
	}
	return items
}

func encodeShard(t testing.TB, items []Item) (Shard, []byte) {
	t.Helper()
	p, err := EncodeShard(id(1), items)
	s := Shard{ID: id(0x55), First: items[0].Digest, Items: int64(len(items))}
	if err != nil || int64(len(p)) != s.Len() {
		t.Fatalf("%d bytes, want %d: %v", len(p), s.Len(), err)
	}
	return s, p
}

func TestGoldenIndex(t *testing.T) {
	head, err := exampleIndexHead().Encode(IndexWriter)
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "head-index.hex", annotateIndexHead(head))
	if got, err := DecodeHead(IndexWriter, head); err != nil || !reflect.DeepEqual(got, exampleIndexHead()) {
		t.Errorf("%+v, %v", got, err)
	}
	s, p := encodeShard(t, exampleItems(2))
	golden.Same(t, "shard.hex", annotateShard(p))
	if got, err := DecodeShard(id(1), s, p); err != nil || !reflect.DeepEqual(got, exampleItems(2)) {
		t.Errorf("%+v, %v", got, err)
	}
}

func annotateIndexHead(p []byte) string {
	n := &notes{p: p}
	n.note(headFixed, "as in other heads")
	n.num("made")
	for range n.num("seen:") {
		n.str("  writer")
		n.num("  version")
	}
	for range n.num("shards:") {
		n.note(16, "  id")
		n.note(8, "  first %x", binary.BigEndian.Uint64(n.p))
		n.num("  items")
	}
	n.note(4, "CRC of all before")
	return n.String()
}

func annotateShard(p []byte) string {
	n := &notes{p: p}
	for range binary.LittleEndian.Uint64(p[len(p)-32:]) {
		n.title("item")
		n.note(8, "digest %x", binary.BigEndian.Uint64(n.p))
		n.note(16, "object")
		n.fixed(4, "offset / 8")
		n.fixed(4, "stored")
	}
	n.title("directory")
	n.note(8, "first %x", binary.BigEndian.Uint64(n.p))
	n.note(4, "CRC of the block")
	n.title("trailer")
	n.opening()
	n.note(16, "remote")
	n.fixed(8, "items")
	n.note(16, "0")
	n.note(4, "CRC of the directory")
	n.note(4, "CRC of the trailer before")
	return n.String()
}

// Each item is found by the directory and one block, and nothing else is.
func TestShardFind(t *testing.T) {
	items := exampleItems(2*blockItems + 3)
	s, p := encodeShard(t, items)
	d, err := s.Open(id(1), p[s.Directory():])
	if err != nil {
		t.Fatal(err)
	}
	find := func(x Digest) (Ref, bool) {
		n, ok := d.Block(x)
		if !ok {
			return Ref{}, false
		}
		off, size := d.Range(n)
		at, ok, err := d.Find(n, p[off:off+size], x)
		if err != nil {
			t.Fatal(err)
		}
		return at, ok
	}
	for _, x := range items {
		if at, ok := find(x.Digest); !ok || at != x.Plan {
			t.Fatalf("%x: %+v, %v", x.Digest, at, ok)
		}
		for _, near := range []Digest{x.Digest - 1, x.Digest + 1} {
			if at, ok := find(near); ok {
				t.Fatalf("%x: %+v", near, at)
			}
		}
	}
	x := exampleIndexHead().Index
	for at, want := range map[Digest]ID{0x10: id(0x55), 1<<63 - 1: id(0x55), 1 << 63: id(0x44),
		^Digest(0): id(0x44)} {
		if s, ok := x.Find(at); !ok || s.ID != want {
			t.Errorf("%x: %+v, %v", at, s, ok)
		}
	}
	if s, ok := x.Find(0xf); ok {
		t.Errorf("before the first: %+v", s)
	}
}

// No flipped bit of a shard goes unseen, nor one of another remote, nor one that is cut.
func TestShardDamaged(t *testing.T) {
	s, p := encodeShard(t, exampleItems(3))
	for i := range p {
		q := append([]byte(nil), p...)
		q[i] ^= 4
		_, err := DecodeShard(id(1), s, q)
		if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	for name, err := range map[string]error{
		"another remote": second(DecodeShard(id(2), s, p)),
		"cut":            second(DecodeShard(id(1), s, p[:len(p)-1])),
		"fewer items":    second(DecodeShard(id(1), Shard{ID: s.ID, First: s.First, Items: 2}, p)),
		"another first":  second(DecodeShard(id(1), Shard{ID: s.ID, First: s.First + 1, Items: 3}, p)),
	} {
		if !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second(_ []Item, err error) error { return err }

func TestIndexRefused(t *testing.T) {
	for name, change := range map[string]func(h *Head){
		"a tail":           func(h *Head) { h.Tail = exampleHead().Tail },
		"a table":          func(h *Head) { h.Tables = exampleHead().Tables },
		"an empty shard":   func(h *Head) { h.Index.Shards[0].Items = 0 },
		"a large shard":    func(h *Head) { h.Index.Shards[0].Items = MaxItems + 1 },
		"order":            func(h *Head) { h.Index.Shards[1].First = 0x10 },
		"a shard twice":    func(h *Head) { h.Index.Shards[1].ID = h.Index.Shards[0].ID },
		"no such writer":   func(h *Head) { h.Index.Seen[0].Writer = "who" },
		"order of writers": func(h *Head) { h.Index.Seen[0].Writer = me },
		"no version":       func(h *Head) { h.Index.Seen[0].Version = 0 },
		"no commit":        func(h *Head) { *h = Head{Index: h.Index} },
	} {
		h := exampleIndexHead()
		change(h)
		if _, err := h.Encode(IndexWriter); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
	if _, err := exampleIndexHead().Encode(me); err == nil {
		t.Error("the index in another head")
	}
	for name, items := range map[string][]Item{
		"none":   nil,
		"order":  {exampleItems(2)[1], exampleItems(2)[0]},
		"twice":  {exampleItems(1)[0], exampleItems(1)[0]},
		"offset": {{Digest: 1, Plan: Ref{Off: 4, Stored: 1}}},
		"stored": {{Digest: 1, Plan: Ref{Off: 64}}},
	} {
		if _, err := EncodeShard(id(1), items); err == nil {
			t.Errorf("%s: a shard", name)
		}
	}
}

// Items with sums and a trailer that fit.
func FuzzShard(f *testing.F) {
	for _, n := range []int{1, 3, blockItems, blockItems + 1} {
		s, p := encodeShard(f, exampleItems(n))
		f.Add(p[:s.Directory()], p[s.Directory():len(p)-trailerSize])
	}
	f.Fuzz(func(t *testing.T, items, directory []byte) {
		s := Shard{ID: id(0x55), Items: int64(len(items) / itemSize)}
		if len(items) >= 8 {
			s.First = Digest(binary.BigEndian.Uint64(items))
		}
		p := s.appendTrailer(append(append([]byte(nil), items...), directory...), id(1))
		bounded(t, len(p), 10, 1<<16, func() {
			checkAgain(t, p, func(p []byte) ([]byte, error) {
				got, err := DecodeShard(id(1), s, p)
				if err != nil {
					return nil, err
				}
				return EncodeShard(id(1), got)
			})
		})
	})
}

// A head of the index with a checksum that fits.
func FuzzIndexHead(f *testing.F) {
	p, err := exampleIndexHead().Encode(IndexWriter)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Fuzz(func(t *testing.T, p []byte) {
		p = sum(append([]byte(nil), p...))
		bounded(t, len(p), 100, 1<<16, func() {
			checkAgain(t, p, func(p []byte) ([]byte, error) {
				h, err := DecodeHead(IndexWriter, p)
				if err != nil {
					return nil, err
				}
				return h.Encode(IndexWriter)
			})
		})
	})
}
