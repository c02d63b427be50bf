package plans

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"ckptfs/formats/safetensors"
)

// config is one of testdata/configs.json.
func config(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/configs.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	return all[name]
}

// Shard has the slices that torch makes.
func TestShard(t *testing.T) {
	for _, name := range []string{"llama", "qwen2", "gpt2"} {
		f := made(t, name, pt, nil)
		for _, ranks := range []int{2, 4} {
			for _, rank := range []int{0, ranks - 1} {
				p, err := Shard(f.Source, config(t, name), rank, ranks)
				if err != nil {
					t.Fatal(err)
				}
				over(p, f).saved(t, fmt.Sprintf("shard %s %d/%d", name, rank, ranks))
			}
		}
	}
}

// What is not known how to cut is refused, and so is what the config does not fit.
func TestShardRefuses(t *testing.T) {
	f := made(t, "llama", pt, nil)
	good := string(config(t, "llama"))
	for _, x := range []struct {
		what, config string
		rank, ranks  int
	}{
		{"no rank", good, 2, 2},
		{"a negative rank", good, -1, 2},
		{"no ranks", good, 0, 0},
		{"too many ranks", good, 0, 1 << 20},
		{"heads that are not divisible", good, 0, 3},
		{"more ranks than heads", good, 0, 16},
		{"no config", "", 0, 2},
		{"no JSON", "[", 0, 2},
		{"a list", "[]", 0, 2},
		{"no sizes", `{"model_type":"llama"}`, 0, 2},
		{"another model", strings.Replace(good, `"llama"`, `"mamba"`, 1), 0, 2},
		{"other heads", strings.Replace(good, `"num_attention_heads": 8`, `"num_attention_heads": 4`, 1), 0, 2},
		{"negative heads", strings.Replace(good, `"num_attention_heads": 8`, `"num_attention_heads": -8`, 1), 0, 2},
		{"huge heads", strings.Replace(good, `"head_dim": 16`, `"head_dim": 4611686018427387904`, 1), 0, 2},
		{"a quantised one", strings.Replace(good, `{`, `{"quantization_config": {"bits": 4},`, 1), 0, 2},
	} {
		_, err := Shard(f.Source, []byte(x.config), x.rank, x.ranks)
		refused(t, x.what, err)
	}
	for _, e := range []safetensors.Entry{
		{Name: "model.layers.0.mlp.experts.0.w1.weight", DType: "F32", Shape: []int64{4, 4}},
		{Name: "model.layers.0.self_attn.q_proj.weight", DType: "F32", Shape: []int64{128, 2, 2}},
		{Name: "model.layers.0.self_attn.o_proj.weight", DType: "F32", Shape: []int64{128}},
		{Name: "model.layers.0.mlp.gate_proj.weight", DType: "F4", Shape: []int64{96, 2}},
		{Name: "lm_head.weight", DType: "F32", Shape: []int64{0, 4}},
	} {
		f := build(t, []safetensors.Entry{e}, nil, func(int) []byte { return make([]byte, e.NumBytes()) })
		_, err := Shard(f.Source, []byte(good), 0, 2)
		refused(t, e.Name, err)
	}
}
