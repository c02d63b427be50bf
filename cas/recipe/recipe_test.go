package recipe

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/half"
)

func random(rng *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

// roundTrip encodes raw, and has what comes of it decoded.
func roundTrip(t *testing.T, prog Program, raw, bases []byte) []byte {
	t.Helper()
	stored, ok := Encode([]byte("x"), prog.Append(nil), raw, bases, len(raw)+20)
	if !ok {
		t.Fatalf("%v: not encoded", prog)
	}
	got, err := Decode([]byte("y"), stored[1:], bases, len(raw))
	if err != nil || !bytes.Equal(got[1:], raw) {
		t.Fatalf("%v: decoded otherwise, %v", prog, err)
	}
	for n := range len(stored) - 1 {
		if got, err := Decode(nil, stored[1:1+n], bases, len(raw)); err == nil {
			t.Fatalf("%v: %d of %d bytes decode to %d", prog, n, len(stored)-1, len(got))
		}
	}
	return stored[1:]
}

func TestTake(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rows, cols = 64, 96
	base := random(rng, 2*rows*cols)
	row := func(i int) []byte { return base[2*cols*i:][:2*cols] }
	cut := func(first, n int) Program { return Program{Run(BF16, first, n)} }
	roundTrip(t, cut(100, 2000), base[200:4200], base)
	stored := roundTrip(t, cut(100, 0), nil, base)
	if len(stored) > 10 {
		t.Errorf("%d bytes", len(stored))
	}

	columns := Take{Type: Bytes2, Groups: []Group{{Repeat: rows, Stretches: []Stretch{{8, 24, cols}}}}}
	var want []byte
	for i := range rows {
		want = append(want, row(i)[16:][:48]...)
	}
	roundTrip(t, Program{columns}, want, base)

	// Heads of 16 rows, whose halves GGUF interleaves.
	var rope Take
	want = nil
	for h := 0; h < rows; h += 16 {
		rope.Groups = append(rope.Groups,
			Group{8, []Stretch{{h * cols, cols, cols}, {(h + 8) * cols, cols, cols}}})
		for i := range 8 {
			want = append(append(want, row(h+i)...), row(h+8+i)...)
		}
	}
	rope.Type = BF16
	roundTrip(t, Program{rope}, want, base)

	// What lies behind the bases is zeros.
	roundTrip(t, cut(rows*cols-10, 100), append(bytes.Clone(base[len(base)-20:]), make([]byte, 180)...), base)
	roundTrip(t, cut(rows*cols+5, 100), make([]byte, 200), base)

	if _, ok := Encode(nil, cut(1, 20).Append(nil), base[:40], base, 1000); ok {
		t.Error("other numbers are encoded")
	}
}

func TestRound(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	base := random(rng, 4096)
	for i := 3; i < len(base); i += 4 {
		base[i] &= 0xbf // no NaNs
	}
	for _, to := range []half.Type{half.BF16, half.F16} {
		want := make([]byte, 1000)
		half.Round(want, base[40:], to)
		prog := Program{Run(F32, 10, 500), Widen{}, Round{to}}
		roundTrip(t, prog, want, base)
		again := make([]byte, 1000)
		wide := make([]float32, 500)
		typ := BF16
		if to == half.F16 {
			typ = F16
		}
		widen(wide, want, typ)
		round(again, wide, half.BF16)
		roundTrip(t, append(prog, Widen{}, Round{half.BF16}), again, base)
	}
}

// TestRefused: what a hostile store says is an error, and takes no memory.
func TestRefused(t *testing.T) {
	base := make([]byte, 1000)
	huge := Take{Type: Bytes8, Groups: []Group{{MaxValue, []Stretch{{0, MaxValue, 0}}}}}
	back := Take{Type: Bytes1, Groups: []Group{{3, []Stretch{{5, 1, -4}}}}}
	far := Take{Type: Bytes1, Groups: []Group{{3, []Stretch{{5, 1, maxField}}}}}
	for name, p := range map[string]Program{
		"too much":                {huge},
		"ahead of the bases":      {back},
		"far behind them":         {far},
		"taken twice":             {Run(Bytes1, 0, 8), Run(Bytes1, 0, 8)},
		"nothing is taken":        {Widen{}},
		"bytes are widened":       {Run(Bytes2, 0, 8), Widen{}},
		"narrow ones are rounded": {Run(BF16, 0, 8), Round{half.BF16}},
		"too short":               {Run(Bytes1, 0, 7)},
		"wide and too long":       {Run(BF16, 0, 4), Widen{}},
		"no matrices":             {Run(Bytes1, 0, 8), Transpose{3, 2, 0, 8}},
		"none at all":             {Run(Bytes1, 0, 8), Transpose{0, 2, 0, 8}},
		"a part that is not":      {Run(Bytes1, 0, 8), Transpose{2, 4, 1, 8}},
		"single ones transposed":  {Run(BF16, 0, 4), Widen{}, Transpose{2, 2, 0, 4}},
		"nothing is transposed":   {Transpose{2, 2, 0, 4}},
	} {
		stored := append(p.Append(nil), 0)
		if got, err := Decode(nil, stored, base, 8); !errors.Is(err, cas.ErrCorrupt) || len(got) > 0 {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	for name, p := range map[string][]byte{
		"op": {1, 99}, "type": {1, opTake, 200, 1, 0}, "to": {3, opTake, 1, 0, opWiden, opRound, 9},
	} {
		if _, err := Decode(nil, p, base, 8); !errors.Is(err, cas.ErrNewer) {
			t.Errorf("an %s that is not known: %v", name, err)
		}
	}
}

// TestNothingOften: what takes nothing, as often as may be said, takes no time either.
func TestNothingOften(t *testing.T) {
	none := Group{MaxValue, make([]Stretch, MaxStretches)}
	take := Take{Type: Bytes1}
	for range MaxGroups {
		take.Groups = append(take.Groups, none)
	}
	if got, err := Decode(nil, append(Program{take}.Append(nil), 0), make([]byte, 10), 0); err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestTranspose: parts of matrices, of elements of all sizes, and of several axes.
func TestTranspose(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, typ := range []Type{Bytes1, BF16, F32, Bytes8} {
		w := typ.Size()
		for _, dims := range [][3]int{
			{1, 1, 1}, {7, 1, 40}, {70, 1, 33}, {64, 1, 96}, {9, 6, 50}, {50, 6, 9},
		} {
			a, b, c := dims[0], dims[1], dims[2]
			base := random(rng, a*b*c*w)
			want := make([]byte, 0, len(base))
			for k := range c {
				for j := range b {
					for i := range a {
						want = append(want, base[((i*b+j)*c+k)*w:][:w]...)
					}
				}
			}
			n := a * b * c
			whole := Program{Run(typ, 0, n), Transpose{a * b, c, 0, n}, Transpose{a, b, 0, n}}
			roundTrip(t, whole, want, base)
			// Columns k to k+m, and of these all but some elements.
			k := c / 3
			m := max(1, c/2-k)
			skip := a * b / 2
			part := Program{
				Take{typ, []Group{{a * b, []Stretch{{k, m, c}}}}},
				Transpose{a * b, m, 0, a * b * m}, Transpose{a, b, skip, a*b*m - skip},
			}
			roundTrip(t, part, want[(k*a*b+skip)*w:(k+m)*a*b*w], base)
		}
	}
}
