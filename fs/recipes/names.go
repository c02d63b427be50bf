package recipes

import "strings"

// llama.cpp's names of tensors (gguf-py's tensor_mapping), without blk.N. and .weight or .bias, and what they
// are called elsewhere, from the part with the number on.
var converted = map[string][]string{
	"attn_norm":           {"input_layernorm", "ln_1"},
	"attn_q":              {"self_attn.q_proj", "attention.self.query", "attn.attention.q_proj"},
	"attn_k":              {"self_attn.k_proj", "attention.self.key", "attn.attention.k_proj"},
	"attn_v":              {"self_attn.v_proj", "attention.self.value", "attn.attention.v_proj"},
	"attn_qkv":            {"self_attn.qkv_proj", "attention.query_key_value", "attn.c_attn", "attn.qkv_proj"},
	"attn_output":         {"self_attn.o_proj", "attention.output.dense", "attn.c_proj", "self_attn.out_proj"},
	"attn_q_norm":         {"self_attn.q_norm"},
	"attn_k_norm":         {"self_attn.k_norm"},
	"attn_output_norm":    {"attention.output.LayerNorm"},
	"layer_output_norm":   {"output.LayerNorm"},
	"post_attention_norm": {"post_attention_layernorm"},
	"post_ffw_norm":       {"post_feedforward_layernorm"},
	"ffn_norm":            {"post_attention_layernorm", "ln_2", "pre_feedforward_layernorm"},
	"ffn_gate":            {"mlp.gate_proj", "feed_forward.w1"},
	"ffn_up":              {"mlp.up_proj", "intermediate.dense", "mlp.c_fc", "mlp.gate_up_proj", "mlp.fc1"},
	"ffn_down":            {"mlp.down_proj", "output.dense", "mlp.c_proj", "mlp.fc2"},
	"ffn_gate_inp":        {"block_sparse_moe.gate", "mlp.gate"},
	"ffn_gate_shexp":      {"mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"},
	"ffn_up_shexp":        {"mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"},
	"ffn_down_shexp":      {"mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"},
}

// outside are those of tensors in no layer.
var outside = map[string][]string{
	"token_embd":      {"embed_tokens", "word_embeddings", "wte"},
	"token_embd_norm": {"embeddings.LayerNorm"},
	"position_embd":   {"position_embeddings", "wpe"},
	"token_types":     {"token_type_embeddings"},
	"output":          {"lm_head", "embed_out"},
	"output_norm":     {"model.norm", "final_layernorm", "ln_f"},
}

// layerOf is what the names of tensors in layers begin with in GGUF.
const layerOf = "blk."

// keys are the names under which a tensor is known here: the same for it and what it was converted to.
func keys(name string) (all []string) {
	all = append(all, name)
	base, end := name, ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		base, end = name[:i], name[i:]
	}
	if rest, ok := strings.CutPrefix(base, layerOf); ok {
		if n, part, ok := strings.Cut(rest, "."); ok {
			for _, to := range converted[part] {
				all = append(all, n+"."+to+end)
			}
		}
		return all
	}
	for _, to := range outside[base] {
		all = append(all, to+end)
	}
	if len(all) > 1 {
		return all
	}
	parts := strings.Split(name, ".")
	for i, p := range parts {
		if p != "" && strings.Trim(p, "0123456789") == "" && i < len(parts)-1 {
			return append(all, strings.Join(parts[i:], "."))
		}
	}
	// In no layer: the last parts, of which one may say only weight.
	for n := 2; n <= min(3, len(parts)-1); n++ {
		all = append(all, strings.Join(parts[len(parts)-n:], "."))
	}
	return all
}

// Names are the names under which the versions of a tensor in other formats are known, besides its own.
func Names(name string) []string { return keys(name)[1:] }
