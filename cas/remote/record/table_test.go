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

// tableAgain decodes and encodes one of the archive.
func tableAgain(p []byte) ([]byte, error) {
	entries, t, err := DecodeTable(ArchiveWriter, id(0x77), p)
	if err != nil {
		return nil, err
	}
	q, again, err := EncodeTable(ArchiveWriter, id(0x77), entries)
	if err == nil && again != t {
		err = fmt.Errorf("%+v, want %+v", again, t)
	}
	return q, err
}

// mend sets the sums and checksums of a table to what its bytes have.
func mend(p []byte) []byte {
	n := len(p) - trailerSize
	if n < 0 || le.Uint64(p[n+16:]) > uint64(n) {
		return p
	}
	at := int64(le.Uint64(p[n+16:]))
	r := newReader(p[at:n], "directory")
	for i := r.Num(); i > 0 && r.Err == nil; i-- {
		_ = r.String()
		r.Num()
		r.Num()
		r.Num()
		r.Zigzag()
	}
	for i := r.Num(); i > 0 && r.Err == nil; i-- {
		r.id()
	}
	for i := r.Num(); i > 0 && r.Err == nil; i-- {
		_ = r.String()
	}
	off := int64(0)
	for i := r.Num(); i > 0 && r.Err == nil; i-- {
		_ = r.String()
		size := r.Num()
		if sum := r.Take(16); sum != nil && size <= at-off {
			*(*[16]byte)(sum) = blockSum(p[off : off+size])
			off += size
		}
	}
	le.PutUint32(p[n+56:], crc(p[at:n]))
	le.PutUint32(p[n+60:], crc(p[n:n+60]))
	return p
}

// rawTable makes a table of these blocks, after change has had its way with the directory.
func rawTable(own Writer, blocks [][]Entry, change func(d *Directory)) []byte {
	all := slices.Concat(blocks...)
	d := &Directory{dictionary: *rawDictionary(own, all)}
	var p []byte
	for _, es := range blocks {
		b := d.appendEntries(nil, es)
		d.Blocks = append(d.Blocks, Block{First: es[0].Path, Off: int64(len(p)), Len: int64(len(b)),
			Sum: blockSum(b)})
		for i := range es {
			d.count(&es[i])
		}
		p = append(p, b...)
	}
	change(d)
	t := Table{Directory: int64(len(p)), Entries: int64(len(all))}
	return appendTrailer(d.append(p), t)
}

// describe is what a head would say of a table, without asking whether it is one.
func describe(p []byte, first, last string) Table {
	n := len(p) - trailerSize
	t := Table{ID: id(0x77), Len: int64(len(p)), Directory: int64(le.Uint64(p[n+16:])),
		Entries: int64(le.Uint64(p[n+24:])), First: first, Last: last}
	t.Hash = cas.Sum(p[t.Directory:])
	return t
}

// A table that is as a head says, with blocks that are as the directory says, is still refused as a whole.
func TestTableOneEncoding(t *testing.T) {
	es := exampleEntries()
	raw := func(change func(d *Directory)) []byte { return rawTable(ArchiveWriter, [][]Entry{es}, change) }
	for name, p := range map[string][]byte{
		"cut early":        rawTable(ArchiveWriter, [][]Entry{es[:3], es[3:]}, func(*Directory) {}),
		"a run's entries":  raw(func(d *Directory) { d.Runs[1].Entries++ }),
		"a run's bytes":    raw(func(d *Directory) { d.Runs[1].Bytes-- }),
		"a run's mtime":    raw(func(d *Directory) { d.Runs[1].Newest++ }),
		"another run":      raw(func(d *Directory) { d.Runs[1].Name = "runs/0" }),
		"a run too few":    raw(func(d *Directory) { d.Runs = d.Runs[:2] }),
		"an object unused": raw(func(d *Directory) { d.Objects = append(d.Objects, id(0x56)) }),
		"a writer unused":  raw(func(d *Directory) { d.Writers = append(d.Writers, "zz.00000000") }),
		"entries": mend(func() []byte {
			p := raw(func(*Directory) {})
			p[len(p)-trailerSize+24]++
			return p
		}()),
		"zeros": mend(func() []byte {
			p := raw(func(*Directory) {})
			p[len(p)-trailerSize+40]++
			return p
		}()),
	} {
		if _, err := tableAgain(p); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		tab := describe(p, es[0].Path, es[6].Path)
		if _, err := tab.Open(ArchiveWriter, p[tab.Directory:]); err != nil {
			t.Errorf("%s: open: %v", name, err)
		}
	}
	p := raw(func(*Directory) {})
	if q, err := tableAgain(p); err != nil || string(q) != string(p) {
		t.Errorf("as it should be: %v", err)
	}
}

