package torchzip

import (
	"bytes"
	"testing"

	"ckptfs/formats/fixture"
)

var sequenceBound = fixture.Bound{Fixed: 4 << 20, PerByte: 2000}

func FuzzSequence(f *testing.F) { fixture.Fuzz(f, Sequence{}, "torch/*.distcp", sequenceBound) }

func FuzzExported(f *testing.F) { fixture.Fuzz(f, Parser{}, "torch/exported.pt2", sequenceBound) }

func TestSequence(t *testing.T) {
	p := fixture.Read(t, "torch/dcp.distcp")
	one := fixture.Read(t, "torch/tensor.pt")
	join := func(p ...[]byte) []byte { return bytes.Join(p, nil) }
	for name, c := range map[string]struct {
		p    []byte
		want int // tensors, -1 for a file that is refused
	}{
		"as written":      {p, 3},
		"two":             {join(one, one), 2},
		"one":             {one, -1},
		"a byte before":   {join([]byte{0}, one, one), -1},
		"a byte between":  {join(one, []byte{0}, one), -1},
		"a byte after":    {join(one, one, []byte{0}), -1},
		"cut":             {p[100:], -1},
		"not torch's zip": {join(one, fixture.Read(t, "numpy/several.npz")), -1},
		"empty":           {nil, -1},
	} {
		l := fixture.Check(t, Sequence{}, c.p, sequenceBound)
		if (l == nil) != (c.want < 0) || l != nil && len(l.Tensors) != c.want {
			t.Errorf("%s: %+v", name, l)
		}
	}
}
