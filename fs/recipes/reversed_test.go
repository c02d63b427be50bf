package recipes

import (
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas/anchor"
	"ckptfs/cas/quant"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// turn is x, of axes a, b and c, with these in reverse order.
func turn(x []float32, a, b, c int) []float32 {
	y := make([]float32, 0, len(x))
	for k := range c {
		for j := range b {
			for i := range a {
				y = append(y, x[(i*b+j)*c+k])
			}
		}
	}
	return y
}

// TestTurned: what is turned is computed of it, as the same type and as others, and known by its anchors.
func TestTurned(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	for _, c := range []struct {
		from, to []int64
		a        Axes // of the target
	}{
		{[]int64{768, 576}, []int64{576, 768}, Axes{576, 1, 768}},
		{[]int64{256, 4, 160}, []int64{640, 256}, Axes{640, 1, 256}},
		{[]int64{384, 512}, []int64{512, 6, 64}, Axes{512, 1, 384}},
		{[]int64{3, 3, 160, 256}, []int64{256, 160, 3, 3}, Axes{256, 160, 9}},
		{[]int64{256, 160, 3, 3}, []int64{3, 3, 160, 256}, Axes{9, 160, 256}},
		{[]int64{5, 96, 512}, []int64{512, 96, 5}, Axes{512, 96, 5}},
		{[]int64{1, 1, 300, 512}, []int64{512, 300, 1, 1}, Axes{512, 1, 300}},
	} {
		n := 1
		for _, d := range c.from {
			n *= int(d)
		}
		x := numbers(rng, n)
		y := turn(x, int(c.a.Inner), int(c.a.Middle), int(c.a.Outer))
		target := &formats.Tensor{Name: "t", DType: formats.BF16, Shape: c.to}
		if !slices.Contains(Turns(target), c.a) {
			t.Fatalf("%v: %v is none of %v", c.to, c.a, Turns(target))
		}
		st := contents{}
		f := New(st)
		for _, typ := range []formats.DType{formats.BF16, formats.F32} {
			base := asBF16(x)
			if typ == formats.F32 {
				base = asF32(x)
			}
			grid := st.put(base)
			was := &formats.Tensor{Name: "s", DType: typ, Shape: c.from}
			s := f.Source(was, func() []manifest.Span { return grid })
			for _, to := range []formats.DType{formats.BF16, formats.F32} {
				raw := asBF16(y)
				if to == formats.F32 {
					raw = asF32(y)
				}
				target.DType = to
				plan, err := f.Turned(targetOf(target, raw), []Source{s}, c.a)
				if plan == nil || err != nil {
					t.Fatalf("%v of %v, %s of %s: not found, %v", c.to, c.from, to, typ, err)
				}
				if share, size := computed(t, st, plan, raw); share < 1 || size > len(raw)/1000+100 {
					t.Errorf("%v of %v, %s of %s: %.2f computed, in %d bytes", c.to, c.from, to, typ, share, size)
				}
			}
		}
		// Two of the anchors of what it was turned from are known.
		bf16, _ := anchor.NumbersOf("BF16")
		s := anchor.New(bf16, int64(n), 0)
		s.Add(asBF16(x), 0)
		known, hits := s.Keys(anchor.Windows), 0
		p := asBF16(y)
		for _, k := range TurnedKeys(p, make([]byte, len(p)), c.a) {
			if slices.Contains(known, k) {
				hits++
			}
		}
		if hits < 2 {
			t.Errorf("%v of %v: %d anchors in common", c.to, c.from, hits)
		}
		// Others are not.
		other := asBF16(numbers(rng, n))
		target.DType = formats.BF16
		grid := st.put(other)
		src := f.Source(&formats.Tensor{Name: "o", DType: formats.BF16, Shape: c.from},
			func() []manifest.Span { return grid })
		if plan, err := f.Turned(targetOf(target, p), []Source{src}, c.a); plan != nil || err != nil {
			t.Errorf("%v of others: %v, %v", c.to, plan, err)
		}
	}
}

// TestTurnedByName: what llama.cpp's converter has turned, quantised or not.
func TestTurnedByName(t *testing.T) {
	for _, rows := range []int{768, 512} {
		turnedByName(t, rows, 512)
	}
}

func turnedByName(t *testing.T, rows, cols int) {
	rng := rand.New(rand.NewPCG(19, 20))
	x := numbers(rng, rows*cols)
	y := turn(x, rows, 1, cols)
	st := contents{}
	f := New(st)
	grid := st.put(asF32(x))
	f.Add(&formats.Tensor{Name: "h.3.mlp.c_fc.weight", DType: formats.F32, Shape: []int64{int64(rows), int64(cols)}},
		func() []manifest.Span { return grid })
	for typ, raw := range map[formats.DType][]byte{
		formats.F16: asF16(y), formats.F32: asF32(y),
		"Q8_0": quantised(t, quant.Quantiser{Format: quant.Q8_0}, y),
		"Q4_K": quantised(t, quant.Quantiser{Format: quant.Q4_K}, y),
	} {
		target := &formats.Tensor{Name: "blk.3.ffn_up.weight", DType: typ, Shape: []int64{int64(cols), int64(rows)}}
		plan, err := f.Of(targetOf(target, raw))
		if plan == nil || err != nil {
			t.Fatalf("%s: not found, %v", typ, err)
		}
		share, size := computed(t, st, plan, raw)
		if share < 1 || size > len(raw)/100 {
			t.Errorf("%s: %.2f computed, in %d of %d bytes", typ, share, size, len(raw))
		}
	}
}

// TestTurnedWide: of what has more chunks than a read may need nothing is computed.
func TestTurnedWide(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	st := contents{}
	f := New(st)
	for _, rows := range []int{maxWide * 128, maxWide*128 + 1} {
		const cols = 512
		x := numbers(rng, rows*cols)
		grid := st.put(asF32(x))
		s := f.Source(&formats.Tensor{Name: "s", DType: formats.F32, Shape: []int64{int64(rows), cols}},
			func() []manifest.Span { return grid })
		raw := asF32(turn(x, rows, 1, cols))
		target := &formats.Tensor{Name: "t", DType: formats.F32, Shape: []int64{cols, int64(rows)}}
		plan, err := f.Turned(targetOf(target, raw), []Source{s}, Axes{cols, 1, int64(rows)})
		if err != nil || (plan != nil) != (len(grid) <= maxWide) {
			t.Fatalf("%d chunks: %v, %v", len(grid), plan, err)
		}
		if plan == nil {
			continue
		}
		if r := plan.Chunk(3); len(r.Bases) != len(grid) {
			t.Errorf("%d bases, want %d", len(r.Bases), len(grid))
		}
		if share, size := computed(t, st, plan, raw); share < 1 || size > len(raw)/1000 {
			t.Errorf("%.2f computed, in %d bytes", share, size)
		}
	}
}

// targetOf is a tensor of bytes.
func targetOf(x *formats.Tensor, raw []byte) *Target {
	return &Target{Tensor: x, Len: int64(len(raw)),
		Read: func(off int64, n int) ([]byte, error) { return raw[off:][:n], nil }}
}

// BenchmarkTurnedKeys: a tensor of 10 MiB that is transposed to look for it.
func BenchmarkTurnedKeys(b *testing.B) {
	p := asBF16(numbers(rand.New(rand.NewPCG(31, 32)), 2048*2560))
	room := make([]byte, len(p))
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		TurnedKeys(p, room, Axes{2048, 1, 2560})
	}
}
