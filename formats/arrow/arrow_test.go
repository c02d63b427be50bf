package arrow

import (
	"bytes"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/fixture"
)

var bound = fixture.Bound{Fixed: 1 << 20, PerByte: 64}

func FuzzParse(f *testing.F) { fixture.Fuzz(f, Parser{}, "arrow/*", bound) }

// columns returns the Data regions' bytes.
func columns(t *testing.T, name string) (out [][]byte) {
	p := fixture.Read(t, name)
	l := fixture.Check(t, Parser{}, p, bound)
	if l == nil {
		t.Fatalf("%s: refused", name)
	}
	for _, r := range l.Regions {
		if r.Kind == formats.Data {
			out = append(out, p[r.Off:r.Off+r.Len])
		}
	}
	return out
}

// TestColumns: two columns of numbers and one of text are found in every form, and are the same wherever they
// lie.
func TestColumns(t *testing.T) {
	want := columns(t, "arrow/plain.feather")
	if len(want) != 3 { // numbers, numbers, text; the offsets are too short
		t.Fatalf("%d columns", len(want))
	}
	for _, name := range []string{"arrow/table.arrow", "arrow/stream.arrow", "arrow/reordered.arrow"} {
		got := columns(t, name)
		for _, w := range want {
			found := false
			for _, g := range got {
				found = found || bytes.Equal(g, w)
			}
			if !found {
				t.Errorf("%s: a column of %d bytes is not found", name, len(w))
			}
		}
	}
	for _, name := range []string{"arrow/lz4.feather", "arrow/dictionary.arrow"} {
		if len(columns(t, name)) == 0 {
			t.Errorf("%s: no columns", name)
		}
	}
}

func TestRefuses(t *testing.T) {
	p := fixture.Read(t, "arrow/stream.arrow")
	put := func(at int, b ...byte) []byte {
		q := bytes.Clone(p)
		copy(q[at:], b)
		return q
	}
	for name, p := range map[string][]byte{
		"empty":              nil,
		"cut in a message":   p[:50],
		"cut in a body":      p[:len(p)/2],
		"no continuation":    put(0, 0, 0, 0, 0),
		"a long message":     put(4, 0xff, 0xff, 0xff, 0),
		"a negative one":     put(4, 0, 0, 0, 0x80),
		"a root far away":    put(8, 0xff, 0xff, 0xff, 0x7f),
		"the file's magic":   []byte(magic),
		"bytes after":        append(bytes.Clone(p[:len(p)-8]), 1, 2, 3),
		"a file without end": append([]byte(magic), p[:len(p)-20]...),
	} {
		if l := fixture.Check(t, Parser{}, p, bound); l != nil && name != "the file's magic" {
			t.Errorf("%s: %+v", name, l)
		}
	}
}
