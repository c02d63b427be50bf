package recipes

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// contents is a store of chunks.
type contents map[cas.Hash][]byte

func (c contents) Locate(hashes []cas.Hash, locs []cas.Location) error {
	for i, h := range hashes {
		if _, ok := c[h]; ok {
			locs[i] = cas.Location{Segment: 1, Codec: codec.Raw}
		}
	}
	return nil
}

func (c contents) Get(h cas.Hash, dst []byte) ([]byte, error) {
	p, ok := c[h]
	if !ok {
		return dst, cas.ErrNotFound
	}
	return append(dst, p...), nil
}

// put stores a tensor, and returns its chunks.
func (c contents) put(p []byte) (grid []manifest.Span) {
	for len(p) > 0 {
		n := min(len(p), cas.ChunkSize)
		h := cas.Sum(p[:n])
		c[h] = p[:n]
		grid = append(grid, manifest.Span{Hash: h, Len: uint32(n)})
		p = p[n:]
	}
	return grid
}

func numbers(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = half.FromBF16(half.ToBF16(math.Float32bits(float32(rng.NormFloat64() * 0.02))))
	}
	return x
}

func asBF16(x []float32) (p []byte) {
	for _, v := range x {
		p = binary.LittleEndian.AppendUint16(p, half.ToBF16(math.Float32bits(v)))
	}
	return p
}

func asF16(x []float32) (p []byte) {
	for _, v := range x {
		p = binary.LittleEndian.AppendUint16(p, half.ToF16(math.Float32bits(v)))
	}
	return p
}

func asF32(x []float32) (p []byte) {
	for _, v := range x {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
	}
	return p
}

