package record

import (
	"errors"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
)

const (
	me    Writer = "gpu-1.00000001"
	you   Writer = "laptop.0000000a"
	third Writer = "zoo.00000003"
)

func hash(b byte) (h cas.Hash) {
	for i := range h {
		h[i] = b
	}
	return h
}

func id(b byte) (i ID) {
	for j := range i {
		i[j] = b
	}
	return i
}

// examplePlan has each thing that a plan can have.
func examplePlan() *Plan {
	return &Plan{
		Manifest: hash(0xaa),
		Size:     600_000,
		Objects: []Object{{id(0x11), ClassData, 900_000}, {id(0x22), ClassMeta, 5_000},
			{id(0x33), ClassData, MaxObject}},
		Record: Record{Place{Object: 1, Off: 64, Stored: 150}, 200},
		Lists: []Record{
			{Place{Object: 1, Off: 296, Stored: 100}, 108}, // goes on
			{Place{Object: 1, Off: 64, Stored: 150}, 200},  // back
		},
		Chunks: []Place{
			{Object: 0, Off: 64, Stored: 200_000},
			{Object: 0, Off: 200_144, Stored: 262_144}, // goes on
			{Object: 0, Off: 700_000, Stored: 1},
		},
		Bases: []Base{
			{Record{Place{Object: 0, Off: 500_000, Stored: 9_000}, 262_144}, id(2), 0, cas.Chunk},
			{Record{Place{Object: 0, Off: 509_080, Stored: 9_000}, 1 << 20}, id(1), 7, cas.Chunk},
			{Record{Place{Object: 2, Off: 64, Stored: cas.MaxChunk}, 1}, id(3), 4, cas.Manifest},
		},
		Against: []Against{
			{4},    // the first base
			{5},    // the next one
			nil,    // alone
			nil,    // alone
			{4, 6}, // two
			{4},
		},
	}
}

func exampleModel() *Model {
	return &Model{
		Parent: Parent{"runs/a/2/model.pt", hash(0xcc)},
		How:    "previous step",
		Merged: []Parent{{"runs/b/7/model.pt", cas.Hash{}}, {"exports/base", hash(0xdd)}},
		Graph:  []Part{{hash(0xee), Ref{id(0x55), 128, 4_000}}},
		Source: "onnx model.onnx 1:2:3",
	}
}

// exampleEntries are of the archive and have each thing that entries can have.
func exampleEntries() []Entry {
	return []Entry{
		{Path: "exports/base", Kind: KindLink, Origin: ArchiveWriter, Version: 1, Mode: 0o777, MTime: -5,
			Link: "../runs/a/3"},
		{Path: "runs/a/3", Kind: KindFolder, Origin: me, Version: 300, Mode: 0o755, MTime: 1e18,
			Attrs:   []Attr{{"user.metric.loss", "0.3"}, {"user.note", ""}},
			Metrics: []Metric{{"loss", 0.25}, {"val/loss", math.Inf(1)}}},
		{Path: "runs/a/3/config.json", Kind: KindFile, Origin: me, Version: 300, Mode: 0o644, MTime: 1e18,
			File: &File{Size: 2, Inline: "{}"}},
		{Path: "runs/a/3/model.pt", Kind: KindFile, Origin: me, Version: 300, Mode: 0o600, MTime: 1e18,
			File: &File{Size: 600_000, Manifest: hash(0xaa), Plan: Ref{id(0x22), 5_000, 90},
				Deps: []ID{id(0x11), id(0x22), id(0x55)}, Model: exampleModel()},
			Over: []Replaced{{ArchiveWriter, 9}, {third, 299}}},
		{Path: "runs/a/3/model.pt", Kind: KindFile, Origin: you, Version: 12, Mode: 0, MTime: 0,
			File: &File{Size: 0, Manifest: hash(0xbb), Plan: Ref{id(0x33), 64, 1}, Deps: []ID{id(0x33)}}},
		{Path: "runs/a/30", Kind: KindTombstone, Origin: me, Version: 301, Over: []Replaced{{you, 13}}},
		{Path: "runs/a/31", Kind: KindTombstone, Origin: me, Version: 301, Over: []Replaced{{you, 13}},
			Removed: &Removed{Time: 1e18, Entry: Entry{Path: "runs/a/31", Origin: you, Version: 13,
				Mode:  0o600,
				MTime: 5, Metrics: []Metric{{"loss", 0.25}}, File: &File{Size: 5, Manifest: hash(0xab),
					Plan: Ref{id(0x33), 64, 1}, Deps: []ID{id(0x33), id(0x44)}}}}},
		{Path: "runs/a-b", Kind: KindFolder, Origin: me, Version: 4, Mode: 0o700, MTime: 7},
	}
}

