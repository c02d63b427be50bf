package recipe

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
)

// pieces cuts p anywhere.
func pieces(rng *rand.Rand, p []byte) (all [][]byte) {
	for len(p) > 0 {
		n := min(len(p), rng.IntN(3)*rng.IntN(400)+rng.IntN(4))
		all, p = append(all, p[:n]), p[n:]
	}
	return append(all, nil)
}

// TestPieces: bases may be cut anywhere, also within an element, and what is taken is the same.
func TestPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 3000 {
		base := random(rng, rng.IntN(5000))
		take := Take{Type: Type(1 + rng.IntN(len(sizes)-1))}
		for range 1 + rng.IntN(3) {
			g := Group{Repeat: rng.IntN(6)}
			for range rng.IntN(4) {
				g.Stretches = append(g.Stretches,
					Stretch{rng.IntN(600), rng.IntN(3) * rng.IntN(200), rng.IntN(90)})
			}
			take.Groups = append(take.Groups, g)
		}
		w := take.Type.Size()
		padded := append(bytes.Clone(base[:len(base)/w*w]), make([]byte, 1<<14)...)
		var want []byte
		for _, g := range take.Groups {
			for k := range g.Repeat {
				for _, s := range g.Stretches {
					want = append(want, padded[(s.First+k*s.Step)*w:][:s.Len*w]...)
				}
			}
		}
		stored := append(Program{take}.Append(nil), 0)
		got, err := DecodeOf([]byte("x"), stored, pieces(rng, base), len(want))
		if err != nil || !bytes.Equal(got[1:], want) {
			t.Fatalf("%v of %d bytes: %v", take, len(base), err)
		}
		if take.Type >= Bytes1 || len(want) < 32*w {
			continue
		}
		// The same numbers as blocks, and rounded.
		n := len(want) / w / 32 * 32
		first := Take{Type: take.Type, Groups: []Group{{1, []Stretch{{0, n, 0}}}}}
		for _, rest := range []Program{
			{Quantise{Quantiser: quant.Quantiser{Format: quant.Q8_0}}}, {Round{half.BF16}}, {},
		} {
			const streams = len(quant.Streams{})
			size := 4 * n
			if len(rest) > 0 {
				if size = 2 * n; rest[0].id() == opQuantise {
					size = n / 32 * 34
				}
			}
			of := func(take Take, bases [][]byte) []byte {
				p := append(append(Program{take, Widen{}}, rest...).Append(nil), 0)
				if size == n/32*34 {
					p = append(p, make([]byte, 1+streams)...)
				}
				out, err := DecodeOf(nil, p, bases, size)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			if !bytes.Equal(of(first, pieces(rng, want)), of(first, [][]byte{want})) {
				t.Fatalf("%v: other bytes", rest)
			}
		}
	}
}