// quantised are blocks of x, with scales as they are predicted.
func quantised(t *testing.T, q quant.Quantiser, x []float32) []byte {
	t.Helper()
	var s quant.Streams
	p, err := q.Restore(nil, &s, x)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// interleaved are rows in the order in which GGUF has them.
func interleaved(x []float32, cols, head int) (y []float32) {
	for h := 0; h < len(x)/cols; h += head {
		for i := range head {
			r := h + i%2*(head/2) + i/2
			y = append(y, x[r*cols:][:cols]...)
		}
	}
	return y
}

// computed puts each chunk of raw that plan computes through its recipe, and returns the share of the bytes
// that are, and what that takes.
func computed(t *testing.T, st contents, plan *Plan, raw []byte) (share float64, size int) {
	t.Helper()
	done := 0
	step := cas.ChunkSize
	if plan != nil {
		step = int(plan.step)
	}
	for k := 0; k*step < len(raw); k++ {
		want := raw[k*step : min((k+1)*step, len(raw))]
		r := plan.Chunk(int64(k))
		if r == nil {
			continue
		}
		var bases []byte
		for i, h := range r.Bases {
			if slices.Contains(r.Bases[:i], h) {
				t.Errorf("chunk %d: a base is named twice", k)
			}
			bases = append(bases, st[h]...)
		}
		out, ok := recipe.Encode(nil, r.Program, want, bases, len(want))
		if !ok {
			t.Errorf("chunk %d is not what its recipe makes", k)
			continue
		}
		done += len(want)
		size += len(out)
	}
	return float64(done) / float64(len(raw)), size
}

func TestOf(t *testing.T) {
	const rows, cols, head = 640, 768, 64
	rng := rand.New(rand.NewPCG(7, 8))
	x := numbers(rng, rows*cols)
	st := contents{}
	base := asBF16(x)
	grid := st.put(base)
	shape := []int64{rows, cols}
	f := New(st)
	f.Add(&formats.Tensor{Name: "model.layers.3.self_attn.q_proj.weight", DType: formats.BF16, Shape: shape},
		func() []manifest.Span { return grid })
	y := interleaved(x, cols, head)
	scales := make([]float32, rows)
	var codes []byte
	rows8 := quant.Scales{Rows: rows, Cols: cols, Tall: 1, Wide: cols}
	for r := range rows {
		q := quant.Quantiser{Format: quant.F8E4M3, Variant: quant.Divide, Scales: rows8}
		q.Scales.Rows = 1
		row := x[r*cols:][:cols]
		codes = append(codes, quantised(t, q, row)...)
		var most float32
		for _, v := range row {
			most = max(most, max(v, -v))
		}
		scales[r] = most / 448
	}
	via := make([]float32, len(x))
	for i, v := range x {
		via[i] = half.FromF16(half.ToF16(math.Float32bits(v)))
	}
	for _, c := range []struct {
		what  string
		dtype formats.DType
		name  string
		raw   []byte
		share float64 // of the bytes that are computed
		size  float64 // that this takes at most
	}{
		{"Q8_0", "Q8_0", "blk.3.attn_q.weight", quantised(t, quant.Quantiser{Format: quant.Q8_0}, x), 1, 0.01},
		{"Q8_0, interleaved", "Q8_0", "blk.3.attn_q.weight",
			quantised(t, quant.Quantiser{Format: quant.Q8_0}, y), 1, 0.01},
		{"Q4_K, interleaved", "Q4_K", "blk.3.attn_q.weight",
			quantised(t, quant.Quantiser{Format: quant.Q4_K}, y), 1, 0.01},
		{"Q6_K of binary16", "Q6_K", "blk.3.attn_q.weight",
			quantised(t, quant.Quantiser{Format: quant.Q6_K}, via), 1, 0.01},
		{"bfloat16, interleaved", formats.BF16, "blk.3.attn_q.weight", asBF16(y), 1, 0.01},
		{"single precision", formats.F32, "model.layers.3.self_attn.q_proj.weight", asF32(x), 1, 0.01},
		{"FP8 by rows", formats.F8E4M3, "layers.3.self_attn.q_proj.weight", codes, 1, 0.01},
		{"another layer's", "Q8_0", "blk.2.attn_q.weight",
			quantised(t, quant.Quantiser{Format: quant.Q8_0}, x), 0, 0},
		{"other numbers", "Q8_0", "blk.3.attn_q.weight",
			quantised(t, quant.Quantiser{Format: quant.Q8_0}, numbers(rng, rows*cols)), 0, 0},
		{"the same in another file", formats.BF16, "a.model.layers.3.self_attn.q_proj.weight", base, 0, 0},
	} {
		plan, err := f.Of(&Target{
			Tensor: &formats.Tensor{Name: c.name, DType: c.dtype, Shape: shape}, Len: int64(len(c.raw)),
			Read: func(off int64, n int) ([]byte, error) { return c.raw[off:][:n], nil },
			Beside: func(name string) (*formats.Tensor, []byte, error) {
				if name != c.name+"_scale" {
					return nil, nil, nil
				}
				return &formats.Tensor{Name: name, DType: formats.F32, Shape: []int64{rows, 1}}, asF32(scales), nil
			},
		})
		if err != nil {
			t.Fatal(c.what, err)
		}
		share, size := computed(t, st, plan, c.raw)
		if share != c.share || float64(size) > c.size*float64(len(c.raw)) {
			t.Errorf("%s: %.3f of the bytes are computed, in %d of %d", c.what, share, size, len(c.raw))
		}
	}
}

// TestOfNearest: of several versions of a tensor it is the one that it was made of.
func TestOfNearest(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	const rows, cols = 64, 512
	st := contents{}
	f := New(st)
	x := numbers(rng, rows*cols)
	tensor := func(dtype formats.DType) *formats.Tensor {
		return &formats.Tensor{Name: "model.layers.0.mlp.up_proj.weight", DType: dtype, Shape: []int64{rows, cols}}
	}
	var own []manifest.Span
	for v := range 4 {
		y := slices.Clone(x)
		for i := range y {
			if v != 1 {
				y[i] += float32(rng.NormFloat64() * 2e-5)
			}
		}
		grid := st.put(asF32(y))
		if v == 1 {
			own = grid
		}
		f.Add(tensor(formats.F32), func() []manifest.Span { return grid })
	}
	raw := quantised(t, quant.Quantiser{Format: quant.Q8_0}, x)
	target := tensor("Q8_0")
	plan, err := f.Of(&Target{Tensor: target, Len: int64(len(raw)),
		Read: func(off int64, n int) ([]byte, error) { return raw[off:][:n], nil }})
	if err != nil || plan == nil || plan.sources[0].chunks[0] != own[0] {
		t.Errorf("%+v, %v", plan, err)
	}
}

// TestVain: short tensors with which sources have nothing in common but names cost few looks, and what has
// more is found all the same.
func TestVain(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	const rows, cols, many = 16, 512, 1000
	st := contents{}
	f := New(st)
	looks, found := 0, 0
	tensor := func(k int, dtype formats.DType) *formats.Tensor {
		return &formats.Tensor{Name: fmt.Sprintf("model.layers.%d.mlp.up_proj.weight", k), DType: dtype,
			Shape: []int64{rows, cols}}
	}
	for k := range 2 * many {
		x := numbers(rng, rows*cols)
		grid := st.put(asBF16(x))
		f.Add(tensor(k, formats.BF16), func() []manifest.Span { looks++; return grid })
		if k < many {
			x = numbers(rng, rows*cols)
		}
		raw := quantised(t, quant.Quantiser{Format: quant.Q8_0}, x)
		plan, err := f.Of(&Target{Tensor: tensor(k, "Q8_0"), Len: int64(len(raw)),
			Read: func(off int64, n int) ([]byte, error) { return raw[off:][:n], nil }})
		if err != nil || plan != nil && k < many {
			t.Fatal(plan, err)
		}
		if plan != nil {
			found++
		}
		if k == many-1 && looks > maxVain+many/vainEvery+1 {
			t.Errorf("%d looks", looks)
		}
		if k == many { // nothing was found out of tensors of another type
			raw := asF16(Floats(asBF16(x), formats.BF16))
			plan, err := f.Of(&Target{Tensor: tensor(k, formats.F16), Len: int64(len(raw)),
				Read: func(off int64, n int) ([]byte, error) { return raw[off:][:n], nil }})
			if err != nil || plan == nil {
				t.Error(plan, err)
			}
		}
	}
	if found < many-vainEvery {
		t.Errorf("%d of %d are found", found, many)
	}
}

func TestGone(t *testing.T) {
	x := numbers(rand.New(rand.NewPCG(9, 10)), 1<<16)
	st := contents{}
	grid := st.put(asBF16(x))
	raw := quantised(t, quant.Quantiser{Format: quant.Q8_0}, x)
	target := &Target{Tensor: &formats.Tensor{Name: "a.weight", DType: "Q8_0", Shape: []int64{256, 256}},
		Len: int64(len(raw)), Read: func(off int64, n int) ([]byte, error) { return raw[off:][:n], nil }}
	find := func() *Plan {
		f := New(st)
		f.Add(&formats.Tensor{Name: "a.weight", DType: formats.BF16, Shape: []int64{256, 256}},
			func() []manifest.Span { return grid })
		p, err := f.Of(target)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if find() == nil {
		t.Fatal("nothing is found")
	}
	clear(st)
	if find() != nil {
		t.Error("it is computed from what is gone")
	}
}

func TestGroups(t *testing.T) {
	expand := func(gs []recipe.Group) (all []run) {
		for _, g := range gs {
			for k := range g.Repeat {
				for _, s := range g.Stretches {
					all = append(all, run{s.First + k*s.Step, s.Len})
				}
			}
		}
		return all
	}
	rng := rand.New(rand.NewPCG(11, 12))
	for range 1000 {
		var runs []run
		for range rng.IntN(8) {
			p, n := 1+rng.IntN(4), 1+rng.IntN(6)
			var first, step, length [4]int
			for q := range p {
				first[q], step[q], length[q] = 1000+rng.IntN(50), rng.IntN(20)-10, 1+rng.IntN(3)
			}
			for k := range n {
				for q := range p {
					runs = append(runs, run{first[q] + k*step[q], length[q]})
				}
			}
		}
		got, ok := groups(runs)
		if !ok || !slices.Equal(expand(got), runs) {
			t.Fatalf("%v: %v", runs, got)
		}
	}
	var heads []run
	for i := range 32 {
		heads = append(heads, run{i * 10, 10}, run{1000 + i*10, 10})
	}
	if got, _ := groups(heads); len(got) != 1 || got[0].Repeat != 32 {
		t.Errorf("rows of a head: %v", got)
	}
}

func TestKeys(t *testing.T) {
	for _, c := range [][2]string{
		{"blk.7.attn_q.weight", "model.layers.7.self_attn.q_proj.weight"},
		{"blk.7.ffn_down.weight", "encoder.layer.7.output.dense.weight"},
		{"token_embd.weight", "model.embed_tokens.weight"},
		{"token_embd.weight", "embeddings.word_embeddings.weight"},
		{"output.weight", "lm_head.weight"},
		{"output_norm.weight", "model.norm.weight"},
		{"model.layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"},
	} {
		a, b := keys(c[0]), keys(c[1])
		if !slices.ContainsFunc(a, func(k string) bool { return slices.Contains(b, k) }) {
			t.Errorf("%s and %s have no name in common: %v, %v", c[0], c[1], a, b)
		}
	}
	for _, c := range [][2]string{
		{"blk.7.attn_q.weight", "model.layers.8.self_attn.q_proj.weight"},
		{"blk.7.attn_q.weight", "model.layers.7.self_attn.k_proj.weight"},
		{"a.weight", "b.weight"},
	} {
		a, b := keys(c[0]), keys(c[1])
		if slices.ContainsFunc(a, func(k string) bool { return slices.Contains(b, k) }) {
			t.Errorf("%s and %s: %v, %v", c[0], c[1], a, b)
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add("blk.1.attn_q.weight")
	f.Add("..3..")
	f.Fuzz(func(t *testing.T, name string) {
		for _, k := range keys(name) {
			if len(k) > len(name)+64 {
				t.Fatal(fmt.Sprint(k))
			}
		}
	})
}
