package hdf5

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

// bound: what is read again is taken again, four times over.
var bound = fixture.Bound{Fixed: 4 << 20, PerByte: 200}

func FuzzParse(f *testing.F) { fixture.Fuzz(f, Parser{}, "hdf5/*.h5", bound) }

func TestChunks(t *testing.T) {
	l := fixture.Check(t, Parser{}, fixture.Read(t, "hdf5/chunked.h5"), bound)
	if l == nil || !l.Partial {
		t.Fatalf("%+v", l)
	}
	sizes := map[int64]int{}
	for _, r := range l.Regions {
		if r.Kind == formats.Data {
			sizes[r.Len]++
		}
	}
	// one and plain; many in four chunks of 20 rows; packed.
	if sizes[64*64*4] != 2 || sizes[20*64*4] != 4 {
		t.Errorf("data %v", sizes)
	}
}

func TestRefuses(t *testing.T) {
	whole := fixture.Read(t, "hdf5/groups.h5")
	put := func(at int, v uint64) []byte {
		p := bytes.Clone(whole)
		binary.LittleEndian.PutUint64(p[at:], v)
		return p
	}
	tree := bytes.Index(whole, []byte("TREE"))
	child := tree + treeHead + 8
	for name, p := range map[string][]byte{
		"empty":                 nil,
		"the signature alone":   whole[:8],
		"cut":                   whole[:len(whole)-1],
		"another version":       append(append(bytes.Clone(whole[:8]), 9), whole[9:]...),
		"addresses of 4 bytes":  append(append(bytes.Clone(whole[:13]), 4), whole[14:]...),
		"a base":                put(24, 512),
		"an end past the file":  put(40, uint64(len(whole)+1)),
		"the root past it":      put(64, 1<<62),
		"the root in the data":  put(64, 3),
		"a tree that is itself": put(child, uint64(tree)),
		"a child past the file": put(child, undefined-1),
	} {
		if l := fixture.Check(t, Parser{}, p, bound); l != nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// TestIndexes: chunks are found by a fixed array, in pages too, by a single address and implicitly, and those
// of datasets that grow.
func TestIndexes(t *testing.T) {
	p := fixture.Read(t, "hdf5/indexes.h5")
	l, err := parse(bytes.NewReader(p), int64(len(p)), 1)
	if err != nil || !l.Partial || l.Check(int64(len(p))) != nil {
		t.Fatalf("%+v, %v", l, err)
	}
	sizes := map[int64]int{}
	for _, r := range l.Regions {
		if r.Kind == formats.Data {
			sizes[r.Len]++
		}
	}
	want := map[int64]int{64: 899, 1290: 1, 969: 1, 1026: 1, 1043: 1, 5120: 12}
	if !maps.Equal(sizes, want) {
		t.Errorf("chunks %v, want %v", sizes, want)
	}
	fixture.Check(t, Parser{}, p, bound)

	latest := fixture.Check(t, Parser{}, fixture.Read(t, "hdf5/chunked_latest.h5"), bound)
	clear(sizes)
	for _, r := range latest.Regions {
		sizes[r.Len]++
	}
	if sizes[64*64*4] != 2 || sizes[20*64*4] != 4 || sizes[4566] != 1 || len(latest.Tensors) != 6 {
		t.Errorf("%v, %d tensors", sizes, len(latest.Tensors))
	}
}

// TestGrowing: all chunks of datasets that grow are found, where the index keeps them in blocks, in pages and
// in nodes.
func TestGrowing(t *testing.T) {
	const whole, packed, blocks, tree, far = 2, 2 * 4, 100, 150, 9
	for name, want := range map[string]struct {
		chunks  map[int64]int
		all     int
		tensors []string
	}{
		"growing.h5": {map[int64]int{8 * 8 * 4: whole, 4: blocks + tree}, whole + packed + blocks + tree,
			[]string{"one", "many"}},
		"far.h5": {map[int64]int{64: far}, far, nil},
	} {
		p := fixture.Read(t, "hdf5/"+name)
		l, err := parse(bytes.NewReader(p), int64(len(p)), 1)
		if err != nil || l.Check(int64(len(p))) != nil {
			t.Fatalf("%s: %+v, %v", name, l, err)
		}
		sizes, all := map[int64]int{}, 0
		for _, r := range l.Regions {
			if r.Kind == formats.Data {
				sizes[r.Len]++
				all++
			}
		}
		for n, count := range want.chunks {
			if sizes[n] != count || all != want.all {
				t.Errorf("%s: chunks %v, want %v of %d", name, sizes, want.chunks, want.all)
			}
		}
		var tensors []string
		for _, x := range l.Tensors {
			if _, _, piece := formats.ParsePiece(&x); !piece {
				tensors = append(tensors, x.Name)
			}
		}
		if !slices.Equal(tensors, want.tensors) {
			t.Errorf("%s: tensors %q", name, tensors)
		}
	}
}

// TestIndexesRefused: whatever of an index lies, the file is a blob, in bounded time.
func TestIndexesRefused(t *testing.T) {
	for _, c := range []struct{ file, sign string }{
		{"indexes.h5", "FAHD"}, {"indexes.h5", "FADB"}, {"growing.h5", "EAHD"}, {"growing.h5", "EAIB"},
		{"far.h5", "EASB"},
		{"far.h5", "EADB"}, {"growing.h5", "EADB"}, {"growing.h5", "BTHD"}, {"growing.h5", "BTLF"},
		{"growing.h5", "BTIN"},
		{"groups_latest.h5", "FRHP"}, {"wide_latest.h5", "FRHP"}, {"wide_latest.h5", "FHIB"},
	} {
		whole := fixture.Read(t, "hdf5/"+c.file)
		at := bytes.Index(whole, []byte(c.sign))
		for i := range 72 {
			for _, v := range []byte{0, 1, 2, 9, 64, 0xff} {
				p := bytes.Clone(whole)
				p[at+i] = v
				fixture.Check(t, Parser{}, p, bound)
			}
		}
		p := bytes.Clone(whole)
		p[at] ^= 1
		if l := fixture.Check(t, Parser{}, p, bound); l != nil {
			t.Errorf("without %s: %+v", c.sign, l)
		}
	}
}

func TestAttribute(t *testing.T) {
	for _, name := range []string{"attributes-earliest.h5", "attributes-latest.h5"} {
		p, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for attribute, want := range map[string]string{
			"backend": "numpy", "fixed": `{"fixed": "é"}`, "bytes": `{"bytes": 1}`, "text": `{"text": "é"}`,
			"long": strings.Repeat("x", 70_000), "number": "", "several": "", "none": "",
		} {
			got, found, err := Attribute(bytes.NewReader(p), int64(len(p)), attribute, 1<<20)
			if err != nil || string(got) != want || found != (want != "") {
				t.Errorf("%s, %s: %.40q, %v, %v", name, attribute, got, found, err)
			}
		}
		if got, found, _ := Attribute(bytes.NewReader(p), int64(len(p)), "long", 1<<10); found {
			t.Errorf("%s: %d bytes, of at most 1024", name, len(got))
		}
	}
}

func FuzzAttribute(f *testing.F) {
	for _, name := range []string{"attributes-earliest.h5", "attributes-latest.h5"} {
		p, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, name := range []string{"text", "fixed"} {
			got, _, err := Attribute(bytes.NewReader(p), int64(len(p)), name, 1<<10)
			if len(got) > 1<<10 || err != nil && !errors.Is(err, formats.ErrNotFormat) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
	})
}