// What is wrong with a directory by itself is seen when it is opened, and whatever head names it.
func TestDirectoryCheck(t *testing.T) {
	es := exampleEntries()
	for name, change := range map[string]func(d *Directory){
		"no blocks":           func(d *Directory) { d.Blocks = nil },
		"a block's path":      func(d *Directory) { d.Blocks[1].First = "runs" },
		"blocks descend":      func(d *Directory) { d.Blocks[1].First = "exports/a" },
		"a block of nothing":  func(d *Directory) { d.Blocks[0].Len += d.Blocks[1].Len; d.Blocks[1].Len = 0 },
		"a byte too few":      func(d *Directory) { d.Blocks[1].Len-- },
		"a byte too many":     func(d *Directory) { d.Blocks[1].Len++ },
		"a run's name":        func(d *Directory) { d.Runs[1].Name = "runs/a/3" },
		"a run's path":        func(d *Directory) { d.Runs[1].Name = "runs/.." },
		"runs descend":        func(d *Directory) { d.Runs[0].Name = "runs/z" },
		"a run twice":         func(d *Directory) { d.Runs[1].Name = d.Runs[0].Name },
		"a run's block":       func(d *Directory) { d.Runs[2].Block = 2 },
		"runs' blocks":        func(d *Directory) { d.Runs[0].Block = 1 },
		"a run of nothing":    func(d *Directory) { d.Runs[1].Entries = 0 },
		"objects descend":     func(d *Directory) { d.Objects[0] = id(0xff) },
		"an object twice":     func(d *Directory) { d.Objects[1] = d.Objects[0] },
		"writers descend":     func(d *Directory) { slices.Reverse(d.Writers) },
		"a writer twice":      func(d *Directory) { d.Writers[1] = d.Writers[0] },
		"the own writer":      func(d *Directory) { d.Writers[0] = d.own },
		"no writer":           func(d *Directory) { d.Writers[0] = "gpu" },
		"a block of too much": func(d *Directory) { d.Blocks[0].Len = MaxEntry + 1 },
	} {
		p := rawTable(ArchiveWriter, [][]Entry{es[:3], es[3:]}, change)
		if name == "a block of too much" { // with the bytes to it
			p = rawTable(ArchiveWriter, [][]Entry{{{Path: "runs/a", Kind: KindFolder, Origin: me, Version: 1,
				Attrs: wide(17)}}}, func(*Directory) {})
		}
		_, _, whole := DecodeTable(ArchiveWriter, id(0x77), p)
		tab := describe(p, es[0].Path, es[6].Path)
		if name == "a block of too much" {
			tab.First, tab.Last = "runs/a", "runs/a"
		}
		_, opened := tab.Open(ArchiveWriter, p[tab.Directory:])
		for _, err := range []error{whole, opened} {
			if !errors.Is(err, cas.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Nothing stands between the directory and the trailer.
func TestDirectoryRest(t *testing.T) {
	es := exampleEntries()
	p := rawTable(ArchiveWriter, [][]Entry{es}, func(*Directory) {})
	p = mend(slices.Insert(p, len(p)-trailerSize, 0))
	tab := describe(p, es[0].Path, es[6].Path)
	if _, err := tab.Open(ArchiveWriter, p[tab.Directory:]); !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
}

// wide is attributes of n times 64 KiB.
func wide(n int) (attrs []Attr) {
	for i := range n {
		attrs = append(attrs, Attr{fmt.Sprintf("user.%02d", i), strings.Repeat("v", maxAttrValue)})
	}
	return attrs
}

// What a head says of a table that no table is.
func TestTableCheck(t *testing.T) {
	p, good, err := EncodeTable(ArchiveWriter, id(0x77), exampleEntries())
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(t *Table){
		"length":        func(t *Table) { t.Len = MaxObject + 1 },
		"no blocks":     func(t *Table) { t.Directory = 0 },
		"no trailer":    func(t *Table) { t.Directory = t.Len - trailerSize + 1 },
		"no entries":    func(t *Table) { t.Entries = 0 },
		"many entries":  func(t *Table) { t.Entries = t.Directory + 1 },
		"first":         func(t *Table) { t.First = "a/b" },
		"last":          func(t *Table) { t.Last = "" },
		"last to first": func(t *Table) { t.First, t.Last = t.Last, t.First },
		"one, two":      func(t *Table) { t.Entries = 1 },
	} {
		tab := good
		spoil(&tab)
		h := exampleHead()
		h.Tables[0] = tab
		_, encode := h.Encode(ArchiveWriter)
		_, decode := DecodeHead(ArchiveWriter, rawHead(ArchiveWriter, h))
		refused(t, name, encode, decode)
		if _, err := tab.Open(ArchiveWriter, p[good.Directory:]); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: opened: %v", name, err)
		}
	}
	dir := p[good.Directory:]
	for name, spoil := range map[string]func(t *Table, dir []byte) []byte{
		"another hash":  func(t *Table, dir []byte) []byte { t.Hash = hash(1); return dir },
		"a bit":         func(_ *Table, dir []byte) []byte { dir[3] ^= 1; return dir },
		"a byte less":   func(_ *Table, dir []byte) []byte { return dir[1:] },
		"nothing":       func(*Table, []byte) []byte { return nil },
		"another first": func(t *Table, dir []byte) []byte { t.First = "exports/a"; return dir },
		"another count": func(t *Table, dir []byte) []byte { t.Entries++; return dir },
		"another begin": func(t *Table, dir []byte) []byte { t.Directory--; t.Len--; return dir },
		"the hash of a part": func(t *Table, dir []byte) []byte {
			dir = dir[:trailerSize-1]
			t.Hash = cas.Sum(dir)
			return dir
		},
		"no trailer": func(t *Table, dir []byte) []byte {
			n := len(dir) - trailerSize
			dir[n]++
			le.PutUint32(dir[n+60:], crc(dir[n:n+60]))
			t.Hash = cas.Sum(dir)
			return dir
		},
		"a trailer's CRC": func(t *Table, dir []byte) []byte {
			dir[len(dir)-1]++
			t.Hash = cas.Sum(dir)
			return dir
		},
		"a version 0": func(t *Table, dir []byte) []byte {
			q := append([]byte(nil), p...)
			q[len(q)-trailerSize+8]--
			q = mend(q)[t.Directory:]
			t.Hash = cas.Sum(q)
			return q
		},
		"the directory's CRC": func(t *Table, dir []byte) []byte {
			n := len(dir) - trailerSize
			dir[n+56]++
			le.PutUint32(dir[n+60:], crc(dir[n:n+60]))
			t.Hash = cas.Sum(dir)
			return dir
		},
	} {
		tab := good
		q := spoil(&tab, slices.Clone(dir))
		if _, err := tab.Open(ArchiveWriter, q); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p[len(p)-trailerSize+8]++
	mend(p)
	good.Hash = cas.Sum(dir)
	if _, err := good.Open(ArchiveWriter, dir); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a later version: %v", err)
	}
	if _, err := tableAgain(p); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a later version: %v", err)
	}
}

// Whole tables that are cut, or whose directory lies outside.
func TestTableCut(t *testing.T) {
	p, tab, err := EncodeTable(ArchiveWriter, id(0x77), exampleEntries())
	if err != nil {
		t.Fatal(err)
	}
	for n := range p {
		if _, err := tableAgain(p[:n]); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, at := range []uint64{0, uint64(tab.Len - trailerSize + 1), 1 << 63, math.MaxUint64} {
		q := slices.Clone(p)
		n := len(q) - trailerSize
		le.PutUint64(q[n+16:], at)
		le.PutUint32(q[n+60:], crc(q[n:n+60]))
		if _, err := tableAgain(q); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("directory at %d: %v", at, err)
		}
	}
}

// A block is what the directory says, and in its place.
func TestBlockCheck(t *testing.T) {
	es := exampleEntries()
	long := Entry{Path: "runs/b", Kind: KindFolder, Origin: me, Version: 1, Attrs: wide(1)}
	paths := manyPaths(300)
	for name, c := range map[string]struct {
		first, last string
		blocks      [][]Entry
		change      func(d *Directory)
	}{
		"begins later": {"exports/b", "runs/a-b", [][]Entry{es},
			func(d *Directory) { d.Blocks[0].First = "exports/b" }},
		"ends later": {"exports/base", "runs/a-b", [][]Entry{es[:6], es[6:]},
			func(d *Directory) { d.Blocks[1].First = "runs/a/3" }},
		"past the last": {"exports/base", "runs/a/30", [][]Entry{es}, func(*Directory) {}},
		"too long":      {"runs/a-b", "runs/b", [][]Entry{{es[7], long}}, func(*Directory) {}},
		"many paths":    {paths[0].Path, paths[299].Path, [][]Entry{paths}, func(*Directory) {}},
		"another sum": {"exports/base", "runs/a-b", [][]Entry{es},
			func(d *Directory) { d.Blocks[0].Sum[15]++ }},
	} {
		p := rawTable(ArchiveWriter, c.blocks, c.change)
		tab := describe(p, c.first, c.last)
		d, err := tab.Open(ArchiveWriter, p[tab.Directory:])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		b := p[d.Blocks[0].Off:][:d.Blocks[0].Len]
		if _, err := d.Block(0, b); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := d.Block(0, b[:len(b)-1]); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s, cut: %v", name, err)
		}
		// Only a head says which is the last.
		if _, err := tableAgain(p); !errors.Is(err, cas.ErrCorrupt) && name != "past the last" {
			t.Errorf("%s, whole: %v", name, err)
		}
		d.Blocks[0].First, d.Blocks[0].Sum = c.blocks[0][0].Path, blockSum(b)
		d.Blocks[0].Len++
		if _, err := d.Block(0, b); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("%s, longer in the directory: %v", name, err)
		}
	}
}

