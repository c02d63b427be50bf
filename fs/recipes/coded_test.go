package recipes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// checkpoint is a file with codes: tensors and their bytes, by name.
type checkpoint map[string]struct {
	dtype formats.DType
	shape []int64
	raw   []byte
}

func (c checkpoint) add(name string, dtype formats.DType, raw []byte, shape ...int64) {
	x := c[name]
	x.dtype, x.shape, x.raw = dtype, shape, raw
	c[name] = x
}

// target is a tensor of c.
func (c checkpoint) target(name string) *Target {
	x := c[name]
	return &Target{Tensor: &formats.Tensor{Name: name, DType: x.dtype, Shape: x.shape}, Len: int64(len(x.raw)),
		Read: func(off int64, n int) ([]byte, error) { return x.raw[off:][:n], nil },
		Beside: func(name string) (*formats.Tensor, []byte, error) {
			x, ok := c[name]
			if !ok {
				return nil, nil, nil
			}
			return &formats.Tensor{Name: name, DType: x.dtype, Shape: x.shape}, x.raw, nil
		}}
}

// scalesAs are the greatest magnitudes of groups of x, as by makes scales of them.
func scalesAs(x []float32, wide int, by func(top float32) []byte) (p []byte) {
	for ; len(x) >= wide; x = x[wide:] {
		var top float32
		for _, v := range x[:wide] {
			top = max(top, max(v, -v))
		}
		p = append(p, by(top)...)
	}
	return p
}

func asHalf(v float32) []byte { return asBF16([]float32{v}) }

// coded is a checkpoint of x, of so many rows and columns, as libraries have it: nothing but codes and scales.
func coded(t *testing.T, x []float32, rows, cols int) checkpoint {
	c := checkpoint{}
	r, k := int64(rows), int64(cols)
	scales := func(typ quant.Type, wide int, rule quant.Rule) quant.Scales {
		return quant.Scales{Type: typ, Rows: rows, Cols: cols, Tall: 1, Wide: wide, Rule: rule}
	}
	add := func(name string, dtype formats.DType, q quant.Quantiser, shape ...int64) {
		c.add(name, dtype, quantised(t, q, x), shape...)
	}
	sixes := quant.Rule{Kind: quant.Global, Levels: 6, Global: 2688}
	one := quant.Rule{Kind: quant.Over, Levels: 1, Global: 1}

	add("4.up.weight", formats.U8, quant.Quantiser{Format: quant.NF4, Scales: scales(quant.F32, 64, one)}, r*k/2, 1)
	c.add("4.up.weight.absmax", formats.F32,
		scalesAs(x, 64, func(v float32) []byte { return asF32([]float32{v}) }), r*k/64)
	state := fmt.Sprintf(`{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [%d, %d]}`, rows, cols)
	c.add("4.up.weight.quant_state.bitsandbytes__nf4", formats.U8, []byte(state), int64(len(state)))

	add("8.up.weight", formats.I8, quant.Quantiser{Format: quant.Int8, Variant: quant.Times127,
		Scales: scales(quant.F32, cols, one)}, r, k)
	c.add("8.up.SCB", formats.F32, scalesAs(x, cols, func(v float32) []byte { return asF32([]float32{v}) }), r)

	add("16.up.weight_packed", formats.I32, quant.Quantiser{Format: quant.Int4, Variant: quant.DivideBF16,
		Scales: scales(quant.BF16, 128, quant.Rule{Kind: quant.OverOr, Levels: 7.5, Global: 1})}, r, k/8)
	c.add("16.up.weight_scale", formats.BF16,
		scalesAs(x, 128, func(v float32) []byte { return asHalf(v / 7.5) }), r, k/128)
	c.add("16.up.weight_shape", formats.I64, []byte{byte(r), byte(r >> 8), 0, 0, 0, 0, 0, 0, byte(k), byte(k >> 8),
		0, 0, 0, 0, 0, 0}, 2)

	add("5.up.weight_packed", formats.U8, quant.Quantiser{Format: quant.NVFP4,
		Scales: scales(quant.E4M3, 16, sixes)}, r, k/2)
	fours := quant.Quantiser{Format: quant.ScalesOf, Scales: scales(quant.E4M3, 16, sixes)}
	fours.Scales.Rows, fours.Scales.Cols = rows*cols/16, 16
	add("5.up.weight_scale", formats.F8E4M3, fours, r, k/16)
	c.add("5.up.weight_global_scale", formats.F32, asF32([]float32{2688}), 1)

	add("6.up.weight_packed", formats.U8, quant.Quantiser{Format: quant.MXFP4Pairs,
		Scales: scales(quant.E8M0, 32, quant.Rule{Kind: quant.Power, Levels: 1, Global: 1})}, r, k/2)
	c.add("6.up.weight_scale", formats.U8, scalesAs(x, 32, func(v float32) []byte {
		return []byte{byte((math.Float32bits(v)+1<<21)>>23 - 2)}
	}), r, k/32)
	return c
}

// base is a Finder of x, as bfloat16, under the names of coded.
func base(x []float32, rows, cols int) (contents, *Finder) {
	st := contents{}
	f := New(st)
	raw := make([]byte, 0, 2*len(x))
	for _, v := range x {
		h := half.ToBF16(math.Float32bits(v))
		raw = append(raw, byte(h), byte(h>>8))
	}
	grid := st.put(raw)
	for _, layer := range []string{"4", "8", "16", "5", "6"} {
		f.Add(&formats.Tensor{Name: layer + ".up.weight", DType: formats.BF16, Shape: []int64{int64(rows), int64(cols)}},
			func() []manifest.Span { return grid })
	}
	return st, f
}

