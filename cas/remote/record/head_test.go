package record

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
)

// headAgain decodes and encodes one of the archive, whose checksum it sets before.
func headAgain(p []byte) ([]byte, error) {
	h, err := DecodeHead(ArchiveWriter, p)
	if err != nil {
		return nil, err
	}
	return h.Encode(ArchiveWriter)
}

// sum sets the checksum of a head.
func sum(p []byte) []byte {
	if n := len(p) - 4; n >= 0 {
		le.PutUint32(p[n:], crc(p[:n]))
	}
	return p
}

// Whatever is wrong with a head, neither end takes it.
func TestHeadCheck(t *testing.T) {
	for name, spoil := range map[string]func(h *Head){
		"no remote":     func(h *Head) { h.Remote = ID{} },
		"no instance":   func(h *Head) { h.Instance = ID{} },
		"no commit":     func(h *Head) { h.Commit = ID{} },
		"sequence":      func(h *Head) { h.Sequence = -1 },
		"clock":         func(h *Head) { h.Tail, h.Clock = nil, -1 },
		"a version":     func(h *Head) { h.Clock = 300 },
		"over":          func(h *Head) { h.Tail[5].Over[0].Version = 302 },
		"folded":        func(h *Head) { h.Tables, h.Folded = nil, true },
		"folded too":    func(h *Head) { h.Tail, h.Folded = nil, true },
		"a table twice": func(h *Head) { h.Tables[1].ID = h.Tables[0].ID },
		"a table":       func(h *Head) { h.Tables[1].Entries = 0 },
		"the tail":      func(h *Head) { h.Tail[0].Path = "etc/passwd" },
		"uncommitted":   func(h *Head) { h.Sequence = 0 },
		"instance of no commit": func(h *Head) {
			*h = Head{Remote: h.Remote, Stamp: 1, Instance: id(1)}
		},
		"commit of no commit":   func(h *Head) { *h = Head{Remote: h.Remote, Stamp: 1, Commit: id(1)} },
		"clock of no commit":    func(h *Head) { *h = Head{Remote: h.Remote, Stamp: 1, Clock: 1} },
		"time of no commit":     func(h *Head) { *h = Head{Remote: h.Remote, Stamp: 1, Time: 1} },
		"tables of no commit":   func(h *Head) { *h = Head{Remote: h.Remote, Stamp: 1, Tables: h.Tables} },
		"tail of no commit":     func(h *Head) { *h = Head{Remote: h.Remote, Stamp: 1, Tail: h.Tail} },
		"neither remote":        func(h *Head) { *h = Head{Stamp: 1} },
		"remote without stamp":  func(h *Head) { *h = Head{Remote: h.Remote} },
		"folded without stamp":  func(h *Head) { *h = Head{Folded: true} },
		"a tail of many paths":  func(h *Head) { h.Tables, h.Tail = nil, manyPaths(4_100) },
		"runs of more than 16K": func(h *Head) { h.Tables, h.Tail = nil, manyRuns(70) },
	} {
		h := exampleHead()
		spoil(h)
		_, encode := h.Encode(ArchiveWriter)
		_, decode := DecodeHead(ArchiveWriter, rawHead(ArchiveWriter, h))
		refused(t, name, encode, decode)
	}
	if _, err := exampleHead().Encode("nobody"); err == nil {
		t.Error("a head of no writer")
	}
}

// manyRuns is n tombstones of runs with names of 250 bytes.
func manyRuns(n int) (es []Entry) {
	for i := range n {
		es = append(es, Entry{Path: fmt.Sprintf("runs/%0250d", i), Kind: KindTombstone, Origin: ArchiveWriter,
			Version: 1})
	}
	return es
}