// manyPaths is n tombstones of paths of 4,096 bytes that share most of them.
func manyPaths(n int) (es []Entry) {
	p := "runs" + strings.Repeat("/"+strings.Repeat("n", 255), 15)
	p += "/" + strings.Repeat("n", MaxPath-len(p)-9)
	for i := range n {
		es = append(es, Entry{Path: fmt.Sprintf("%s%08d", p, i), Kind: KindTombstone, Origin: ArchiveWriter,
			Version: 1})
	}
	return es
}

// read reads ranges of p, and counts them.
func read(p []byte, reads *int) func(off, n int64) ([]byte, error) {
	return func(off, n int64) ([]byte, error) {
		*reads++
		return p[off : off+n], nil
	}
}

// Many entries are cut into blocks, of which a path needs one; a run needs its own.
func TestTableBlocks(t *testing.T) {
	var es []Entry
	for run := range 20 {
		for step := range 200 {
			dir := fmt.Sprintf("runs/run-%02d/%04d", run, step)
			es = append(es, Entry{Path: dir, Kind: KindFolder, Origin: me, Version: 1, MTime: int64(run)},
				Entry{Path: dir + "/model.pt", Kind: KindFile, Origin: me, Version: 1, MTime: int64(step),
					File: &File{Size: 1000, Manifest: hash(9), Plan: Ref{id(byte(step)), 64, 9},
						Deps: []ID{id(byte(step))}}})
		}
	}
	p, tab, err := EncodeTable(me, id(0x77), es)
	if err != nil {
		t.Fatal(err)
	}
	got, again, err := DecodeTable(me, id(0x77), p)
	if err != nil || again != tab || !reflect.DeepEqual(got, es) {
		t.Fatalf("%v: %+v, want %+v", err, again, tab)
	}
	d, err := tab.Open(me, p[tab.Directory:])
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Blocks) < 4 || len(d.Runs) != 20 || len(d.Objects) != 200 {
		t.Fatalf("%d blocks, %d runs, %d objects", len(d.Blocks), len(d.Runs), len(d.Objects))
	}
	for i, b := range d.Blocks {
		if b.Len > MaxBlock || i+1 < len(d.Blocks) && b.Len < MaxBlock-1000 {
			t.Errorf("block %d of %d bytes", i, b.Len)
		}
	}
	for i, r := range d.Runs {
		if r.Entries != 400 || r.Bytes != 200_000 || r.Newest != max(199, int64(i)) {
			t.Errorf("%+v", r)
		}
		lo, hi := d.Below(r.Name)
		n := 0
		for j, b := range d.Blocks {
			entries, err := d.Block(j, p[b.Off:b.Off+b.Len])
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if RunOf(e.Path) != r.Name {
					continue
				}
				if n++; j < lo || j >= hi {
					t.Errorf("%s: %s is in block %d, not of %d to %d", r.Name, e.Path, j, lo, hi)
				}
			}
		}
		if n != 400 || hi-lo > 3 {
			t.Errorf("%s: %d entries in blocks %d to %d", r.Name, n, lo, hi)
		}
	}
	for i := 0; i < len(es); i += 97 {
		reads := 0
		found, err := d.Find(es[i].Path, read(p, &reads))
		if err != nil || len(found) != 1 || !reflect.DeepEqual(found[0], es[i]) || reads > 2 {
			t.Fatalf("%s: %v, %v, %d reads", es[i].Path, found, err, reads)
		}
	}
	for _, path := range []string{"exports/a", "runs/run-03/0100/x", "runs/run-0", "runs/z"} {
		reads := 0
		if found, err := d.Find(path, read(p, &reads)); err != nil || len(found) != 0 || reads > 1 {
			t.Errorf("%s: %v, %v, %d reads", path, found, err, reads)
		}
	}
	failed := errors.New("no network")
	for want, answer := range map[error]func(_, n int64) ([]byte, error){
		failed:         func(int64, int64) ([]byte, error) { return nil, failed },
		cas.ErrCorrupt: func(_, n int64) ([]byte, error) { return make([]byte, n), nil },
	} {
		if _, err := d.Find(es[0].Path, answer); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// What one path has of several writers may lie in several blocks.
func TestFindAcrossBlocks(t *testing.T) {
	es := []Entry{{Path: "runs/a", Kind: KindTombstone, Origin: ArchiveWriter, Version: 1}}
	for _, w := range []Writer{me, you, third} {
		es = append(es, Entry{Path: "runs/b", Kind: KindFolder, Origin: w, Version: 1, Attrs: wide(1)})
	}
	es = append(es, Entry{Path: "runs/c", Kind: KindTombstone, Origin: ArchiveWriter, Version: 1})
	p, tab, err := EncodeTable(ArchiveWriter, id(1), es)
	if err != nil {
		t.Fatal(err)
	}
	d, err := tab.Open(ArchiveWriter, p[tab.Directory:])
	if err != nil {
		t.Fatal(err)
	}
	reads := 0
	found, err := d.Find("runs/b", read(p, &reads))
	if err != nil || len(d.Blocks) != 5 || reads != 4 || !reflect.DeepEqual(found, es[1:4]) {
		t.Errorf("%d entries in %d blocks, %d reads: %v", len(found), len(d.Blocks), reads, err)
	}
}

// Bounds of what a table holds.
func TestTableTooLarge(t *testing.T) {
	folder := func(attrs []Attr) []Entry {
		return []Entry{{Path: "runs/a", Kind: KindFolder, Origin: me, Version: 1, Attrs: attrs}}
	}
	full := folder(wide(16))
	last := &full[0].Attrs[15].Value
	*last = xs(60_000)
	_, tab, err := EncodeTable(me, id(1), full)
	if err != nil {
		t.Fatal(err)
	}
	*last = xs(60_000 + MaxEntry - int(tab.Directory))
	p, tab, err := EncodeTable(me, id(1), full)
	if err != nil || tab.Directory != MaxEntry {
		t.Fatalf("an entry of %d bytes: %v", tab.Directory, err)
	}
	if _, _, err := DecodeTable(me, id(1), p); err != nil {
		t.Errorf("an entry of 1 MiB: %v", err)
	}
	if _, _, err := EncodeTable(me, id(1), folder(wide(17))); !errors.Is(err, cas.ErrTooLarge) {
		t.Errorf("an entry of more than 1 MiB: %v", err)
	}
	var es []Entry
	for i := range 17_000 {
		es = append(es, Entry{Path: fmt.Sprintf("runs/%06d", i), Kind: KindLink, Origin: me, Version: 1,
			Link: strings.Repeat("l", maxLink)})
	}
	if _, _, err := EncodeTable(me, id(1), es); !errors.Is(err, cas.ErrTooLarge) {
		t.Errorf("more than 64 MiB: %v", err)
	}
	if _, _, err := EncodeTable(me, id(1), nil); err == nil {
		t.Error("a table of nothing")
	}
	es = manyPaths(300)
	p, tab, err = EncodeTable(ArchiveWriter, id(1), es)
	if err != nil {
		t.Fatal(err)
	}
	d, err := tab.Open(ArchiveWriter, p[tab.Directory:])
	if err != nil || len(d.Blocks) != 2 {
		t.Errorf("paths of 1.2 MB in %d blocks: %v", len(d.Blocks), err)
	}
	if got, _, err := DecodeTable(ArchiveWriter, id(1), p); err != nil || len(got) != 300 {
		t.Errorf("%d entries: %v", len(got), err)
	}
}

// Sums of sizes stop at the greatest number; a run of tombstones has no time.
func TestRunFigures(t *testing.T) {
	big := File{Size: math.MaxInt64 - 1, Manifest: hash(1), Plan: Ref{id(1), 64, 1}, Deps: []ID{id(1)}}
	es := []Entry{
		{Path: "runs/a/1", Kind: KindFile, Origin: me, Version: 1, MTime: -9, File: &big},
		{Path: "runs/a/2", Kind: KindFile, Origin: me, Version: 1, MTime: -7, File: &big},
		{Path: "runs/b", Kind: KindTombstone, Origin: me, Version: 1},
	}
	p, tab, err := EncodeTable(me, id(1), es)
	if err != nil {
		t.Fatal(err)
	}
	d, err := tab.Open(me, p[tab.Directory:])
	want := []Run{{"runs/a", 0, 2, math.MaxInt64, -7}, {"runs/b", 0, 1, 0, 0}}
	if err != nil || !slices.Equal(d.Runs, want) {
		t.Errorf("%+v, %v", d.Runs, err)
	}
	if _, _, err := DecodeTable(me, id(1), p); err != nil {
		t.Error(err)
	}
}

// Every table is what its bytes say, and no other bytes say it.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := drawEntries(t, ArchiveWriter, 1)
		p, tab, err := EncodeTable(ArchiveWriter, id(0x77), entries)
		if err != nil {
			t.Fatal(err)
		}
		got, again, err := DecodeTable(ArchiveWriter, id(0x77), p)
		if err != nil || again != tab || !reflect.DeepEqual(got, entries) {
			t.Fatalf("%v: %+v, want %+v", err, got, entries)
		}
		d, err := tab.Open(ArchiveWriter, p[tab.Directory:])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			reads := 0
			found, err := d.Find(e.Path, read(p, &reads))
			if err != nil || !reflect.DeepEqual(found, find(entries, e.Path)) {
				t.Fatalf("%s: %v, %v", e.Path, found, err)
			}
		}
		q := mutate(t, p)
		if rapid.Bool().Draw(t, "mended") {
			q = mend(q)
		}
		checkAgain(t, q, tableAgain)
	})
}

// What is larger than 16 MiB is merged no more.
func TestMergeable(t *testing.T) {
	tables := func(sizes ...int64) (all []Table) {
		for _, n := range sizes {
			all = append(all, Table{Len: n})
		}
		return all
	}
	for _, c := range []struct {
		size  int64
		there []Table
		want  int
	}{
		{100, nil, 0}, {100, tables(100, 100), 0}, {100, tables(100, 200, 100), 3},
		{100, tables(100, 201, 100), 0},
		{100, tables(1, 1, 1, 1, 500), 4}, {5 << 20, tables(4<<20, 4<<20, 3<<20), 3},
		{5 << 20, tables(4<<20, 4<<20, 3<<20+1), 0}, {5 << 20, tables(1<<20, 1<<20, 1<<20, 9<<20), 3},
	} {
		if got := (&Table{Len: c.size}).Mergeable(c.there); got != c.want {
			t.Errorf("%d before %v: %d, want %d", c.size, c.there, got, c.want)
		}
	}
}
