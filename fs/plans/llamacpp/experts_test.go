package llamacpp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/formats/pyjson"
)

const mixtureConfig = `{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 40, "hidden_size": 64,
	"intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
	"max_position_embeddings": 512, "rms_norm_eps": 1e-6, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}`

// mixtureOf says what these tensors of a mixture of experts become.
func mixtureOf(t *testing.T, tensors ...formats.Tensor) ([]string, error) {
	t.Helper()
	c := converter{f: &Folder{Files: map[string][]byte{fileConfig: []byte(mixtureConfig)},
		Parts: []Part{{"model.safetensors", tensors}}}, read: make(map[string]*pyjson.Object)}
	if err := c.configure(); err != nil {
		t.Fatal(err)
	}
	all, err := c.tensors(formats.F16)
	var out []string
	for _, x := range all {
		out = append(out, fmt.Sprint(x.Name, " ", x.DType, " ", x.Shape, " ", x.Index, x.Experts, x.Half))
	}
	return out, err
}

// Experts are put together when the last of a layer was read, down before gate before up; those that are
// together are cut in halves.
func TestExperts(t *testing.T) {
	is := func(name string, shape ...int64) formats.Tensor {
		return formats.Tensor{Name: "model.layers." + name, DType: formats.BF16, Shape: shape}
	}
	apart := []formats.Tensor{is("1.mlp.gate.weight", 2, 64)}
	for _, x := range []int{1, 0} {
		apart = append(apart, is(fmt.Sprint("1.mlp.experts.", x, ".up_proj.weight"), 8, 64),
			is(fmt.Sprint("1.mlp.experts.", x, ".down_proj.weight"), 64, 8), is(fmt.Sprint("1.mlp.experts.", x, ".gate_proj.weight"), 8, 64))
	}
	got, err := mixtureOf(t, append(apart, is("0.mlp.experts.gate_up_proj", 2, 16, 64), is("0.mlp.experts.down_proj", 2, 64, 8),
		is("0.self_attn.k_norm.weight", 16))...)
	want := []string{"blk.0.ffn_down_exps.weight F16 [2 64 8] 8 [] 0", "blk.0.ffn_gate_exps.weight F16 [2 8 64] 7 [] 1",
		"blk.0.ffn_up_exps.weight F16 [2 8 64] 7 [] 2", "blk.0.attn_k_norm.weight F32 [16] 9 [] 0",
		"blk.1.ffn_down_exps.weight F16 [2 64 8] 0 [{0 5} {0 2}] 0", "blk.1.ffn_gate_exps.weight F16 [2 8 64] 0 [{0 6} {0 3}] 0",
		"blk.1.ffn_up_exps.weight F16 [2 8 64] 0 [{0 4} {0 1}] 0", "blk.1.ffn_gate_inp.weight F32 [2 64] 0 [] 0"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || err != nil {
		t.Errorf("%v, %s", err, strings.Join(got, "\n"))
	}
	for what, refused := range map[string]formats.Tensor{
		"of 3 experts": is("0.mlp.experts.down_proj", 3, 64, 8), "no two halves": is("0.mlp.experts.gate_up_proj", 2, 15, 64),
		"has the shape": is("0.mlp.experts.down_proj", 2, 64), "lacks weights": is("0.mlp.experts.0.up_proj.weight", 8, 64),
		"is not known": is("0.mlp.experts.2.up_proj.weight", 8, 64), "of 2 layers": is("0.mlp.up_proj.weight", 8, 64),
	} {
		if _, err := mixtureOf(t, refused); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
