package recipes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/quant"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// grid is numbers with rows of cols.
type grid struct {
	x    []float32
	cols int
}

func (m grid) rows() int { return len(m.x) / m.cols }

// pick are some rows, and columns a to b of them.
func (m grid) pick(n int, row func(r int) int, a, b int) (to grid) {
	to.cols = b - a
	for r := range n {
		to.x = append(to.x, m.x[row(r)*m.cols+a:][:b-a]...)
	}
	return to
}

// among is the plan of a target, and its bytes.
func among(t *testing.T, f *Finder, dtype formats.DType, shape []int64, raw []byte, of []Source) *Plan {
	t.Helper()
	p, err := f.Among(&Target{
		Tensor: &formats.Tensor{Name: "t", DType: dtype, Shape: shape}, Len: int64(len(raw)),
		Read: func(off int64, n int) ([]byte, error) { return raw[off:][:n], nil },
	}, of)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAmong: tensors that have numbers of others in common are computed from these, whatever they are called.
func TestAmong(t *testing.T) {
	const cols, head = 512, 64
	rng := rand.New(rand.NewPCG(21, 22))
	st := contents{}
	f := New(st)
	shapes := [][2]int{{1024, cols}, {1024, cols}, {1024, cols}, {256, cols}, {1024, 768}, {1024, 256}, {512, 1024}}
	var m []grid
	var of []Source
	for _, s := range shapes {
		x := grid{numbers(rng, s[0]*s[1]), s[1]}
		chunks := st.put(asBF16(x.x))
		m = append(m, x)
		of = append(of, f.Source(&formats.Tensor{DType: formats.BF16, Shape: []int64{int64(s[0]), int64(s[1])}},
			func() []manifest.Span { return chunks }))
	}
	// One that is nearly the same, and stands before it.
	near := slices.Clone(m[1].x)
	for i := range near {
		near[i] += float32(rng.NormFloat64() * 2e-5)
	}
	chunks := st.put(asBF16(near))
	of = append([]Source{f.Source(&formats.Tensor{DType: formats.BF16, Shape: []int64{1024, cols}},
		func() []manifest.Span { return chunks })}, of...)
	joined := func(all ...grid) (to grid) {
		to.cols = all[0].cols
		for _, g := range all {
			to.x = append(to.x, g.x...)
		}
		return to
	}
	same := func(r int) int { return r }
	fused := joined(m[0], m[1], m[2])
	byHead := fused.pick(fused.rows(), func(r int) int {
		return r/head%3*1024 + r/(3*head)*head + r%head
	}, 0, cols)
	qkv := joined(m[0], m[3], joined(m[1].pick(256, same, 0, cols)))
	// Of each group four heads of q, and one of k and v each.
	grouped := qkv.pick(qkv.rows(), func(r int) int {
		g, h := r/(6*head), r/head%6
		switch {
		case h < 4:
			return g*4*head + h*head + r%head
		case h == 4:
			return 1024 + g*head + r%head
		}
		return 1280 + g*head + r%head
	}, 0, cols)
	rope := m[0].pick(1024, func(r int) int { return r/head*head + r%2*head/2 + r%head/2 }, 0, cols)
	shuffled := m[0].pick(1024, func(r int) int { return r * 371 % 1024 }, 0, cols)
	beside := grid{nil, 768 + 256}
	for r := range 1024 {
		beside.x = append(append(beside.x, m[4].x[r*768:][:768]...), m[5].x[r*256:][:256]...)
	}
	var flat []float32
	for _, g := range m {
		flat = append(flat, g.x...)
	}
	flat = append(flat, make([]float32, 5000)...)
	half := len(flat)/2 + 123
	for _, c := range []struct {
		what  string
		x     grid
		types []formats.DType
		share float64
		most  float64 // bytes that it takes, of those of single precision or of the type
	}{
		{"joined", fused, []formats.DType{"F32", "F16", "BF16", "Q8_0", "Q4_K"}, 1, 0.01},
		{"stacked", fused, []formats.DType{"F32", "BF16", "Q6_K"}, 1, 0.01},
		{"by head", byHead, []formats.DType{"F32", "BF16", "Q8_0", "Q6_K", "Q4_K"}, 1, 0.02},
		{"grouped", grouped, []formats.DType{"F32", "BF16", "Q8_0", "Q5_K"}, 1, 0.02},
		{"interleaved", rope, []formats.DType{"F32", "BF16", "Q8_0", "Q4_K"}, 1, 0.02},
		{"in any order", shuffled, []formats.DType{"F32", "BF16", "Q8_0"}, 1, 0.03},
		{"rows of two", m[0].pick(512, func(r int) int { return 512 + r }, 0, cols),
			[]formats.DType{"F32", "BF16", "Q8_0"}, 1, 0.01},
		{"rows of eight, not on the grid", m[0].pick(128, func(r int) int { return 128*3 + 7 + r }, 0, cols),
			[]formats.DType{"BF16", "F32"}, 1, 0.01},
		{"columns of two", m[0].pick(1024, same, 256, 512),
			[]formats.DType{"F32", "BF16", "Q8_0", "Q4_K"}, 1, 0.01},
		{"columns of eight", m[4].pick(1024, same, 96*5, 96*6),
			[]formats.DType{"F32", "BF16", "Q8_0"}, 1, 0.01},
		{"beside each other", beside, []formats.DType{"F32", "BF16"}, 1, 0.01},
		{"flat, begins with one", grid{flat[:half], 0}, []formats.DType{"F32", "BF16"}, 1, 0.01},
		{"flat, begins within one", grid{flat[half:], 0}, []formats.DType{"F32", "BF16"}, 0.99, 0.01},
		{"flat, within one", grid{m[0].x[100_001:400_000], 0}, []formats.DType{"F32", "BF16"}, 1, 0.01},
		{"unrelated", grid{numbers(rng, 1024*cols), cols}, []formats.DType{"F32", "BF16", "Q8_0", "Q4_K"}, 0, 0},
	} {
		for _, dtype := range c.types {
			t.Run(fmt.Sprint(c.what, ", ", dtype), func(t *testing.T) {
				shape := []int64{int64(len(c.x.x))}
				if c.x.cols > 0 {
					shape = []int64{int64(c.x.rows()), int64(c.x.cols)}
				}
				if c.what == "stacked" {
					shape = []int64{3, 1024, cols}
				}
				raw := bytesAs(t, dtype, c.x.x)
				share, size := computed(t, st, among(t, f, dtype, shape, raw, of), raw)
				if share < c.share || share > 0 && c.share == 0 || float64(size) > c.most*float64(len(raw)) {
					t.Errorf("%.3f of the bytes are computed, in %d of %d", share, size, len(raw))
				}
			})
		}
	}
}

func bytesAs(t *testing.T, dtype formats.DType, x []float32) []byte {
	switch dtype {
	case formats.F32:
		return asF32(x)
	case formats.BF16:
		return asBF16(x)
	case formats.F16:
		return asF16(x)
	}
	format, _ := quant.ByName(string(dtype))
	return quantised(t, quant.Quantiser{Format: format}, x)
}

// TestPieces: the runs of a layout are those of its elements, one by one.
func TestPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	type element struct {
		source int
		at     int64
	}
	for range 300 {
		var l layout
		const n = 500
		if rng.IntN(2) == 0 {
			var p pieces
			for at := int64(rng.IntN(5)); at < n-20; at += int64(rng.IntN(3)) {
				k := int64(1 + rng.IntN(20))
				p = append(p, piece{at, k, rng.IntN(3) - 1, int64(rng.IntN(1000))})
				at += k
			}
			l = p
		} else {
			c := columns{cols: 50}
			for at := int64(rng.IntN(5)); at < 40; at += int64(rng.IntN(3)) {
				k := min(50-at, int64(1+rng.IntN(20)))
				c.parts = append(c.parts, part{at, k, rng.IntN(3), int64(rng.IntN(10)), 100})
				at += k
			}
			l = c
		}
		each := func(first, n, step int64) (all []element) {
			for at := first; at < first+n; at += step {
				l.runs(at, min(step, first+n-at), func(source int, from, m int64) {
					for i := range m {
						e := element{source, from + i}
						if source < 0 {
							e.at = 0
						}
						all = append(all, e)
					}
				})
			}
			return all
		}
		first := int64(rng.IntN(200))
		k := int64(1 + rng.IntN(300))
		if a, b := each(first, k, 1), each(first, k, k); !slices.Equal(a, b) || len(a) != int(k) {
			t.Fatalf("%v: %d elements from %d on: %v, %v", l, k, first, a, b)
		}
	}
}

// TestFewReads: looking for a tensor in others that have nothing to do with it reads a bounded part of them.
func TestFewReads(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 26))
	st := counted{contents{}, new(int)}
	f := New(st)
	var of []Source
	for range 40 {
		chunks := st.put(asBF16(numbers(rng, 1024*512)))
		of = append(of, f.Source(&formats.Tensor{DType: formats.BF16, Shape: []int64{1024, 512}},
			func() []manifest.Span { return chunks }))
	}
	raw := asF32(numbers(rng, 64*512))
	if p := among(t, f, formats.F32, []int64{64, 512}, raw, of); p != nil {
		t.Fatal("it is computed")
	}
	if *st.reads > 4*(readPerByte*len(raw)/cas.ChunkSize+2*len(of)) {
		t.Errorf("%d chunks are read", *st.reads)
	}
}

type counted struct {
	contents
	reads *int
}

func (c counted) Get(h cas.Hash, dst []byte) ([]byte, error) {
	*c.reads++
	return c.contents.Get(h, dst)
}
