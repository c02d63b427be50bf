package recipes

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"ckptfs/cas/half"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// awqFile is a layer as AutoAWQ has it, of weights x of so many outputs, each of so many inputs: they are
// multiplied by a factor for each input, and, where they are folded, divided by one for each output.
func awqFile(rng *rand.Rand, x []float32, outputs, inputs, group int, folded bool) checkpoint {
	h := func(v float32) float32 { return half.FromF16(half.ToF16(math.Float32bits(v))) }
	s, t := make([]float32, inputs), make([]float32, outputs)
	for i := range s {
		s[i] = h(float32(math.Exp(0.5 * rng.NormFloat64())))
	}
	for o := range t {
		if t[o] = 1; folded {
			t[o] = h(float32(math.Exp(0.5 * rng.NormFloat64())))
		}
	}
	lane := []int{0, 4, 1, 5, 2, 6, 3, 7}
	words, zeros := make([]uint32, inputs*outputs/8), make([]uint32, inputs/group*outputs/8)
	scales := make([]float32, inputs/group*outputs)
	for o := range outputs {
		for g := range inputs / group {
			y := make([]float32, group)
			lo, hi := float32(math.Inf(1)), float32(math.Inf(-1))
			for k := range y {
				i := g*group + k
				y[k] = h(h(h(x[o*inputs+i])*s[i]) / t[o])
				lo, hi = min(lo, y[k]), max(hi, y[k])
			}
			a := h(h(hi-lo) / 15)
			z := uint32(min(max(-math.RoundToEven(float64(h(lo/a))), 0), 15))
			scales[g*outputs+o] = a
			zeros[(g*outputs+o)/8] |= z << (4 * lane[o%8])
			for k, y := range y {
				c := uint32(min(max(math.RoundToEven(float64(h(y/a)))+float64(z), 0), 15))
				words[((g*group+k)*outputs+o)/8] |= c << (4 * lane[o%8])
			}
		}
	}
	raw := func(w []uint32) (p []byte) {
		for _, v := range w {
			p = binary.LittleEndian.AppendUint32(p, v)
		}
		return p
	}
	n, k := int64(outputs), int64(inputs)
	c := checkpoint{}
	c.add("layers.1.up.qweight", formats.I32, raw(words), k, n/8)
	c.add("layers.1.up.qzeros", formats.I32, raw(zeros), k/int64(group), n/8)
	c.add("layers.1.up.scales", formats.F16, asF16(scales), k/int64(group), n)
	return c
}

// TestAWQ: the codes of a layer are computed of its weights, and of its scales and zeros.
func TestAWQ(t *testing.T) {
	const outputs, inputs, group = 768, 1024, 128
	for name, c := range map[string]struct {
		typ    formats.DType
		folded bool
		most   float64
	}{
		"bf16":         {formats.BF16, false, 0.02},
		"fp16":         {formats.F16, false, 0.02},
		"fp32":         {formats.F32, false, 0.02},
		"bf16, folded": {formats.BF16, true, 0.03},
	} {
		rng := rand.New(rand.NewPCG(41, 42))
		x := numbers(rng, outputs*inputs)
		base := map[formats.DType]func([]float32) []byte{formats.BF16: asBF16, formats.F16: asF16,
			formats.F32: asF32}[c.typ](x)
		if c.typ != formats.F32 {
			x = Floats(base, c.typ)
		}
		file := awqFile(rng, x, outputs, inputs, group, c.folded)
		st := contents{}
		f := New(st)
		grid := st.put(base)
		add := func(name string, shape ...int64) {
			f.Add(&formats.Tensor{Name: name, DType: c.typ, Shape: shape}, func() []manifest.Span { return grid })
		}
		add("layers.1.up.weight", outputs, inputs)
		for _, end := range []string{"scales", "qzeros"} {
			st.put(file["layers.1.up."+end].raw)
		}
		to := file.target("layers.1.up.qweight")
		plan, err := f.Of(to)
		if plan == nil || err != nil {
			t.Fatalf("%s: not found, %v", name, err)
		}
		share, size := computed(t, st, plan, file[to.Tensor.Name].raw)
		t.Logf("%s: variant %d, %.4f of the samples, %d of %d bytes", name, plan.quantiser.Variant, plan.right, size,
			to.Len)
		if share < 1 || float64(size) > c.most*float64(to.Len) {
			t.Errorf("%s: %.2f computed, in %d of %d bytes", name, share, size, to.Len)
		}
		if w := plan.Waits(); len(w) != 2 || w[0] != "layers.1.up.scales" || w[1] != "layers.1.up.qzeros" {
			t.Errorf("%s: waits for %v", name, w)
		}
	}
}
