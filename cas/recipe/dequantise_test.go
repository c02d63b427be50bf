package recipe

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
)

// tame are blocks of a format of any codes, whose scales are numbers.
func tame(rng *rand.Rand, f quant.Format, n int) []byte {
	_, size := f.Block()
	p := random(rng, n*size)
	for i := range p {
		if p[i]&0x7c == 0x7c {
			p[i] ^= 0x40
		}
	}
	return p
}

// rounded are numbers as bytes of a type.
func rounded(x []float32, to half.Type) (p []byte) {
	for _, v := range x {
		h := half.ToF16(math.Float32bits(v))
		if to == half.BF16 {
			h = half.ToBF16(math.Float32bits(v))
		}
		p = binary.LittleEndian.AppendUint16(p, h)
	}
	return p
}

func TestDequantise(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for f := quant.Format(1); !f.Ruled(); f++ {
		if f.FP8() {
			continue
		}
		elems, size := f.Block()
		base := tame(rng, f, 64)
		x := make([]float32, 32*elems)
		q := quant.Quantiser{Format: f}
		if err := q.Dequantise(x, base[16*size:][:32*size]); err != nil {
			t.Fatal(f, err)
		}
		for _, to := range []half.Type{half.BF16, half.F16} {
			stored := roundTrip(t, Program{Run(Bytes1, 16*size, 32*size), Dequantise{Format: f}, Round{to}},
				rounded(x, to), base)
			if len(stored) > 20 {
				t.Errorf("%v: %d bytes", f, len(stored))
			}
		}
		wide := make([]byte, 4*len(x))
		narrow(wide, x, F32)
		roundTrip(t, Program{Run(Bytes1, 16*size, 32*size), Dequantise{Format: f}}, wide, base)
	}
}

// TestDequantise8: codes, and behind them the scales of those groups that they are of.
func TestDequantise8(t *testing.T) {
	const rows, cols = 32, 96
	rng := rand.New(rand.NewPCG(9, 10))
	codes := tame(rng, quant.F8E4M3, rows*cols)
	for _, g := range []quant.Scales{
		{Type: quant.BF16, Tall: rows, Wide: cols},
		{Type: quant.F32, Tall: 1, Wide: cols},
		{Type: quant.F16, Tall: 16, Wide: 16},
	} {
		g.Rows, g.Cols, g.At = rows, cols, 5*cols+3
		const n = 10 * cols
		var scales []byte
		for range g.Groups(n) {
			v := math.Float32bits(float32(rng.NormFloat64()))
			switch g.Type {
			case quant.BF16:
				scales = le.AppendUint16(scales, half.ToBF16(v))
			case quant.F16:
				scales = le.AppendUint16(scales, half.ToF16(v))
			default:
				scales = le.AppendUint32(scales, v)
			}
		}
		q := quant.Quantiser{Format: quant.F8E4M3, Scales: g}
		q.Scales.Values = g.Type.Append(nil, scales)
		x := make([]float32, n)
		if err := q.Dequantise(x, codes[g.At:][:n]); err != nil {
			t.Fatal(err)
		}
		take := Take{Bytes1, []Group{{1, []Stretch{{g.At, n, 0}, {len(codes), len(scales), 0}}}}}
		roundTrip(t, Program{take, Dequantise{quant.F8E4M3, g, n}, Round{half.BF16}}, rounded(x, half.BF16),
			append(codes, scales...))
	}
}

// TestDequantiseRefused: what does not fit is an error.
func TestDequantiseRefused(t *testing.T) {
	base := make([]byte, 1000)
	g := quant.Scales{Rows: 10, Cols: 10, Tall: 1, Wide: 10}
	many := quant.Scales{Rows: 1 << 30, Cols: 1 << 30, Tall: 1 << 30, Wide: 1}
	for name, p := range map[string]Program{
		"half a block":        {Run(Bytes1, 0, 35), Dequantise{Format: quant.Q8_0}},
		"numbers":             {Run(BF16, 0, 34), Dequantise{Format: quant.Q8_0}},
		"wide ones":           {Run(BF16, 0, 34), Widen{}, Dequantise{Format: quant.Q8_0}},
		"no scales":           {Run(Bytes1, 0, 20), Dequantise{quant.F8E4M3, g, 20}},
		"half a scale":        {Run(Bytes1, 0, 30), Dequantise{quant.F8E4M3, g, 20}},
		"more than there are": {Run(Bytes1, 0, 20), Dequantise{quant.F8E4M3, g, 200}},
		"scales of the void":  {Run(Bytes1, 0, 200), Dequantise{quant.F8E4M3, many, 100}},
		"too much": {Take{Type: Bytes1, Groups: []Group{{4 << 20, []Stretch{{0, 1, 0}}}}},
			Dequantise{Format: quant.Q2_K}},
	} {
		stored := append(p.Append(nil), 0)
		if got, err := Decode(nil, stored, base, 80); !errors.Is(err, cas.ErrCorrupt) || len(got) > 0 {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	unknown := []byte{2, opTake, byte(Bytes1), 0, opDequantise, 200, 0}
	if _, err := Decode(nil, unknown, base, 8); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a format that is not known: %v", err)
	}
}
