package plans

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// adapterConfig is an adapter_config.json.
const adapterConfig = `{"peft_type": "LORA", "r": 8, "lora_alpha": 24, "fan_in_fan_out": %t, "bias": "none",
	"init_lora_weights": true, "target_modules": ["q_proj"], "use_dora": false, "rank_pattern": {}}`

// Merge has the weights that PEFT's arithmetic gives, also of transposed ones.
func TestMerge(t *testing.T) {
	for _, name := range []string{"llama", "gpt2", "qwen2"} {
		base, lora := made(t, name, pt, nil), made(t, "lora "+name, pt, nil)
		config := fmt.Sprintf(adapterConfig, name == "gpt2")
		cache := NewFactors(20_000) // some, not all
		p, err := Merge(base.Source, lora.Source, []byte(config), 0.7, false, cache)
		if err != nil {
			t.Fatal(err)
		}
		over(p, base, lora).saved(t, "merge "+name)
		if cache.bytes == 0 || cache.bytes > 20_000 {
			t.Errorf("%d bytes are kept", cache.bytes)
		}
		p.Drop()
		if cache.bytes != 0 || len(cache.last) != 0 {
			t.Errorf("%d bytes are kept after the last use", cache.bytes)
		}
	}
}

// What PEFT merges in another way is refused.
func TestMergeRefuses(t *testing.T) {
	base, lora := made(t, "llama", pt, nil), made(t, "lora llama", pt, nil)
	good := fmt.Sprintf(adapterConfig, false)
	for _, x := range []struct{ was, is string }{
		{`"use_dora": false`, `"use_dora": true`},
		{`"rank_pattern": {}`, `"rank_pattern": {"q_proj": 4}`},
		{`"bias": "none"`, `"bias": "all"`},
		{`"LORA"`, `"LOHA"`},
		{`"r": 8`, `"r": 4`}, {`"r": 8`, `"r": 0`}, {`"r": 8`, `"r": 1000`}, {`"r": 8`, `"r": "x"`},
		{`"lora_alpha": 24`, `"lora_alpha": 1e300`}, {`"lora_alpha": 24,`, ``},
		{`"init_lora_weights": true`, `"init_lora_weights": "pissa"`},
		{`"use_dora": false`, `"modules_to_save": ["lm_head"]`},
		{`"use_dora": false`, `"use_something": true`},
		{`"fan_in_fan_out": false`, `"fan_in_fan_out": true`},
		{good, ``}, {good, `[]`}, {good, `{}`},
	} {
		_, err := Merge(base.Source, lora.Source, []byte(strings.Replace(good, x.was, x.is, 1)), 1, false, nil)
		refused(t, x.is, err)
	}
	_, err := Merge(base.Source, lora.Source, []byte(good), math.Inf(1), false, nil)
	refused(t, "an infinite scale", err)

	other := made(t, "gpt2", pt, nil)
	_, err = Merge(other.Source, lora.Source, []byte(good), 1, false, nil)
	refused(t, "another base", err)
	if _, err = Merge(other.Source, lora.Source, []byte(good), 1, true, nil); err != nil {
		t.Errorf("a part that has none of the weights: %v", err)
	}
	_, err = Merge(base.Source, base.Source, []byte(good), 1, false, nil)
	refused(t, "an adapter that is none", err)

	const q = "base_model.model.model.layers.0.self_attn.q_proj."
	for what, entries := range map[string][]safetensors.Entry{
		"no B":      {{Name: q + "lora_A.weight", DType: "F32", Shape: []int64{8, 64}}},
		"embedding": {{Name: q + "lora_embedding_A", DType: "F32", Shape: []int64{8, 64}}},
		"another shape": {{Name: q + "lora_A.weight", DType: "F32", Shape: []int64{8, 64}},
			{Name: q + "lora_B.weight", DType: "F32", Shape: []int64{64, 8}}},
		"integers": {{Name: q + "lora_A.weight", DType: "I32", Shape: []int64{8, 64}},
			{Name: q + "lora_B.weight", DType: "I32", Shape: []int64{128, 8}}},
		"a list": {{Name: q + "lora_A.weight", DType: "F32", Shape: []int64{512}},
			{Name: q + "lora_B.weight", DType: "F32", Shape: []int64{128, 8}}},
	} {
		f := build(t, entries, nil, func(i int) []byte { return make([]byte, entries[i].NumBytes()) })
		_, err := Merge(base.Source, f.Source, []byte(good), 1, false, nil)
		refused(t, what, err)
	}
	narrow := []safetensors.Entry{{Name: "w.weight", DType: formats.F32, Shape: []int64{8, 64}}}
	pair := []safetensors.Entry{
		{Name: "base_model.model.w.lora_A.weight", DType: formats.F32, Shape: []int64{8, 64}},
		{Name: "base_model.model.w.lora_B.weight", DType: formats.F32, Shape: []int64{8, 8}}}
	zeros := func(all []safetensors.Entry) *Source {
		return build(t, all, nil, func(i int) []byte { return make([]byte, all[i].NumBytes()) }).Source
	}
	_, err = Merge(zeros(narrow), zeros(pair), []byte(good), 1, false, nil)
	refused(t, "a narrow product", err)
}

// fmaRow rounds once, also where the sum in double precision lies in the middle between two numbers, and where
// numbers are small or large.
func TestFMA(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	number := func() float32 {
		for {
			bits := r.Uint32()
			switch r.IntN(4) {
			case 0:
				bits = bits&0x80ffffff | 0x3f000000
			case 1:
				bits &= 0x80ffffff
			case 2:
				bits &^= 0xffff
			}
			if x := math.Float32frombits(bits); !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) {
				return x
			}
		}
	}
	for range 50_000 {
		x, a, c := number(), number(), number()
		if r.IntN(3) == 0 { // half of the last bit of c, or near it
			u := math.Float32bits(c)
			ulp := math.Float32frombits(u+1) - c
			x, a = ulp*(1+float32(r.IntN(3)-1)*0x1p-20), 0.5
		}
		sums := []float32{c}
		fmaRow(sums, []float32{x}, a)
		exact := new(big.Float).SetPrec(2000)
		exact.Mul(big.NewFloat(float64(x)), big.NewFloat(float64(a))).SetPrec(2000)
		exact.Add(exact, new(big.Float).SetPrec(2000).SetFloat64(float64(c)))
		if want, _ := exact.Float32(); sums[0] != want {
			t.Fatalf("%g * %g + %g = %g, want %g", x, a, c, sums[0], want)
		}
	}
}