func exampleHead() *Head {
	return &Head{
		Remote: id(0x01), Instance: id(0x02), Commit: id(0x03), Sequence: 77, Stamp: 5, Clock: 301,
		Time: 1_800_000_000_000_000_000,
		Tables: []Table{
			{ID: id(0x91), Len: 70_000, Directory: 65_000, Hash: hash(0x92), Entries: 400, First: "runs/a",
				Last: "runs/b/1"},
			{ID: id(0x81), Len: 700, Directory: 100, Hash: hash(0x82), Entries: 1, First: "runs/a",
				Last: "runs/a"},
		},
		Tail: exampleEntries(),
	}
}

// What follows encodes without asking whether it may be, to see what decoders say.

// rawDictionary is one of anything.
func rawDictionary(own Writer, entries []Entry) *dictionary {
	d := &dictionary{own: own}
	for _, e := range entries {
		if e.File != nil {
			d.Objects = append(d.Objects, e.File.Deps...)
		}
		d.Writers = append(d.Writers, e.Origin)
		for _, o := range e.Over {
			d.Writers = append(d.Writers, o.Writer)
		}
	}
	slices.SortFunc(d.Objects, compareIDs)
	d.Objects = slices.Compact(d.Objects)
	slices.Sort(d.Writers)
	d.Writers = slices.DeleteFunc(slices.Compact(d.Writers), func(w Writer) bool { return w == own })
	return d
}

func rawHead(own Writer, h *Head) []byte {
	p, _ := h.append(rawDictionary(own, h.Tail))
	return p
}

// refused holds that an encoder and a decoder refuse a value.
func refused(t *testing.T, name string, encode, decode error) {
	t.Helper()
	if encode == nil {
		t.Errorf("%s: encoded", name)
	}
	if !errors.Is(decode, cas.ErrCorrupt) {
		t.Errorf("%s: decoded: %v", name, decode)
	}
}

// drawID draws one of a few.
func drawID(t *rapid.T) ID { return id(rapid.ByteRange(1, 12).Draw(t, "id")) }

