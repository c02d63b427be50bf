package record

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ckptfs/cas"
)

// readList reads a list of d.
func readList(d *dictionary, p []byte) ([]Entry, error) {
	return d.decodeEntries(p, "list", maxTailPaths)
}

// exampleFile is the entry that has most, of the archive.
func exampleFile() Entry { return exampleEntries()[3] }

// Whatever is wrong with an entry, neither end takes it.
func TestEntryCheck(t *testing.T) {
	for name, spoil := range map[string]func(e *Entry){
		"path":                   func(e *Entry) { e.Path = "runs/../x" },
		"no path":                func(e *Entry) { e.Path = "" },
		"version":                func(e *Entry) { e.Version = 0 },
		"mode":                   func(e *Entry) { e.Mode = 0o4755 },
		"kind":                   func(e *Entry) { e.Kind, e.File = 4, nil },
		"size":                   func(e *Entry) { e.File.Size = -1 },
		"plan's object":          func(e *Entry) { e.File.Plan.Object = id(0x33) },
		"plan's offset":          func(e *Entry) { e.File.Plan.Off = 56 },
		"plan past the object":   func(e *Entry) { e.File.Plan.Off = MaxObject },
		"plan, stored":           func(e *Entry) { e.File.Plan.Stored = 0 },
		"plan, stored too much":  func(e *Entry) { e.File.Plan.Stored = cas.MaxChunk + 1 },
		"dep twice":              func(e *Entry) { e.File.Deps[0], e.File.Model = id(0x22), nil },
		"deps descend":           func(e *Entry) { slices.Reverse(e.File.Deps); e.File.Model = nil },
		"how of none":            func(e *Entry) { e.File.Model.Parent = Parent{} },
		"no how":                 func(e *Entry) { e.File.Model.How = "" },
		"how":                    func(e *Entry) { e.File.Model.How = "so\n" },
		"how, high":              func(e *Entry) { e.File.Model.How = "\x7f" },
		"how, long":              func(e *Entry) { e.File.Model.How = xs(maxHow + 1) },
		"parent's path":          func(e *Entry) { e.File.Model.Parent.Path = "etc/passwd" },
		"merged":                 func(e *Entry) { e.File.Model.Merged[0].Path = "runs/." },
		"merged, no path":        func(e *Entry) { e.File.Model.Merged[1] = Parent{} },
		"merged from many":       func(e *Entry) { m := e.File.Model; m.Merged = times(1025, m.Merged[0]) },
		"graph's object":         func(e *Entry) { e.File.Model.Graph[0].Object = id(0x33) },
		"graph's offset":         func(e *Entry) { e.File.Model.Graph[0].Off = 0 },
		"graph of many":          func(e *Entry) { e.File.Model.Graph = times(1025, e.File.Model.Graph[0]) },
		"source":                 func(e *Entry) { e.File.Model.Source = xs(maxSource + 1) },
		"over itself":            func(e *Entry) { e.Over[0].Writer = me },
		"over nothing":           func(e *Entry) { e.Over[0].Version = 0 },
		"over twice":             func(e *Entry) { e.Over[1] = e.Over[0] },
		"over descends":          func(e *Entry) { slices.Reverse(e.Over) },
		"inline of 2 KiB and 1":  func(e *Entry) { e.File = &File{Size: 2049, Inline: xs(2049)} },
		"link of nothing":        func(e *Entry) { e.Kind, e.File = KindLink, nil },
		"link with a 0":          func(e *Entry) { e.Kind, e.File, e.Link = KindLink, nil, "a\x00" },
		"link of a 0":            func(e *Entry) { e.Kind, e.File, e.Link = KindLink, nil, "\x00" },
		"link, long":             func(e *Entry) { e.Kind, e.File, e.Link = KindLink, nil, xs(4096) },
		"link with metrics":      func(e *Entry) { *e = withMetric(Entry{Kind: KindLink, Link: "x"}, "a") },
		"tombstone with metrics": func(e *Entry) { *e = withMetric(Entry{Kind: KindTombstone}, "a") },
		"metric without name":    func(e *Entry) { *e = withMetric(*e, "") },
		"metric, long name":      func(e *Entry) { *e = withMetric(*e, xs(256)) },
		"metric, control":        func(e *Entry) { *e = withMetric(*e, "a\n") },
		"metric, delete":         func(e *Entry) { *e = withMetric(*e, "a\x7f") },
		"metric, no UTF-8":       func(e *Entry) { *e = withMetric(*e, "\xff") },
		"metric twice":           func(e *Entry) { e.Metrics = []Metric{{"a", 1}, {"a", 1}} },
		"metrics descend":        func(e *Entry) { e.Metrics = []Metric{{"b", 1}, {"a", 1}} },
		"many metrics":           func(e *Entry) { e.Metrics = metrics(MaxMetrics + 1) },
		"attribute":              func(e *Entry) { *e = withAttr("trusted.x", "") },
		"attribute, no name":     func(e *Entry) { *e = withAttr("user.", "") },
		"attribute, ours":        func(e *Entry) { *e = withAttr("user.ckptfs", "") },
		"attribute, of ours":     func(e *Entry) { *e = withAttr("user.ckptfs.record", "") },
		"attribute, a 0":         func(e *Entry) { *e = withAttr("user.a\x00", "") },
		"attribute, long":        func(e *Entry) { *e = withAttr("user."+xs(251), "") },
		"attribute, long value":  func(e *Entry) { *e = withAttr("user.a", xs(64<<10+1)) },
		"attribute twice":        func(e *Entry) { *e = withAttr("user.a", "", "user.a", "") },
		"attributes descend":     func(e *Entry) { *e = withAttr("user.b", "", "user.a", "") },
	} {
		e := exampleFile()
		spoil(&e)
		d := rawDictionary(ArchiveWriter, append(exampleEntries(), e))
		_, _, encode := EncodeTable(ArchiveWriter, id(1), []Entry{e})
		_, decode := readList(d, d.appendEntries(nil, []Entry{e}))
		refused(t, name, encode, decode)
	}
	// What no bytes stand for.
	gone := Entry{Path: "runs/a", Kind: KindTombstone, Origin: me, Version: 1}
	for name, spoil := range map[string]func(e *Entry){
		"file without file":   func(e *Entry) { e.File = nil },
		"folder with file":    func(e *Entry) { e.Kind = KindFolder },
		"file with link":      func(e *Entry) { e.Link = "x" },
		"file with attribute": func(e *Entry) { e.Attrs = []Attr{{"user.a", ""}} },
		"tombstone, mode":     func(e *Entry) { *e = gone; e.Mode = 1 },
		"tombstone, mtime":    func(e *Entry) { *e = gone; e.MTime = 1 },
		"removed a tombstone": func(e *Entry) { *e = gone; e.Removed = &Removed{Entry: gone} },
		"removed another":     func(e *Entry) { f := *e; *e = gone; e.Removed = &Removed{Entry: f} },
		"removed, and over": func(e *Entry) {
			f := *e
			f.Path = gone.Path
			*e = gone
			e.Removed = &Removed{Entry: f}
		},
		"file with removed": func(e *Entry) {
			e.Removed = &Removed{Entry: Entry{Path: e.Path, Kind: KindFolder, Origin: me, Version: 1}}
		},
		"manifest and inline": func(e *Entry) { e.File.Inline = "x" },
		"inline and size":     func(e *Entry) { e.File = &File{Size: 1} },
		"inline and plan":     func(e *Entry) { e.File = &File{Plan: e.File.Plan} },
		"inline and deps":     func(e *Entry) { e.File = &File{Deps: []ID{id(1)}} },
		"inline and model":    func(e *Entry) { e.File = &File{Model: &Model{}} },
		"offset":              func(e *Entry) { e.File.Plan.Off++ },
		"no such writer":      func(e *Entry) { e.Origin = "who" },
		"over no such writer": func(e *Entry) { e.Over[0].Writer = "who" },
	} {
		e := exampleFile()
		spoil(&e)
		if _, _, err := EncodeTable(ArchiveWriter, id(1), []Entry{e}); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func xs(n int) string { return strings.Repeat("x", n) }

func times[T any](n int, one T) []T { return slices.Repeat([]T{one}, n) }

func withMetric(e Entry, name string) Entry {
	e.Path, e.Origin, e.Version, e.Metrics = "runs/a/3/model.pt", me, 1, []Metric{{name, 1}}
	return e
}

// metrics is n of them.
func metrics(n int) (ms []Metric) {
	for i := range n {
		ms = append(ms, Metric{fmt.Sprintf("%05d", i), 1})
	}
	return ms
}

func withAttr(pairs ...string) Entry {
	e := Entry{Path: "runs/a", Kind: KindFolder, Origin: me, Version: 1}
	for i := 0; i < len(pairs); i += 2 {
		e.Attrs = append(e.Attrs, Attr{pairs[i], pairs[i+1]})
	}
	return e
}

// What is as large as it may be.
func TestEntryBounds(t *testing.T) {
	for name, grow := range map[string]func(e *Entry){
		"inline":     func(e *Entry) { e.File = &File{Size: MaxInline, Inline: xs(MaxInline)} },
		"size":       func(e *Entry) { e.File.Size = math.MaxInt64 },
		"mode":       func(e *Entry) { e.Mode = 0o777 },
		"plan":       func(e *Entry) { e.File.Plan.Off = MaxObject - 88; e.File.Plan.Stored = 8 },
		"stored":     func(e *Entry) { e.File.Plan.Stored = cas.MaxChunk },
		"how":        func(e *Entry) { e.File.Model.How = xs(31) + "~" },
		"merged":     func(e *Entry) { m := e.File.Model; m.Merged = times(1024, m.Merged[0]) },
		"graph":      func(e *Entry) { e.File.Model.Graph = times(1024, e.File.Model.Graph[0]) },
		"source":     func(e *Entry) { e.File.Model.Source = xs(8 << 10) },
		"link":       func(e *Entry) { e.Kind, e.File, e.Link = KindLink, nil, xs(4095) },
		"metric":     func(e *Entry) { *e = withMetric(*e, xs(255)) },
		"metrics":    func(e *Entry) { e.Metrics = metrics(4096) },
		"attribute":  func(e *Entry) { *e = withAttr("user."+xs(250), xs(64<<10)) },
		"short name": func(e *Entry) { *e = withAttr("user.x", "") },
	} {
		e := exampleFile()
		grow(&e)
		p, _, err := EncodeTable(ArchiveWriter, id(1), []Entry{e})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, _, err := DecodeTable(ArchiveWriter, id(1), p); err != nil || !reflect.DeepEqual(got[0], e) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only the archive speaks for others.
func TestEntryOrigin(t *testing.T) {
	e := Entry{Path: "runs/a", Kind: KindTombstone, Origin: you, Version: 1}
	d := rawDictionary(me, []Entry{e})
	_, _, encode := EncodeTable(me, id(1), []Entry{e})
	_, decode := readList(d, d.appendEntries(nil, []Entry{e}))
	refused(t, "another's entry", encode, decode)
	for _, own := range []Writer{you, ArchiveWriter} {
		if _, _, err := EncodeTable(own, id(1), []Entry{e}); err != nil {
			t.Errorf("%s: %v", own, err)
		}
	}
}

// A list ascends, by path and origin.
func TestEntriesOrder(t *testing.T) {
	swap := func(i, j int) []Entry {
		es := exampleEntries()
		es[i], es[j] = es[j], es[i]
		return es
	}
	for name, es := range map[string][]Entry{
		"paths":           swap(0, 1),
		"the slash":       swap(5, 6),
		"origins":         swap(3, 4),
		"an origin twice": append(exampleEntries(), exampleEntries()[6]),
	} {
		d := rawDictionary(ArchiveWriter, es)
		_, _, encode := EncodeTable(ArchiveWriter, id(1), es)
		_, decode := readList(d, d.appendEntries(nil, es))
		refused(t, name, encode, decode)
	}
	own := exampleEntries()[:0]
	for _, w := range []Writer{ArchiveWriter, me, you} { // the archive's own comes first
		own = append(own, Entry{Path: "runs/a", Kind: KindTombstone, Origin: w, Version: 1})
	}
	if _, _, err := EncodeTable(ArchiveWriter, id(1), own); err != nil {
		t.Error(err)
	}
}

// Bytes that stand for an entry, but are not those that it is encoded to, or name what is not there.
func TestEntryOneEncoding(t *testing.T) {
	d := &dictionary{own: me, Objects: []ID{id(1), id(2)}, Writers: []Writer{you}}
	p := func(shared, rest string) string { return shared + string(rune(len(rest))) + rest }
	tombstone := p("\x00", "runs/a") + "\x03\x00\x01"
	file := p("\x00", "runs/a") + "\x00\x00\x01\x00\x00\x05" + strings.Repeat("m", 32)
	good := []string{tombstone, tombstone + p("\x05", "b") + "\x03\x00\x01", file + "\x00\x08\x01\x01\x00",
		file + "\x01\x08\x01\x02\x00\x00"}
	for _, p := range good {
		if _, err := readList(d, []byte(p)); err != nil {
			t.Errorf("% x: %v", p, err)
		}
	}
	nan := func(bits uint64) string {
		folder := p("\x00", "runs/a") + "\x42\x00\x01\x00\x00\x00\x01\x01x"
		return string(le.AppendUint64([]byte(folder), bits))
	}
	es, err := readList(d, []byte(nan(0x7ff8000000000001)))
	if err != nil || !math.IsNaN(es[0].Metrics[0].Value) {
		t.Error(es, err)
	}
	for name, p := range map[string]string{
		"shares less":       tombstone + p("\x04", "/b") + "\x03\x00\x01",
		"shares more":       tombstone + p("\x07", "b") + "\x03\x00\x01",
		"flag of 128":       p("\x00", "runs/a") + "\x83\x00\x01",
		"kind 7":            p("\x00", "runs/a") + "\x07\x00\x01",
		"inline tombstone":  p("\x00", "runs/a") + "\x0b\x00\x01",
		"removed twice":     p("\x00", "runs/a") + "\x04\x00\x01\x00\x04\x00\x01\x00\x02\x00\x01\x00\x00\x00",
		"removed, gone":     p("\x00", "runs/a") + "\x04\x00\x01\x00\x03\x00\x01",
		"removed, over":     p("\x00", "runs/a") + "\x04\x00\x01\x00\x22\x00\x01\x00\x00\x00\x01\x01\x01",
		"model of none":     p("\x00", "runs/a") + "\x13\x00\x01",
		"model of inline":   p("\x00", "runs/a") + "\x18\x00\x01\x00\x00\x00\x00",
		"over none":         p("\x00", "runs/a") + "\x23\x00\x01\x00",
		"metrics of none":   p("\x00", "runs/a") + "\x42\x00\x01\x00\x00\x00\x00",
		"another NaN":       nan(0x7ff8000000000002),
		"writer 2":          p("\x00", "runs/a") + "\x03\x02\x01",
		"over writer 2":     p("\x00", "runs/a") + "\x23\x00\x01\x01\x02\x01",
		"object 2":          file + "\x02\x08\x01\x01\x00",
		"dep 2":             file + "\x00\x08\x01\x02\x00\x01",
		"dep far":           file + "\x00\x08\x01\x02\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"no deps":           file + "\x00\x08\x01\x00",
		"offset":            file + "\x00\x81\x80\x80\x04\x01\x01\x00",
		"stored":            file + "\x00\x08\x80\x80\x80\x08\x01\x00",
		"no manifest":       strings.Replace(file, "mmmm", "\x00\x00\x00\x00", 8) + "\x00\x08\x01\x01\x00",
		"mode":              p("\x00", "runs/a") + "\x02\x00\x01\x80\x04\x00\x00",
		"inline, cut":       p("\x00", "runs/a") + "\x08\x00\x01\x00\x00\x03ab",
		"inline, long":      p("\x00", "runs/a") + "\x08\x00\x01\x00\x00\x81\x10" + strings.Repeat("x", 2049),
		"rest of a path":    p("\x00", "runs/a") + "\x03\x00",
		"a path past 4,096": "\x00\x81\x20runs/" + strings.Repeat("/x", 2046) + "\x03\x00\x01",
	} {
		if _, err := readList(d, []byte(p)); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	modelOf := func(m string) []byte {
		p := strings.Replace(file, "runs/a\x00", "runs/a\x10", 1) + "\x00\x08\x01\x01\x00"
		return []byte(p + string(rune(len(m))) + m)
	}
	for m, want := range map[string]error{
		"\x00\x00\x00\x00\x00":                           nil,
		"\x00\x00\x00\x00\x00\x00":                       cas.ErrCorrupt, // a rest
		"\x00\x00\x00\x00":                               cas.ErrCorrupt, // cut
		"\x06runs/b\x00\x01h\x00\x00\x00":                nil,
		"\x06runs/b\x01x\x01h\x00\x00\x00":               cas.ErrCorrupt, // a manifest of one byte
		"\x00\x00\x01\x06runs/b\x00\x00\x00":             nil,
		"\x06runs/b\x20" + zeros32 + "\x01h\x00\x00\x00": cas.ErrCorrupt, // no manifest in full
	} {
		if _, err := readList(d, modelOf(m)); !errors.Is(err, want) {
			t.Errorf("model % x: %v", m, err)
		}
	}
}

var zeros32 = strings.Repeat("\x00", 32)

// Every list is what its bytes say, and no other bytes say it.
func TestEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own := drawOwn(t)
		entries := drawEntries(t, own, 0)
		d, err := newDictionary(own, entries)
		if err == nil {
			err = d.checkEntries(entries, maxTailPaths)
		}
		if err != nil {
			t.Fatal(err)
		}
		p := d.appendEntries(nil, entries)
		got, err := readList(d, p)
		if err != nil || !reflect.DeepEqual(got, entries) {
			t.Fatalf("%v: %+v, want %+v", err, got, entries)
		}
		checkAgain(t, mutate(t, p), func(p []byte) ([]byte, error) {
			entries, err := readList(d, p)
			checkHarmless(t, entries)
			return d.appendEntries(nil, entries), err
		})
	})
}
