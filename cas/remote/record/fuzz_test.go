package record

import (
	"math"
	"runtime"
	"testing"
)

// bounded holds that f takes no more memory in all than per bytes for each of n, and most.
func bounded(t testing.TB, n int, per, most uint64, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > per*uint64(n)+most {
		t.Fatalf("%d bytes of memory for %d", took, n)
	}
}

func FuzzPlan(f *testing.F) {
	p, err := examplePlan().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Fuzz(func(t *testing.T, p []byte) {
		bounded(t, len(p), 100, 1<<16, func() { checkAgain(t, p, planAgain) })
	})
}

// The entries of the archive, by themselves; those of heads and tables are fuzzed with what is around them.
func FuzzEntry(f *testing.F) {
	es := exampleEntries()
	d := rawDictionary(ArchiveWriter, es)
	f.Add(d.appendEntries(nil, es))
	for i := range es {
		f.Add(d.appendEntries(nil, es[i:i+1]))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		bounded(t, len(p), 1000, 1<<16+4*maxTailPaths, func() {
			checkAgain(t, p, func(p []byte) ([]byte, error) {
				entries, err := readList(d, p)
				checkHarmless(t, entries)
				return d.appendEntries(nil, entries), err
			})
		})
	})
}

// A table's blocks and its directory, with sums and a trailer that fit.
func FuzzTable(f *testing.F) {
	es := exampleEntries()
	for _, blocks := range [][][]Entry{{es}, {es[:3], es[3:]}} {
		p := rawTable(ArchiveWriter, blocks, func(*Directory) {})
		n := le.Uint64(p[len(p)-trailerSize+16:])
		f.Add(p[:n], p[n:len(p)-trailerSize], int64(len(es)))
	}
	f.Fuzz(func(t *testing.T, blocks, directory []byte, n int64) {
		p := append(append([]byte(nil), blocks...), directory...)
		p = mend(appendTrailer(p, Table{Directory: int64(len(blocks)), Entries: n}))
		checkAgain(t, p, tableAgain)
		entries, tab, err := DecodeTable(ArchiveWriter, id(0x77), p)
		if err != nil {
			return
		}
		checkHarmless(t, entries)
		d, err := tab.Open(ArchiveWriter, p[tab.Directory:])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			reads := 0
			if found, err := d.Find(e.Path, read(p, &reads)); err != nil || len(found) == 0 {
				t.Fatalf("%s: %v, %v", e.Path, found, err)
			}
		}
	})
}

// A head with a checksum that fits.
func FuzzHead(f *testing.F) {
	for _, h := range []*Head{exampleHead(), {Remote: id(1), Stamp: 9}, {}} {
		p, err := h.Encode(ArchiveWriter)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		p = sum(append([]byte(nil), p...))
		bounded(t, len(p), 1000, 1<<16+4*maxTailPaths, func() { checkAgain(t, p, headAgain) })
		if h, err := DecodeHead(ArchiveWriter, p); err == nil {
			checkHarmless(t, h.Tail)
		}
	})
}

func FuzzKey(f *testing.F) {
	for _, key := range keys {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) { checkKey(t, key) })
}

// What says that there is much, in few bytes, takes no memory; and what is much takes it in proportion.
func TestBombs(t *testing.T) {
	huge := num(nil, math.MaxInt64)
	count := num(nil, 1<<20)
	plan := append([]byte(planMagic), make([]byte, 33)...)
	for name, p := range map[string][]byte{
		"objects": append(plan, huge...),
		"no more": append(append(plan, count...), make([]byte, 1<<20)...),
		"chunks": append(append(append(plan, 1), make([]byte, 16)...), append([]byte{200, 1, 2, 0, 16, 1, 0},
			append(num(nil, 1<<20), make([]byte, 1<<20)...)...)...),
	} {
		bounded(t, len(p), 25, 1<<16, func() {
			if _, err := DecodePlan(p); err == nil {
				t.Errorf("%s: a plan", name)
			}
		})
	}
	h := exampleHead()
	h.Tail = nil
	short, _ := h.Encode(ArchiveWriter)
	short = short[:len(short)-4] // ends with two empty lists and an empty tail
	for name, p := range map[string][]byte{
		"runs":    append(short[:headFixed:headFixed], huge...),
		"tables":  append(short[:headFixed+1:headFixed+1], huge...),
		"objects": append(short[:len(short)-2:len(short)-2], count...),
		"writers": append(short[:len(short)-1:len(short)-1], count...),
		"a path":  append(short[:len(short):len(short)], append([]byte{0}, huge...)...),
	} {
		p = append(p, 0, 0, 0, 0)
		bounded(t, len(p), 100, 1<<16, func() {
			if _, err := DecodeHead(ArchiveWriter, sum(p)); err == nil {
				t.Errorf("%s: a head", name)
			}
		})
	}
	// Paths that share what they are made of, far past their bound.
	h.Tail = manyPaths(20_000)
	p := rawHead(ArchiveWriter, h)
	bounded(t, len(p), 100, 3*maxTailPaths/2, func() {
		if _, err := DecodeHead(ArchiveWriter, p); err == nil {
			t.Error("80 MB of paths: a head")
		}
	})
	// A full head of the least entries, and one of the longest paths.
	var least []Entry
	for a := range 100_000 {
		path := []byte("runs/a/\x01\x01\x01")
		for i, n := 0, a; i < 3; i, n = i+1, n/47 {
			path[9-i] = '0' + byte(n%47)
		}
		least = append(least, Entry{Path: string(path), Kind: KindTombstone, Origin: ArchiveWriter,
			Version: 1})
	}
	for name, tail := range map[string][]Entry{"entries": least, "paths": manyPaths(4_000)} {
		h.Tail = tail
		p, err := h.Encode(ArchiveWriter)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		bounded(t, len(p), 1000, 4*maxTailPaths, func() {
			if _, err := DecodeHead(ArchiveWriter, p); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
