package recipe

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
)

// FuzzDecode: whatever is stored, nothing is decoded but as many bytes as were asked for, or the error says
// that it is damaged, or newer.
func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	base := random(rng, 8<<10)
	for _, p := range []Program{
		{Run(Bytes1, 5, 4096)},
		{Take{Type: BF16, Groups: []Group{{4, []Stretch{{0, 16, 64}, {32, 16, 64}}}}}, Widen{},
			Round{half.F16}},
		{Run(BF16, 0, 200), Widen{}, Combine{Form: Lerp, C: []float32{0, 0.5}, To: BF16}},
		{Run(F32, 3, 100), Widen{}, Round{half.BF16}},
		{Run(Bytes1, 3, 144*4), Dequantise{Format: quant.Q4_K}, Round{half.BF16}},
		{Run(BF16, 0, 12*40), Transpose{4, 30, 7, 400}, Widen{}, Round{half.F16}},
		{Run(Bytes8, 1, 600), Transpose{60, 10, 0, 600}, Transpose{5, 12, 3, 590}},
		{Run(Bytes1, 8, 150), Dequantise{quant.F8E4M3,
			quant.Scales{Rows: 20, Cols: 20, Tall: 1, Wide: 10, At: 90}, 110}},
	} {
		f.Add(append(p.Append(nil), 0), 4096)
	}
	add := func(streams, n int, ops ...Op) {
		f.Add(append(Program(append([]Op{Run(BF16, 0, 512), Widen{}}, ops...)).Append(nil),
			make([]byte, streams)...), n)
	}
	add(1+2, 512, Combine{Form: Sum, C: []float32{0.5, 0.5}, To: BF16})
	for form := Average; form < forms; form++ {
		add(1+2, 256, Combine{Form: form, C: []float32{0.999, 0.001, 0.002, 0.25}, To: F16})
	}
	add(1+4, 512, Combine{Form: MeanEach, C: []float32{4, 0, 0, 0}, To: F32})
	for _, q := range []quant.Quantiser{
		{Format: quant.Q8_0}, {Format: quant.Q5_1, Variant: quant.Fused}, {Format: quant.Q4_0,
			Variant: quant.Stored}, {Format: quant.Q2_K}, {Format: quant.Q3_K}, {Format: quant.Q4_K},
		{Format: quant.Q6_K}, {Format: quant.IQ4_NL}, {Format: quant.IQ4_XS}, {Format: quant.MXFP4},
		{Format: quant.F8E4M3, Scales: quant.Scales{Rows: 8, Cols: 64, Tall: 1, Wide: 64}},
		{Format: quant.F8E5M2, Variant: quant.TimesBF16},
		{Format: quant.NF4, Scales: quant.Scales{Rows: 8, Cols: 64, Tall: 1, Wide: 64}},
		{Format: quant.Int8, Scales: quant.Scales{Rows: 8, Cols: 64, Tall: 1, Wide: 64}},
		{Format: quant.NVFP4, Scales: quant.Scales{Rows: 8, Cols: 64, Tall: 1, Wide: 16}},
	} {
		elems, size := q.Block()
		add(2+len(quant.Streams{}), 512/elems*size, Quantise{Quantiser: q})
	}
	// Two groups of 16 scales and zeros.
	add(2+len(quant.Streams{}), 256, Aside{Run(Bytes1, 100, 2*(16*2+16/2))},
		Quantise{Quantiser: quant.Quantiser{Format: quant.AWQ, Variant: quant.HalfF16,
			Scales: quant.Scales{Type: quant.F16, Rows: 32, Cols: 16, Tall: 16, Wide: 1}}})
	f.Fuzz(func(t *testing.T, stored []byte, n int) {
		if n < 0 || n > 1<<20 {
			return
		}
		dst := append(make([]byte, 0, n+3), "abc"...)
		got, err := Decode(dst, stored, base, n)
		if err == nil && len(got) != n+3 || !bytes.HasPrefix(got, []byte("abc")) {
			t.Fatalf("%d bytes, want %d", len(got)-3, n)
		}
		if err != nil && !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) &&
			!errors.Is(err, cas.ErrTooLarge) {
			t.Fatal(err)
		}
	})
}
