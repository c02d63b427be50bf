package torchlegacy

import (
	"bytes"
	"testing"

	"ckptfs/formats/fixture"
)

// bound: reading doubles, and so does what the pickles cost.
var bound = fixture.Bound{Fixed: 1 << 20, PerByte: 2000}

func FuzzParse(f *testing.F) { fixture.Fuzz(f, Parser{}, "torch/legacy*.pt", bound) }

func TestRefuses(t *testing.T) {
	whole := fixture.Read(t, "torch/legacy.pt")
	if l := fixture.Check(t, Parser{}, whole, bound); l == nil || len(l.Tensors) != 1 {
		t.Fatalf("%+v", l)
	}
	change := func(old, new string) []byte {
		p := bytes.Replace(whole, []byte(old), []byte(new), 1)
		if bytes.Equal(p, whole) {
			t.Fatalf("%q is not in the file", old)
		}
		return p
	}
	n := len(whole)
	for name, p := range map[string][]byte{
		"empty":              nil,
		"cut in the pickles": whole[:200],
		"cut in the data":    whole[:n-1],
		"cut in the length":  whole[:n-14],
		"a byte more":        append(bytes.Clone(whole), 0),
		"another length":     append(append(bytes.Clone(whole[:n-20]), 4), whole[n-19:]...),
		"a length past 2^63": append(append(bytes.Clone(whole[:n-13]), 0x80), whole[n-12:]...),
		"another type":       change("FloatStorage", "FloutStorage"),
		"another magic":      change("\xfc\x9c", "\xfc\x9d"),
		"big-endian":         change("little_endianq\x02\x88", "little_endianq\x02\x89"),
	} {
		if l := fixture.Check(t, Parser{}, p, bound); l != nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}