func drawIDs(t *rapid.T) []ID {
	ids := []ID{drawID(t)}
	for range rapid.IntRange(0, 8).Draw(t, "ids") {
		ids = append(ids, drawID(t))
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

func drawPath(t *rapid.T) string {
	p := rapid.SampledFrom([]string{"runs", "exports"}).Draw(t, "root")
	for range rapid.IntRange(1, 4).Draw(t, "depth") {
		p += "/" + rapid.SampledFrom([]string{"a", "a-b", "a0", "\x01", "ü\xff", "...", "-",
			strings.Repeat("n", maxComponent)}).Draw(t, "component")
	}
	return p
}

func drawParent(t *rapid.T) Parent {
	return Parent{drawPath(t), hash(rapid.ByteRange(0, 2).Draw(t, "manifest"))}
}

func drawText(t *rapid.T) string { return rapid.StringN(0, 8, 20).Draw(t, "text") }

func drawFile(t *rapid.T) *File {
	if rapid.Bool().Draw(t, "inline") {
		p := strings.Repeat("x", rapid.IntRange(0, MaxInline).Draw(t, "size"))
		return &File{Size: int64(len(p)), Inline: p}
	}
	f := &File{Size: rapid.Int64Min(0).Draw(t, "size"), Manifest: hash(7), Deps: drawIDs(t)}
	ref := func() Ref {
		return Ref{rapid.SampledFrom(f.Deps).Draw(t, "object"),
			rapid.Int64Range(8, 1<<20).Draw(t, "offset") * 8,
			rapid.Uint32Range(1, cas.MaxChunk).Draw(t, "stored")}
	}
	f.Plan = ref()
	if !rapid.Bool().Draw(t, "model") {
		return f
	}
	f.Model = &Model{Source: drawText(t)}
	if rapid.Bool().Draw(t, "parent") {
		f.Model.Parent, f.Model.How = drawParent(t), "declared"
	}
	for range rapid.IntRange(0, 2).Draw(t, "merged") {
		f.Model.Merged = append(f.Model.Merged, drawParent(t))
	}
	for range rapid.IntRange(0, 2).Draw(t, "graph") {
		f.Model.Graph = append(f.Model.Graph, Part{hash(9), ref()})
	}
	return f
}

func drawEntry(t *rapid.T, own Writer) Entry {
	e := Entry{Path: drawPath(t), Origin: own, Kind: Kind(rapid.ByteRange(0, 3).Draw(t, "kind")),
		Version: rapid.Int64Min(1).Draw(t, "version")}
	all := []Writer{own, me, you, third, IndexWriter}
	if own == ArchiveWriter {
		e.Origin = rapid.SampledFrom(all).Draw(t, "origin")
	}
	for _, w := range all {
		if w != e.Origin && (len(e.Over) == 0 || compareWriters(e.Over[len(e.Over)-1].Writer, w, own) < 0) &&
			rapid.Bool().Draw(t, "over") {
			e.Over = append(e.Over, Replaced{w, rapid.Int64Min(1).Draw(t, "version")})
		}
	}
	e.draw(t)
	if e.Kind == KindTombstone && rapid.Bool().Draw(t, "removed") {
		e.Removed = &Removed{Time: rapid.Int64().Draw(t, "time"), Entry: Entry{Path: e.Path,
			Kind:    Kind(rapid.ByteRange(0, 2).Draw(t, "kind")),
			Origin:  rapid.SampledFrom(all).Draw(t, "origin"),
			Version: rapid.Int64Min(1).Draw(t, "version")}}
		e.Removed.Entry.draw(t)
	}
	return e
}

// draw draws what a name has.
func (e *Entry) draw(t *rapid.T) {
	if e.Kind != KindTombstone {
		e.Mode, e.MTime = rapid.Uint16Range(0, maxMode).Draw(t, "mode"), rapid.Int64().Draw(t, "mtime")
	}
	switch e.Kind {
	case KindFile:
		e.File = drawFile(t)
	case KindLink:
		e.Link = "to" + drawText(t)
		e.Link = strings.ReplaceAll(e.Link, "\x00", "")
	case KindFolder:
		for _, name := range []string{"user.a", "user.b"} {
			if rapid.Bool().Draw(t, "attr") {
				e.Attrs = append(e.Attrs, Attr{name, drawText(t)})
			}
		}
	}
	if e.Kind == KindFile || e.Kind == KindFolder {
		for _, name := range []string{"acc", "loss"} {
			if rapid.Bool().Draw(t, "metric") {
				e.Metrics = append(e.Metrics, Metric{name, rapid.Float64().Draw(t, "value")})
			}
		}
	}
}

// drawEntries draws a list of at least least entries.
func drawEntries(t *rapid.T, own Writer, least int) []Entry {
	var entries []Entry
	for range rapid.IntRange(least, 12).Draw(t, "entries") {
		entries = append(entries, drawEntry(t, own))
	}
	slices.SortFunc(entries, func(a, b Entry) int { return a.Compare(&b, own) })
	return slices.CompactFunc(entries, func(a, b Entry) bool { return a.Compare(&b, own) == 0 })
}

func drawOwn(t *rapid.T) Writer {
	return rapid.SampledFrom([]Writer{me, ArchiveWriter}).Draw(t, "own")
}

// mutate changes some of the bytes of p.
func mutate(t *rapid.T, p []byte) []byte {
	p = slices.Clone(p)
	for range rapid.IntRange(1, 4).Draw(t, "changes") {
		i := rapid.IntRange(0, len(p)).Draw(t, "at")
		switch rapid.IntRange(0, 3).Draw(t, "change") {
		case 0:
			p = slices.Insert(p, i, rapid.Byte().Draw(t, "byte"))
		case 1:
			p = p[:i]
		case 2:
			p = append(p[:i:i], p[min(i+rapid.IntRange(1, 4).Draw(t, "bytes"), len(p)):]...)
		default:
			if i < len(p) {
				p[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			}
		}
	}
	return p
}

// checkAgain holds that what a decoder accepts is encoded to the same bytes, and that its errors are of the
// kinds that are promised. again decodes and encodes.
func checkAgain(t interface{ Fatalf(string, ...any) }, p []byte, again func([]byte) ([]byte, error)) {
	q, err := again(p)
	switch {
	case err != nil && !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer):
		t.Fatalf("%v", err)
	case err == nil && string(q) != string(p):
		t.Fatalf("% x is encoded as % x", p, q)
	}
}

// checkHarmless holds what a mount relies on that makes names of entries, in other words than check.
func checkHarmless(t interface{ Fatalf(string, ...any) }, entries []Entry) {
	for i, e := range entries {
		root, _, _ := strings.Cut(e.Path, "/")
		if path.Clean(e.Path) != e.Path || root != "runs" && root != "exports" || e.Path == root ||
			strings.HasPrefix(e.Path, "..") || e.Mode&^0o777 != 0 || i > 0 && e.Path < entries[i-1].Path &&
			strings.ReplaceAll(e.Path, "/", "\x00") < strings.ReplaceAll(entries[i-1].Path, "/", "\x00") {
			t.Fatalf("entry %+v", e)
		}
		for _, c := range strings.Split(e.Path, "/") {
			if len(c) > 255 {
				t.Fatalf("component of %d bytes", len(c))
			}
		}
		for _, a := range e.Attrs {
			if !strings.HasPrefix(a.Name, "user.") || strings.HasPrefix(a.Name, "user.ckptfs") {
				t.Fatalf("attribute %q", a.Name)
			}
		}
		if f := e.File; f != nil && f.Inline == "" && f.Size > 0 && !slices.Contains(f.Deps, f.Plan.Object) {
			t.Fatalf("plan in %s, which is not kept", f.Plan.Object)
		}
	}
}
