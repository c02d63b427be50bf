package recipes

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// codesOf are x in FP8 and the scales of that, with a scale for each tall by wide.
func codesOf(x []float32, rows, cols, tall, wide int) (codes []byte, scales []float32) {
	across := (cols + wide - 1) / wide
	scales = make([]float32, (rows+tall-1)/tall*across)
	group := func(i int) *float32 { return &scales[i/cols/tall*across+i%cols/wide] }
	for i, v := range x {
		s := group(i)
		*s = max(*s, max(v, -v)/448)
	}
	q := quant.Quantiser{Format: quant.F8E4M3}
	var s quant.Streams
	scaled := make([]float32, len(x))
	for i, v := range x {
		scaled[i] = v / *group(i)
	}
	codes, _ = q.Restore(nil, &s, scaled)
	return codes, scales
}

// dequantised are the numbers that blocks stand for.
func dequantised(t *testing.T, q quant.Quantiser, p []byte, n int) []float32 {
	t.Helper()
	x := make([]float32, n)
	if err := q.Dequantise(x, p); err != nil {
		t.Fatal(err)
	}
	return x
}

// straightened are rows in Hugging Face's order, of GGUF's.
func straightened(x []float32, cols, head int) (y []float32) {
	for h := 0; h < len(x)/cols; h += head {
		for i := range head {
			r := h + i%(head/2)*2 + i/(head/2)
			y = append(y, x[r*cols:][:cols]...)
		}
	}
	return y
}

func TestOfCodes(t *testing.T) {
	const rows, cols, head = 640, 768, 64
	rng := rand.New(rand.NewPCG(17, 18))
	x := numbers(rng, rows*cols)
	shape := []int64{rows, cols}
	const hf, llama = "model.layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight"
	type stored struct {
		name  string
		dtype formats.DType
		shape []int64
		raw   []byte
	}
	q8, q4 := quant.Quantiser{Format: quant.Q8_0}, quant.Quantiser{Format: quant.Q4_K}
	blocks8, blocks4 := quantised(t, q8, x), quantised(t, q4, x)
	of8, of4 := dequantised(t, q8, blocks8, len(x)), dequantised(t, q4, blocks4, len(x))
	fp8 := func(tall, wide int) ([]stored, []float32) {
		codes, scales := codesOf(x, rows, cols, tall, wide)
		q := quant.Quantiser{Format: quant.F8E4M3, Scales: quant.Scales{Rows: rows, Cols: cols, Tall: tall,
			Wide: wide, Values: scales}}
		return []stored{{hf, formats.F8E4M3, shape, codes},
			{hf + "_scale_inv", formats.F32, []int64{int64(len(scales))}, asF32(scales)}}, dequantised(t, q, codes, len(x))
	}
	bySquares, ofSquares := fp8(128, 128)
	byRows, ofRows := fp8(1, cols)
	byTensor, ofTensor := fp8(rows, cols)
	plain := quant.Quantiser{Format: quant.F8E4M3}
	cast := quantised(t, plain, x)
	off := func(x []float32) []float32 {
		y := slices.Clone(x)
		for i := 0; i < len(y); i += 1000 {
			y[i] = math.Float32frombits(math.Float32bits(y[i]) ^ 1<<16)
		}
		return y
	}
	viaBF16 := make([]float32, len(x))
	for i, v := range ofSquares {
		viaBF16[i] = half.FromBF16(half.ToBF16(math.Float32bits(v)))
	}
	for _, c := range []struct {
		what  string
		base  []stored
		dtype formats.DType
		name  string
		raw   []byte
		share float64
		size  float64 // of raw, at most
	}{
		{"Q8_0", []stored{{llama, "Q8_0", shape, blocks8}}, formats.BF16, llama, asBF16(of8), 1, 0.001},
		{"Q8_0, in Hugging Face's order", []stored{{llama, "Q8_0", shape, blocks8}}, formats.F16, hf,
			asF16(straightened(of8, cols, head)), 1, 0.001},
		{"Q4_K, in Hugging Face's order", []stored{{llama, "Q4_K", shape, blocks4}}, formats.BF16, hf,
			asBF16(straightened(of4, cols, head)), 1, 0.001},
		{"Q4_K, in single precision", []stored{{llama, "Q4_K", shape, blocks4}}, formats.F32, llama, asF32(of4), 1, 0.001},
		{"FP8 by squares", bySquares, formats.BF16, hf, asBF16(ofSquares), 1, 0.001},
		{"FP8 by rows", byRows, formats.BF16, hf, asBF16(ofRows), 1, 0.001},
		{"FP8 by tensor", byTensor, formats.BF16, hf, asBF16(ofTensor), 1, 0.001},
		{"FP8 by rows, in GGUF's order", byRows, formats.BF16, llama, asBF16(interleaved(ofRows, cols, head)), 1, 0.003},
		{"FP8 by squares, in GGUF's order", bySquares, formats.F16, llama,
			asF16(interleaved(ofSquares, cols, head)), 1, 0.003},
		{"FP8 by squares, by way of bfloat16", bySquares, formats.F32, hf, asF32(viaBF16), 1, 0.001},
		{"FP8 without scales", []stored{{hf, formats.F8E4M3, shape, cast}}, formats.BF16, hf,
			asBF16(dequantised(t, plain, cast, len(x))), 1, 0.001},
		{"nearly FP8 by squares", bySquares, formats.BF16, hf, asBF16(off(ofSquares)), 1, 0.01},
		{"nearly binary16", []stored{{hf, formats.F16, shape, asF16(x)}}, formats.BF16, hf, asBF16(off(x)), 1, 0.01},
		{"other numbers", bySquares, formats.BF16, hf, asBF16(x), 0, 0},
		{"codes of the same name", bySquares, "Q8_0", llama, blocks8, 0, 0},
	} {
		st := contents{}
		f := New(st)
		for _, s := range c.base {
			grid := st.put(s.raw)
			f.Add(&formats.Tensor{Name: s.name, DType: s.dtype, Shape: s.shape}, func() []manifest.Span { return grid })
		}
		plan, err := f.Of(&Target{
			Tensor: &formats.Tensor{Name: c.name, DType: c.dtype, Shape: shape}, Len: int64(len(c.raw)),
			Read: func(off int64, n int) ([]byte, error) { return c.raw[off:][:n], nil }})
		if err != nil {
			t.Fatal(c.what, err)
		}
		share, size := computed(t, st, plan, c.raw)
		if share != c.share || float64(size) > c.size*float64(len(c.raw)) {
			t.Errorf("%s: %.3f of the bytes are computed, in %d of %d", c.what, share, size, len(c.raw))
		}
	}
}