// TestCodes: codes that lie in bytes follow, and so do their scales.
func TestCodes(t *testing.T) {
	const rows, cols = 1536, 1024
	x := numbers(rand.New(rand.NewPCG(21, 22)), rows*cols)
	c := coded(t, x, rows, cols)
	st, f := base(x, rows, cols)
	for name, tensor := range c {
		if len(tensor.raw) < minScales {
			continue
		}
		to := c.target(name)
		plan, err := f.Of(to)
		if err != nil {
			t.Fatal(name, err)
		}
		share, size := computed(t, st, plan, tensor.raw)
		if share != 1 || float64(size) > 0.02*float64(len(tensor.raw)) {
			t.Errorf("%s: %.3f of the bytes are computed, in %d of %d", name, share, size, len(tensor.raw))
		}
		if plan, err := f.Among(to, []Source{{f.byName[to.coded.name][0]}}); plan == nil || err != nil {
			t.Errorf("%s: %v by numbers, %v", name, plan, err)
		}
	}
}

// TestCodesBroken: what does not fit together is not computed, and does no harm.
func TestCodesBroken(t *testing.T) {
	const rows, cols = 64, 256
	x := numbers(rand.New(rand.NewPCG(23, 24)), rows*cols)
	_, f := base(x, rows, cols)
	for _, of := range []struct {
		name   string
		dtype  formats.DType
		raw    string
		shape  []int64
		target string
	}{
		{"4.up.weight.quant_state.bitsandbytes__nf4", formats.U8, "{", []int64{1}, "4.up.weight"},
		{"4.up.weight.quant_state.bitsandbytes__nf4", formats.U8, "", nil, "4.up.weight"},
		{"4.up.weight.quant_state.bitsandbytes__nf4", formats.U8,
			`{"quant_type": "nf4", "blocksize": -1, "shape": [64, 256]}`, nil, "4.up.weight"},
		{"4.up.weight.quant_state.bitsandbytes__nf4", formats.U8,
			`{"quant_type": "nf4", "blocksize": 9000000000, "shape": [64, 256]}`, nil, "4.up.weight.absmax"},
		{"4.up.weight.quant_state.bitsandbytes__nf4", formats.U8,
			`{"quant_type": "nf4", "blocksize": 64, "shape": [64, 1073741823]}`, nil, "4.up.weight"},
		{"4.up.weight.quant_state.bitsandbytes__nf4", formats.U8,
			`{"quant_type": "nf4", "blocksize": 64, "shape": [-64, -256]}`, nil, "4.up.weight"},
		{"4.up.weight.quant_state.bitsandbytes__nf4", formats.U8,
			`{"quant_type": "nf5", "blocksize": 64, "shape": [64, 256]}`, nil, "4.up.weight"},
		{"8.up.SCB", formats.F32, "", []int64{0}, "8.up.weight"},
		{"8.up.SCB", formats.F32, "abcdabcd", []int64{2}, "8.up.weight"},
		{"16.up.weight_shape", formats.I64, "", []int64{0}, "16.up.weight_packed"},
		{"16.up.weight_shape", formats.F32, "abcdabcd", []int64{2}, "16.up.weight_packed"},
		{"16.up.weight_shape", formats.I64, "\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00",
			[]int64{2}, "16.up.weight_packed"},
		{"16.up.weight_scale", formats.BF16, "ab", []int64{1, 1, 1}, "16.up.weight_packed"},
		{"16.up.weight_scale", formats.BF16, "abcdef", []int64{3}, "16.up.weight_packed"},
		{"16.up.weight_scale", formats.I64, "abcdefgh", []int64{1}, "16.up.weight_packed"},
		{"5.up.weight_global_scale", formats.F32, "\x00\x00\x00\x00", []int64{1}, "5.up.weight_packed"},
		{"5.up.weight_global_scale", formats.F32, "\x00\x00\xc0\x7f", []int64{1}, "5.up.weight_scale"},
		{"5.up.weight_global_scale", formats.F32, "", []int64{0}, "5.up.weight_packed"},
	} {
		c := coded(t, x, rows, cols)
		c.add(of.name, of.dtype, []byte(of.raw), of.shape...)
		plan, err := f.Of(c.target(of.target))
		if plan != nil || err != nil {
			t.Errorf("%s with %s of %q: %+v, %v", of.target, of.name, of.raw, plan, err)
		}
	}
}

// TestSteps: chunks of scales are short, and none is longer than a chunk may be.
func TestSteps(t *testing.T) {
	for _, dtype := range []formats.DType{formats.F32, formats.BF16, formats.F16, formats.U8, formats.F8E4M3,
		formats.I64} {
		for _, name := range []string{"a.weight.absmax", "a.weight_scale", "a.weight", "a.bias_scale", ""} {
			for _, shape := range [][]int64{{5000}, {5000, 1}, {500, 10}} {
				x := &formats.Tensor{Name: name, DType: dtype, Shape: shape}
				step := Step(x)
				if !slices.Contains([]int64{16 << 10, 32 << 10, 256 << 10}, step) ||
					step < 256<<10 && !mayBeScales(x) ||
					name == "a.weight_scale" && dtype != formats.I64 && (step < 256<<10) != (len(shape) > 1 && shape[1] > 1) {
					t.Errorf("%s, %s, %v: %d", name, dtype, shape, step)
				}
			}
		}
	}
}
