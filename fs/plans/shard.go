package plans

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// MaxRanks bounds in how many parts a model is cut.
const MaxRanks = 1024

// Shard plans what rank has of a file of a model that is cut in ranks parts for tensor parallelism:
//
//	out = {k: cut(k, t).contiguous() for k, t in load_file(source).items()}
//
// config is the model's config.json. cut(k, t) is, with R for rank and K for ranks:
//
//	embeddings, lm_head                  t.chunk(K)[R], by vocabulary: the last part may be smaller
//	q_proj and its bias                  t[R*n:(R+1)*n], n = heads*head_dim/K
//	k_proj, v_proj and their biases      the same of key and value heads; if there are fewer than K, each
//	                                     goes to K/heads ranks
//	o_proj                               t[:, R*n:(R+1)*n] likewise; its bias is whole
//	gate_proj, up_proj and their biases  t[R*n:(R+1)*n], n = intermediate_size/K
//	down_proj                            t[:, R*n:(R+1)*n]; its bias is whole
//	norms, rotary_emb.inv_freq           whole
//
// for the model types llama, mistral, qwen2 and qwen3. A gpt2 is cut so, too: its weights are transposed
// (Conv1D), and c_attn has the three of q, k and v, of each of which a rank has its part:
//
//	attn.c_attn                          torch.cat([x.chunk(K, -1)[R] for x in t.chunk(3, -1)], -1)
//	attn.c_proj, mlp.c_proj              t.chunk(K)[R]; their biases are whole
//	mlp.c_fc and its bias                t.chunk(K, -1)[R]
//	wte, lm_head                         by vocabulary
//	wpe, ln_1, ln_2, ln_f, attn.bias     whole
//
// A tensor that is not named here, one whose shape is not what the config says, and heads that K does not
// divide are refused. What is cut by vocabulary need not be divisible.
func Shard(s *Source, config []byte, rank, ranks int) (*Plan, error) {
	if ranks < 1 || ranks > MaxRanks || rank < 0 || rank >= ranks {
		return nil, none("there is no rank %d of %d", rank, ranks)
	}
	m, err := modelOf(config)
	if err != nil {
		return nil, err
	}
	out := make([]output, 0, len(s.Layout.Tensors))
	for i := range s.Layout.Tensors {
		t := &s.Layout.Tensors[i]
		c, err := m.cutOf(t, int64(ranks))
		if err != nil {
			return nil, err
		}
		o, err := c.part(0, s, t, int64(rank), int64(ranks))
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return plan(out, s.Metadata)
}

// model is what a config.json says of a model's shapes.
type model struct {
	Type         string `json:"model_type"`
	Hidden       int64  `json:"hidden_size"`
	Heads        int64  `json:"num_attention_heads"`
	KeyHeads     int64  `json:"num_key_value_heads"` // 0: as Heads
	HeadDim      int64  `json:"head_dim"`            // 0: Hidden / Heads
	Intermediate int64  `json:"intermediate_size"`

	// A gpt2's.
	Embedding int64 `json:"n_embd"`
	HeadsOf   int64 `json:"n_head"`
	Inner     int64 `json:"n_inner"` // 0: 4 * Embedding

	Quantised json.RawMessage `json:"quantization_config"`
}

// maxDim bounds what a config may say, so that products do not overflow.
const maxDim = 1 << 30

func modelOf(config []byte) (*model, error) {
	var m model
	config, _, err := exactly(config)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(config, &m); err != nil {
		return nil, none("config.json: %v", err)
	}
	if q := string(m.Quantised); q != "" && q != "null" {
		return nil, none("config.json: the model is quantised")
	}
	switch m.Type {
	case "llama", "mistral", "qwen2", "qwen3":
	case "gpt2":
		m.Hidden, m.Heads, m.KeyHeads, m.HeadDim, m.Intermediate = m.Embedding, m.HeadsOf, 0, 0, m.Inner
		if m.Intermediate == 0 {
			m.Intermediate = 4 * m.Hidden
		}
	default:
		return nil, none("config.json: it is not known how a model of type %q is cut", m.Type)
	}
	if m.KeyHeads == 0 {
		m.KeyHeads = m.Heads
	}
	if m.HeadDim == 0 && m.Heads > 0 {
		m.HeadDim = m.Hidden / m.Heads
	}
	for _, n := range []int64{m.Hidden, m.Heads, m.KeyHeads, m.HeadDim, m.Intermediate} {
		if n <= 0 || n > maxDim {
			return nil, none("config.json: a number of heads, or a size, is missing or out of range")
		}
	}
	return &m, nil
}

// cut says how a tensor is cut.
type cut struct {
	dim      int   // -1: not at all
	of       int64 // what the dimension has to be; 0: any
	sections int64 // that the dimension consists of, each of which is cut
	vocab    bool  // parts may have different sizes
	copies   int64 // ranks that have the same part
}

var (
	whole = cut{dim: -1}
	layer = regexp.MustCompile(`^(?:model\.|transformer\.)?(?:layers|h)\.[0-9]+\.`)
)

// named are the names of the tensors that are cut alike, without what comes before a layer's.
var named = map[string][]string{
	"vocab": {"embed_tokens.weight", "lm_head.weight", "wte.weight"},
	"whole": {"norm.weight", "input_layernorm.weight", "post_attention_layernorm.weight",
		"self_attn.q_norm.weight", "self_attn.k_norm.weight", "self_attn.rotary_emb.inv_freq",
		"self_attn.o_proj.bias", "mlp.down_proj.bias"},
	"heads": {"self_attn.q_proj.weight", "self_attn.q_proj.bias"},
	"keys":  {"self_attn.k_proj.weight", "self_attn.k_proj.bias", "self_attn.v_proj.weight", "self_attn.v_proj.bias"},
	"out":   {"self_attn.o_proj.weight"},
	"up":    {"mlp.gate_proj.weight", "mlp.gate_proj.bias", "mlp.up_proj.weight", "mlp.up_proj.bias"},
	"down":  {"mlp.down_proj.weight"},
	"gpt2 whole": {"wpe.weight", "ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias", "ln_f.weight",
		"ln_f.bias", "attn.bias", "attn.masked_bias", "attn.c_proj.bias", "mlp.c_proj.bias"},
	"gpt2 qkv":  {"attn.c_attn.weight", "attn.c_attn.bias"},
	"gpt2 out":  {"attn.c_proj.weight"},
	"gpt2 up":   {"mlp.c_fc.weight", "mlp.c_fc.bias"},
	"gpt2 down": {"mlp.c_proj.weight"},
}

// cutOf says how a tensor of the model is cut in so many parts.
func (m *model) cutOf(t *formats.Tensor, ranks int64) (cut, error) {
	name := t.Name
	if at := layer.FindStringIndex(name); at != nil {
		name = name[at[1]:]
	} else {
		name = strings.TrimPrefix(strings.TrimPrefix(name, "model."), "transformer.")
	}
	kind := ""
	for k, all := range named {
		of := k == "vocab" || strings.HasPrefix(k, "gpt2") == (m.Type == "gpt2")
		if of && slices.Contains(all, name) {
			kind = k
		}
	}
	last := len(t.Shape) - 1 // of a Conv1D the outputs, as of a bias
	switch kind {
	case "vocab":
		return cut{dim: 0, vocab: true, sections: 1, copies: 1}, nil
	case "whole", "gpt2 whole":
		return whole, nil
	case "heads":
		return m.byHeads(t, 0, m.Heads, 1, ranks)
	case "keys":
		return m.byHeads(t, 0, m.KeyHeads, 1, ranks)
	case "out":
		return m.byHeads(t, 1, m.Heads, 1, ranks)
	case "gpt2 qkv":
		return m.byHeads(t, last, m.Heads, 3, ranks)
	case "gpt2 out":
		return m.byHeads(t, 0, m.Heads, 1, ranks)
	case "up":
		return cut{dim: 0, of: m.Intermediate, sections: 1, copies: 1}, nil
	case "gpt2 up":
		return cut{dim: last, of: m.Intermediate, sections: 1, copies: 1}, nil
	case "down":
		return cut{dim: 1, of: m.Intermediate, sections: 1, copies: 1}, nil
	case "gpt2 down":
		return cut{dim: 0, of: m.Intermediate, sections: 1, copies: 1}, nil
	}
	return cut{}, none("tensor %q: it is not known how it is cut in a model of type %s", t.Name, m.Type)
}

// byHeads cuts a dimension by heads.
func (m *model) byHeads(t *formats.Tensor, dim int, heads, sections, ranks int64) (cut, error) {
	c := cut{dim: dim, of: sections * heads * m.HeadDim, sections: sections, copies: 1}
	switch {
	case heads%ranks == 0:
	case ranks%heads == 0 && heads != m.Heads:
		c.copies = ranks / heads
	default:
		return c, none("tensor %q: %d heads are not cut in %d", t.Name, heads, ranks)
	}
	return c, nil
}

// part is what a rank has of a tensor of source src.
func (c cut) part(src int, s *Source, t *formats.Tensor, rank, ranks int64) (output, error) {
	e := safetensors.Entry{Name: t.Name, DType: t.DType, Shape: t.Shape}
	if c.dim < 0 {
		return output{e, &copied{src, s.base(t)}}, nil
	}
	if c.dim >= len(t.Shape) || c.of != 0 && t.Shape[c.dim] != c.of || len(t.Shape) > 2 {
		return output{}, none("tensor %q has the shape %v, and not what the config says", t.Name, t.Shape)
	}
	if t.DType.Bits()%8 != 0 {
		return output{}, none("tensor %q is of type %s, which is not cut", t.Name, t.DType)
	}
	each := t.Shape[c.dim] / c.sections
	parts := ranks / c.copies
	n := each / parts
	if c.vocab {
		n = (each + parts - 1) / parts
	} else if each%parts != 0 {
		return output{}, none("tensor %q: %d is not divisible by %d", t.Name, each, parts)
	}
	first := rank / c.copies * n
	if n = min(n, each-first); n <= 0 {
		return output{}, none("tensor %q: nothing of %d is left for rank %d of %d", t.Name, each, rank, ranks)
	}
	e.Shape = slices.Clone(t.Shape)
	e.Shape[c.dim] = c.sections * n
	part := *t
	part.Shape, part.Stride = nil, nil
	step := int64(1) // from one index of the dimension to the next
	for i := range t.Shape {
		if i > c.dim {
			step *= t.Shape[i]
		}
	}
	if c.dim == 1 {
		part.Shape, part.Stride = append(part.Shape, t.Shape[0]), append(part.Stride, t.Shape[1])
	}
	part.Shape, part.Stride = append(part.Shape, c.sections, n), append(part.Stride, each*step, step)
	if c.dim == 0 && len(t.Shape) == 2 {
		part.Shape, part.Stride = append(part.Shape, t.Shape[1]), append(part.Stride, 1)
	}
	part.Offset += first * step * int64(t.DType.Bits()/8)
	op, err := taken(src, s, part)
	return output{e, op}, err
}
