package numbers

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/formats"
)

// TestSummary: what counting by value says is what decoding one by one says, for every type, and Merge is
// Add.
func TestSummary(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for d, read := range decoders {
		width := d.Bits() / 8
		p := make([]byte, 64<<10*width)
		for i := range p {
			p[i] = byte(rnd.Uint32())
		}
		copy(p, make([]byte, 64))
		want := NewSummary()
		for q := p; len(q) > 0; q = q[width:] {
			want.add(read(q), 1)
			if complexType(d) {
				want.add(read(q[width/2:]), 1)
			}
		}
		got, parts := NewSummary(), NewSummary()
		got.Add(d, p)
		for q := p; len(q) > 0; q = q[min(len(q), 1000*width):] {
			parts.Add(d, q[:min(len(q), 1000*width)])
		}
		for what, s := range map[string]*Summary{"whole": got, "parts": parts} {
			a, b := *s, *want
			a.sum, b.sum = 0, 0
			most := math.Max(math.Abs(want.Min), math.Abs(want.Max))
			if a != b || math.Abs(s.Mean()-want.Mean()) > 1e-9*most {
				t.Errorf("%s %s: %+v (mean %g), want %+v (%g)", d, what, *s, s.Mean(), *want, want.Mean())
			}
		}
	}
}

func TestSummaryOf(t *testing.T) {
	var p []byte
	for _, x := range []float32{1, -3, 0, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 4,
		float32(math.Copysign(0, -1))} {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(x))
	}
	s := NewSummary()
	s.Add(formats.F32, p)
	if *s != (Summary{Count: 8, NaN: 1, Inf: 2, Zero: 2, Min: -3, Max: 4, sum: 2}) || s.Mean() != 0.4 ||
		s.Finite() != 5 {
		t.Errorf("%+v", s)
	}
	if e := NewSummary(); e.Finite() != 0 || !math.IsNaN(e.Mean()) || e.Min <= e.Max {
		t.Errorf("%+v", e)
	}
}

func BenchmarkSummary(b *testing.B) {
	for _, d := range []formats.DType{formats.F32, formats.BF16, formats.F16, formats.F8E4M3, formats.F64,
		formats.I64} {
		b.Run(string(d), func(b *testing.B) {
			p := make([]byte, 8<<20)
			for i := range p {
				p[i] = byte(i * 2654435761 >> 13)
			}
			s := NewSummary()
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				s.Add(d, p)
			}
		})
	}
}
