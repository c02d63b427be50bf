package plans

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unsafe"
)

// mcore is a model of a type that Hugging Face and Megatron-core have, as its config.json says.
type mcore struct {
	*model
	saysMcore
}

// saysMcore is what a config.json says of a model that concerns Megatron-core.
type saysMcore struct {
	Architectures []string `json:"architectures"`
	Vocab         int64    `json:"vocab_size"`
	Layers        int64    `json:"num_hidden_layers"`
	Tied          bool     `json:"tie_word_embeddings"`
	Bias          bool     `json:"attention_bias"` // a qwen2 does not look at it
	MLPBias       bool     `json:"mlp_bias"`
	Activation    *string  `json:"hidden_act"`
}

// MaxVocab bounds what a vocabulary may be padded to a multiple of.
const MaxVocab = 1 << 20

// maxMatrix bounds the elements of a matrix that a config may say, so that products do not overflow.
const maxMatrix = 1 << 57

// unknownToMcore are what a config.json may have that says of a model what its type does not. Only what is
// false or null says nothing.
var unknownToMcore = []string{
	"auto_map", "block_configs", "compression_config", "is_encoder_decoder", "per_layer_config", "pruned_heads", "qk_norm",
	"qkv_bias", "text_config",
}

// mcoreOf reads a config.json. The error is why it is not known what Megatron-core makes of it.
func mcoreOf(config []byte) (*mcore, error) {
	base, err := modelOf(config)
	if err != nil {
		return nil, err
	}
	p, all, err := exactly(config)
	if err != nil {
		return nil, err
	}
	m := &mcore{model: base}
	if err := json.Unmarshal(p, &m.saysMcore); err != nil {
		return nil, none("config.json: %v", err)
	}
	for _, key := range unknownToMcore {
		switch string(all[key]) {
		case "", "null", "false", "{}", "[]":
		default:
			return nil, none("config.json: it is not known what Megatron-core makes of %s", key)
		}
	}
	class, ok := modelClasses[m.Type]
	if !ok || len(m.Architectures) != 1 || m.Architectures[0] != class {
		return nil, none("config.json: a model of type %.64q and the architectures %.64q is not known as Megatron-core's",
			m.Type, strings.Join(m.Architectures, " "))
	}
	if m.Activation != nil && *m.Activation != "silu" {
		return nil, none("config.json: hidden_act is %q, and Megatron-core is given silu", *m.Activation)
	}
	said := func(key string) bool { return string(all[key]) != "" && string(all[key]) != "null" }
	_, empty := all["head_dim"]
	empty = empty && !said("head_dim")
	// transformers has numbers of its own for what a config leaves out.
	switch {
	case m.Type != "llama" && !said("num_key_value_heads"), m.Type == "qwen3" && !said("head_dim"),
		m.Type == "qwen2" && empty, string(all["num_key_value_heads"]) == "0", string(all["head_dim"]) == "0":
		return nil, none("config.json: num_key_value_heads or head_dim is missing")
	case m.Hidden%m.Heads != 0 && (m.Type == "llama" || !said("head_dim")):
		return nil, none("config.json: hidden_size %d is not divisible by %d heads", m.Hidden, m.Heads)
	case m.Heads%m.KeyHeads != 0:
		return nil, none("config.json: %d heads are not in %d groups", m.Heads, m.KeyHeads)
	case m.Layers < 1 || m.Layers > maxDim || m.Vocab < 1 || m.Vocab > maxDim:
		return nil, none("config.json: num_hidden_layers or vocab_size is missing, or out of range")
	case m.HeadDim > maxMatrix/m.Heads/3 || max(3*m.Heads*m.HeadDim, 2*m.Intermediate, m.Vocab+MaxVocab) > maxMatrix/m.Hidden:
		return nil, none("config.json: a size is out of range")
	case m.Bias && m.Type != "qwen2", m.MLPBias && m.Type == "llama":
		return nil, none("config.json: Megatron-core's model of type %s has not all of the biases", m.Type)
	}
	return m, nil
}

// mcoreKind is how Megatron-core's tensor is made of Hugging Face's, and how it is cut.
type mcoreKind byte

const (
	mcoreExtra  mcoreKind = iota // what a layer says of itself: None
	mcoreWhole                   // the same, and each rank has it
	mcoreVocab                   // the same, cut by rows, of a vocabulary that may be padded
	mcoreColumn                  // the same, cut by columns
	mcoreQKV                     // q, k and v, by turns: of each group of queries, its heads' rows
	mcoreGated                   // gate and up, one behind the other, each cut by rows
)

// mcoreTensor is a tensor of Megatron-core's model.
type mcoreTensor struct {
	name  string
	kind  mcoreKind
	shape []int64  // of all ranks together
	of    []string // Hugging Face's
}