// Too much is ErrTooLarge: it belongs into a table.
func TestHeadTooLarge(t *testing.T) {
	links := func(n, size int) (es []Entry) {
		for i := range n {
			es = append(es, Entry{Path: fmt.Sprintf("runs/a/%06d", i), Kind: KindLink, Origin: ArchiveWriter,
				Version: 1, Link: strings.Repeat("l", size)})
		}
		return es
	}
	h := exampleHead()
	h.Tables, h.Tail = h.Tables[:1], links(257, 4_072)
	h.Tables[0].Len = MaxObject
	h.Tail[0].Link = xs(2_000)
	p, err := h.Encode(ArchiveWriter)
	if err != nil {
		t.Fatal(err)
	}
	h.Tail[0].Link = xs(2_000 + MaxHead - len(p))
	if p, err = h.Encode(ArchiveWriter); err != nil || len(p) != MaxHead {
		t.Fatalf("%d bytes: %v", len(p), err)
	}
	if _, err := headAgain(p); err != nil {
		t.Error(err)
	}
	for name, tail := range map[string][]Entry{"bytes": links(257, 4_080), "paths": manyPaths(4_100),
		"runs": manyRuns(70)} {
		h.Tail = tail
		if _, err := h.Encode(ArchiveWriter); !errors.Is(err, cas.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// 1 MiB is a bound for readers, too.
	h.Tail = links(257, 4_080)
	p = rawHead(ArchiveWriter, h)
	bounded(t, 0, 0, 1<<16, func() {
		if _, err := headAgain(p); !errors.Is(err, cas.ErrCorrupt) {
			t.Error(err)
		}
	})
}

// A head without bytes is registered; stamped it says so; folded it says that.
func TestHeadUncommitted(t *testing.T) {
	for name, h := range map[string]*Head{
		"registered":         {},
		"stamped":            {Remote: id(1), Stamp: 9},
		"folded, no commits": {Remote: id(1), Stamp: 9, Folded: true},
		"folded": {Remote: id(1), Instance: id(2), Commit: id(3), Sequence: 4, Stamp: 9, Folded: true,
			Clock: 7, Time: -1},
	} {
		p, err := h.Encode(me)
		if err != nil || (len(p) == 0) != (name == "registered") {
			t.Errorf("%s: %d bytes, %v", name, len(p), err)
		}
		if got, err := DecodeHead(me, p); err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// The other encoding of a registered one.
	if _, err := DecodeHead(me, rawHead(me, &Head{})); !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
}

// Bytes that stand for a head, but are not those that it is encoded to.
func TestHeadOneEncoding(t *testing.T) {
	p, err := exampleHead().Encode(ArchiveWriter)
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]int{"zeros": 10, "flags": 77, "no magic": 0, "version 0": 8,
		"a run": headFixed + 9} {
		q := slices.Clone(p)
		q[at]--
		if _, err := headAgain(sum(q)); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(d *dictionary){
		"an object unused": func(d *dictionary) { d.Objects = append(d.Objects, id(0x56)) },
		"a writer unused":  func(d *dictionary) { d.Writers = append(d.Writers, "zz.00000000") },
		"an object twice":  func(d *dictionary) { d.Objects = append(d.Objects, d.Objects[3]) },
		"no writer":        func(d *dictionary) { d.Writers = append(d.Writers, "zzz") },
	} {
		h := exampleHead()
		d := rawDictionary(ArchiveWriter, h.Tail)
		change(d)
		q, _ := h.append(d)
		if _, err := headAgain(q); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range p {
		if _, err := headAgain(p[:n]); n > 0 && !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if _, err := headAgain(sum(slices.Clone(p[:n]))); n > 0 && !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%d bytes with a checksum: %v", n, err)
		}
	}
	p[20] ^= 4
	if _, err := headAgain(p); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("a bit: %v", err)
	}
	p[20] ^= 4
	p[8]++
	if _, err := headAgain(p); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("a version without its checksum: %v", err)
	}
	if _, err := headAgain(sum(p)); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a later version: %v", err)
	}
	p[0]++
	if _, err := headAgain(sum(p)); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("something else: %v", err)
	}
}

func TestHeadFind(t *testing.T) {
	h := exampleHead()
	for path, want := range map[string][]Entry{"runs/a/3/model.pt": h.Tail[3:5], "exports/base": h.Tail[:1],
		"runs/a-b": h.Tail[7:], "runs/a": nil, "runs/z": nil} {
		if got := h.Find(path); len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func drawHead(t *rapid.T, own Writer) *Head {
	h := &Head{Remote: id(1), Instance: id(2), Commit: id(3), Sequence: rapid.Int64Min(1).Draw(t, "sequence"),
		Stamp: rapid.Uint32().Draw(t, "stamp"), Time: rapid.Int64().Draw(t, "time")}
	for i := range rapid.IntRange(0, 3).Draw(t, "tables") {
		tab := Table{ID: id(byte(9 - i)), Hash: hash(8), First: drawPath(t), Last: drawPath(t),
			Directory: rapid.Int64Range(2, 1<<20).Draw(t, "directory")}
		if ComparePaths(tab.First, tab.Last) > 0 {
			tab.First, tab.Last = tab.Last, tab.First
		}
		tab.Len = tab.Directory + trailerSize + rapid.Int64Range(0, 1<<20).Draw(t, "length")
		tab.Entries = rapid.Int64Range(2, tab.Directory).Draw(t, "entries")
		h.Tables = append(h.Tables, tab)
	}
	h.Tail = drawEntries(t, own, 0)
	for i := range h.Tail {
		h.Clock = max(h.Clock, h.Tail[i].Newest())
	}
	return h
}

// Every head is what its bytes say, and no other bytes say it.
func TestHead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHead(t, ArchiveWriter)
		p, err := h.Encode(ArchiveWriter)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeHead(ArchiveWriter, p)
		if err != nil || !reflect.DeepEqual(got, h) {
			t.Fatalf("%v: %+v, want %+v", err, got, h)
		}
		q := mutate(t, p)
		if rapid.Bool().Draw(t, "sum") {
			q = sum(q)
		}
		checkAgain(t, q, headAgain)
	})
}
