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

// TestEights: codes of eight inputs in a word, as GPTQ has them, of weights in bfloat16; all the nearest, and
// some that are not.
func TestEights(t *testing.T) {
	const outputs, inputs, group = 768, 1024, 128
	rng := rand.New(rand.NewPCG(29, 30))
	x := numbers(rng, outputs*inputs)
	st := contents{}
	f := New(st)
	grid := st.put(asBF16(x))
	f.Add(&formats.Tensor{Name: "layers.1.up.weight", DType: formats.BF16, Shape: []int64{outputs, inputs}},
		func() []manifest.Span { return grid })
	scales := make([]float32, inputs/group*outputs)
	for o := range outputs {
		for g := range inputs / group {
			top := float32(0)
			for _, v := range x[o*inputs+g*group:][:group] {
				top = max(top, float32(math.Abs(float64(v))))
			}
			scales[g*outputs+o] = half.FromF16(half.ToF16(math.Float32bits(top / 7.5)))
		}
	}
	for _, others := range []int{0, 4} { // one of so many codes is another
		var raw []byte
		for row := range inputs / 8 {
			for o := range outputs {
				word := uint32(0)
				for k := range 8 {
					i := 8*row + k
					q := math.RoundToEven(float64(x[o*inputs+i] / scales[i/group*outputs+o]))
					if others > 0 && rng.IntN(others) == 0 {
						q += float64(2*rng.IntN(2) - 1)
					}
					word |= uint32(min(max(q, -8), 7)+8) << (4 * k)
				}
				raw = binary.LittleEndian.AppendUint32(raw, word)
			}
		}
		target := targetOf(&formats.Tensor{Name: "layers.1.up.qweight", DType: formats.I32,
			Shape: []int64{inputs / 8, outputs}}, raw)
		target.Beside = func(name string) (*formats.Tensor, []byte, error) {
			if name != "layers.1.up.scales" {
				return nil, nil, nil
			}
			return &formats.Tensor{Name: name, DType: formats.F16, Shape: []int64{inputs / group, outputs}},
				asF16(scales), nil
		}
		plan, err := f.Of(target)
		if plan == nil || err != nil {
			t.Fatalf("one of %d others: not found, %v", others, err)
		}
		share, size := computed(t, st, plan, raw)
		t.Logf("one of %d others: %d of %d bytes", others, size, len(raw))
		if most := len(raw) / 40; share < 1 || others == 0 && size > most || size > 3*len(raw)/8 {
			t.Errorf("one of %d others: %.2f computed, in %d of %d bytes", others, share, size, len(raw))
		}
	}
}
