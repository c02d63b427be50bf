package plans

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// vllm is what a config.json says of a model that concerns vLLM.
type vllm struct {
	Architectures []string `json:"architectures"`
	Vocab         int64    `json:"vocab_size"`
	Layers        int64    `json:"num_hidden_layers"`
	Tied          bool     `json:"tie_word_embeddings"`
	Bias          bool     `json:"attention_bias"`
	OldBias       bool     `json:"bias"` // of a llama or a mistral: what Bias is
	MLPBias       bool     `json:"mlp_bias"`
	Type          string   `json:"dtype"`
	OldType       string   `json:"torch_dtype"`
	Activation    *string  `json:"hidden_act"`
	Causal        *bool    `json:"is_causal"`
}

// unknownToState are what a config.json may have that has vLLM make modules that State does not know, or read
// another config. Only what is false or null says nothing.
var unknownToState = []string{
	"ada_rms_norm_t_cond", "auto_map", "block_configs", "compression_config", "decoder",
	"dual_chunk_attention_config", "generator", "is_encoder_decoder", "llm_config", "per_layer_config", "qk_norm",
	"qkv_bias", "speculators_config", "text_config", "text_encoder",
}

// stateBeside are files beside a config.json of which vLLM takes a quantisation, or that the model is one for
// embeddings.
var stateBeside = []string{"hf_quant_config.json", "modules.json"}

// StateBeside reports whether vLLM makes something else of a model with a file of this name in its folder.
func StateBeside(name string) bool { return slices.Contains(stateBeside, name) }

// exactly is a config.json without the keys that Go would take for others: Python tells capitals apart.
func exactly(config []byte) ([]byte, map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, nil, none("config.json: %v", err)
	}
	for k := range all {
		if strings.ContainsFunc(k, func(r rune) bool { return r > 0x7f || 'A' <= r && r <= 'Z' }) {
			delete(all, k)
		}
	}
	p, err := json.Marshal(all)
	if err != nil {
		return nil, nil, none("config.json: %v", err)
	}
	return p, all, nil
}

// readConfig reads what the config says. The error is why State does not know what vLLM makes of it.
func (s *state) readConfig(config []byte) error {
	p, all, err := exactly(config)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(p, &s.vllm); err != nil {
		return none("config.json: %v", err)
	}
	said := func(key string) bool {
		v := string(all[key])
		return v != "" && v != "null"
	}
	for _, key := range unknownToState {
		if said(key) && string(all[key]) != "false" {
			return none("config.json: it is not known what vLLM makes of %s", key)
		}
	}
	if _, is := all["qkv_bias"]; is && (s.Bias || s.OldBias) {
		return none("config.json: qkv_bias is beside attention_bias, and vLLM takes the former for some of them")
	}
	if bytes.Contains(config, []byte("use_fope")) {
		return none("config.json: it is not known what vLLM makes of use_fope")
	}
	class, ok := modelClasses[s.model.Type]
	if !ok || len(s.Architectures) != 1 || s.Architectures[0] != class {
		return none("config.json: a model of type %.64q and the architectures %.64q is not known as vLLM's",
			s.model.Type, strings.Join(s.Architectures, " "))
	}
	if s.Causal != nil && !*s.Causal {
		return none("config.json: is_causal is false, and vLLM makes a model for embeddings")
	}
	if s.Activation != nil && *s.Activation != "silu" {
		return none("config.json: hidden_act is %q, and vLLM knows silu alone", *s.Activation)
	}
	// transformers has numbers of its own for what a config leaves out.
	switch t := s.model.Type; {
	case t != "llama" && !said("num_key_value_heads"), t == "qwen3" && !said("head_dim"):
		return none("config.json: num_key_value_heads or head_dim is missing")
	case t == "qwen2" && s.HeadDim != s.Hidden/s.Heads:
		return none("config.json: head_dim is %d, and vLLM takes %d", s.HeadDim, s.Hidden/s.Heads)
	case t == "llama" && s.Hidden%s.Heads != 0:
		return none("config.json: hidden_size %d is not divisible by %d heads", s.Hidden, s.Heads)
	}
	name := s.vllm.Type
	if name == "" {
		name = s.OldType
	}
	if s.dtype, ok = stateTypes[name]; !ok {
		return none("config.json: dtype is %q, and vLLM keeps bfloat16 and float16 as they are", name)
	}
	return nil
}