// tensors calls yield with those of Megatron-core's GPTModel, in the order of its state_dict.
func (m *mcore) tensors(yield func(mcoreTensor) bool) {
	type names = []string
	h, q, ffn := m.Hidden, m.Heads*m.HeadDim, m.Intermediate
	qkv := q + 2*m.KeyHeads*m.HeadDim
	if !yield(mcoreTensor{"embedding.word_embeddings.weight", mcoreVocab, []int64{m.Vocab, h},
		names{"model.embed_tokens.weight"}}) {
		return
	}
	for i := range m.Layers {
		at, hf := fmt.Sprintf("decoder.layers.%d.", i), hfLayer(i)
		layer := []mcoreTensor{
			{"self_attention.linear_proj.weight", mcoreColumn, []int64{h, q}, names{"self_attn.o_proj.weight"}},
			{name: "self_attention.linear_proj._extra_state"},
			{"self_attention.linear_qkv.layer_norm_weight", mcoreWhole, []int64{h}, names{"input_layernorm.weight"}},
			{"self_attention.linear_qkv.weight", mcoreQKV, []int64{qkv, h},
				names{"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
		}
		if m.Type == "qwen2" {
			layer = append(layer, mcoreTensor{"self_attention.linear_qkv.bias", mcoreQKV, []int64{qkv},
				names{"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}})
		}
		layer = append(layer, mcoreTensor{name: "self_attention.linear_qkv._extra_state"})
		if m.Type == "qwen3" {
			layer = append(layer,
				mcoreTensor{"self_attention.q_layernorm.weight", mcoreWhole, []int64{m.HeadDim},
					names{"self_attn.q_norm.weight"}},
				mcoreTensor{"self_attention.k_layernorm.weight", mcoreWhole, []int64{m.HeadDim},
					names{"self_attn.k_norm.weight"}})
		}
		layer = append(layer,
			mcoreTensor{"mlp.linear_fc1.layer_norm_weight", mcoreWhole, []int64{h},
				names{"post_attention_layernorm.weight"}},
			mcoreTensor{"mlp.linear_fc1.weight", mcoreGated, []int64{2 * ffn, h},
				names{"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
			mcoreTensor{name: "mlp.linear_fc1._extra_state"},
			mcoreTensor{"mlp.linear_fc2.weight", mcoreColumn, []int64{h, ffn}, names{"mlp.down_proj.weight"}},
			mcoreTensor{name: "mlp.linear_fc2._extra_state"})
		for _, t := range layer {
			t.name = at + t.name
			for k := range t.of {
				t.of[k] = hf + t.of[k]
			}
			if !yield(t) {
				return
			}
		}
	}
	if !yield(mcoreTensor{"decoder.final_layernorm.weight", mcoreWhole, []int64{h}, names{"model.norm.weight"}}) ||
		!m.Tied && !yield(mcoreTensor{"output_layer.weight", mcoreVocab, []int64{m.Vocab, h}, names{"lm_head.weight"}}) {
		return
	}
	yield(mcoreTensor{name: "output_layer._extra_state"})
}

// hfLayer is how names of a layer's tensors begin.
func hfLayer(i int64) string { return fmt.Sprintf("model.layers.%d.", i) }

// sections are how many rows each of Hugging Face's tensors has of t, of an mcoreQKV in a group.
func (m *mcore) sections(t *mcoreTensor) []int64 {
	switch t.kind {
	case mcoreQKV:
		return []int64{m.Heads / m.KeyHeads * m.HeadDim, m.HeadDim, m.HeadDim}
	case mcoreGated:
		return []int64{m.Intermediate, m.Intermediate}
	}
	return []int64{t.shape[0]}
}

// turns is how often the sections follow one another in t.
func (m *mcore) turns(t *mcoreTensor) int64 {
	if t.kind == mcoreQKV {
		return m.KeyHeads
	}
	return 1
}

// byTurns are sections of several tensors by turns: so many bytes of each, and then the next ones.
type byTurns struct {
	of   []link
	turn int64 // their sum
}

func (t *byTurns) read(src []io.ReaderAt, p []byte, off int64) error {
	for len(p) > 0 {
		n, at := off/t.turn, off%t.turn
		for _, l := range t.of {
			if at >= l.size {
				at -= l.size
				continue
			}
			k := min(int64(len(p)), l.size-at)
			if err := l.op.read(src, p[:k], n*l.size+at); err != nil {
				return err
			}
			if p, off = p[k:], off+k; len(p) == 0 {
				return nil
			}
			at = 0
		}
	}
	return nil
}

func (t *byTurns) memory() int64 { return (&chain{t.of}).memory() }

// oneOf is a section of each turn of a tensor: what byTurns puts together, taken apart.
type oneOf struct {
	of                op
	first, size, turn int64 // bytes
}

func (o *oneOf) read(src []io.ReaderAt, p []byte, off int64) error {
	for len(p) > 0 {
		n, at := off/o.size, off%o.size
		k := min(int64(len(p)), o.size-at)
		if err := o.of.read(src, p[:k], n*o.turn+o.first+at); err != nil {
			return err
		}
		p, off = p[k:], off+k
	}
	return nil
}

func (o *oneOf) memory() int64 { return int64(unsafe.Sizeof(*o)) + o.of.memory() }

// from is a tensor from a byte on.
type from struct {
	op
	first int64
}

func (f from) read(src []io.ReaderAt, p []byte, off int64) error {
	return f.op.read(src, p, f.first+off)
}
