package hdf5

import (
	"bytes"
	"encoding/binary"
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