// TestScalesGone: codes whose scales are not there are no base; those of a file have nothing to do with those
// of another.
func TestScalesGone(t *testing.T) {
	const rows, cols = 256, 256
	x := numbers(rand.New(rand.NewPCG(19, 20)), rows*cols)
	codes, scales := codesOf(x, rows, cols, 1, cols)
	q := quant.Quantiser{Format: quant.F8E4M3, Scales: quant.Scales{Rows: rows, Cols: cols, Tall: 1, Wide: cols,
		Values: scales}}
	raw := asBF16(dequantised(t, q, codes, len(x)))
	target := &Target{Tensor: &formats.Tensor{Name: "a.weight", DType: formats.BF16, Shape: []int64{rows, cols}},
		Len: int64(len(raw)), Read: func(off int64, n int) ([]byte, error) { return raw[off:][:n], nil }}
	for _, c := range []struct {
		what         string
		other, there bool
		want         bool
	}{{"there", false, true, true}, {"in another file", true, true, false}, {"gone", false, false, false}} {
		st := contents{}
		f := New(st)
		grid, beside := st.put(codes), st.put(asF32(scales))
		if !c.there {
			delete(st, beside[0].Hash)
		}
		f.Add(&formats.Tensor{Name: "a.weight", DType: formats.F8E4M3, Shape: []int64{rows, cols}},
			func() []manifest.Span { return grid })
		if c.other {
			f.Next()
		}
		f.Add(&formats.Tensor{Name: "a.weight_scale", DType: formats.F32, Shape: []int64{rows, 1}},
			func() []manifest.Span { return beside })
		p, err := f.Of(target)
		if err != nil || (p != nil) != c.want {
			t.Errorf("scales that are %s: %+v, %v", c.what, p, err)
		}
		if p != nil && !slices.Contains(p.Chunk(0).Bases, beside[0].Hash) {
			t.Error("the scales are no base")
		}
	}
}
