package llamacpp

import (
	"strconv"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/gguf"
	"ckptfs/formats/pyjson"
)

// A mixture of experts has the three weights of each expert of a layer apart, or, as transformers has them in
// memory, of all experts together. The converter puts those of all experts of a layer one behind the other:
//
//	Mixtral    model.layers.B.block_sparse_moe.experts.X.{w1,w2,w3}.weight
//	Qwen       model.layers.B.mlp.experts.X.{down_proj,gate_proj,up_proj}.weight
//	           model.layers.B.mlp.experts.{gate_up_proj,down_proj}             [experts, rows, columns]
//
// It does so when it has read the last of them, in the order of this table.

// expertKinds are, for the type of a model, what is before the number of an expert, the names of its weights,
// and llama.cpp's.
var expertKinds = map[string]struct {
	infix     string
	names, to [3]string
}{
	"mixtral": {"block_sparse_moe.experts.", [3]string{"w1", "w2", "w3"},
		[3]string{"ffn_gate_exps", "ffn_down_exps", "ffn_up_exps"}},
	"qwen2_moe": qwenExperts, "qwen3_moe": qwenExperts,
}

var qwenExperts = struct {
	infix     string
	names, to [3]string
}{"mlp.experts.", [3]string{"down_proj", "gate_proj", "up_proj"},
	[3]string{"ffn_down_exps", "ffn_gate_exps", "ffn_up_exps"}}

// expertKeys are the keys that the config of such a model may have beside others.
var expertKeys = map[string]kind{
	"num_experts": kindInt, "num_local_experts": kindInt, "num_experts_per_tok": kindInt,
	"moe_intermediate_size": kindInt, "shared_expert_intermediate_size": kindInt, "decoder_sparse_step": kindInt,
	"norm_topk_prob": kindBool, "output_router_logits": kindBool, "router_aux_loss_coef": kindFloat,
	"router_jitter_noise": kindFloat, "mlp_only_layers": kindInts | kindNull, "qkv_bias": kindBool,
}

// routed are the names of weights that such models have in a layer beside others: by the type of the model.
var routed = map[string]map[string]string{
	"mixtral": {"block_sparse_moe.gate": "ffn_gate_inp"},
	"qwen2_moe": {"mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
		"mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
		"mlp.shared_expert.down_proj": "ffn_down_shexp"},
	"qwen3_moe": {"mlp.gate": "ffn_gate_inp"},
}

// countExperts reads how many experts the config has.
func (c *converter) countExperts(o *pyjson.Object) error {
	if _, ok := expertKinds[c.model]; !ok {
		return nil
	}
	must := []struct {
		key string
		to  *int64
	}{{"num_experts", &c.experts}, {"num_experts_per_tok", &c.expertsUsed},
		{"moe_intermediate_size", &c.expertInner}, {"shared_expert_intermediate_size", &c.sharedInner}}
	if _, ok := o.Get("num_local_experts"); ok && c.model != "qwen2_moe" {
		must[0].key = "num_local_experts"
	}
	switch c.model {
	case "mixtral":
		must = must[:2]
	case "qwen3_moe":
		must = must[:3]
	}
	for _, x := range must {
		v, _ := o.Get(x.key)
		n, _ := v.(pyjson.Number)
		if *x.to, _ = n.Int(); *x.to <= 0 || *x.to > 1<<16 && x.to != &c.expertInner && x.to != &c.sharedInner ||
			*x.to > 1<<31-1 {
			return refuse(fileConfig, "%s is missing or out of range", x.key)
		}
	}
	for _, key := range []string{"num_experts", "num_local_experts", "moe_intermediate_size",
		"shared_expert_intermediate_size"} {
		known := false
		for _, x := range must {
			known = known || x.key == key
		}
		if _, ok := o.Get(key); ok && !known {
			return refuse(fileConfig, "it is not known what %s changes", key)
		}
	}
	return nil
}

// Place is where a tensor of the folder is.
type Place struct{ Part, Index int }

// stacks are the weights of experts as far as they were read, by layer.
type stacks map[int64]*stack

type stack struct {
	places [3]map[int64]Place
	shape  [3][]int64
	dtype  [3]formats.DType
	n      int64
}

// expert is what an expert's weights become: nothing, until all of the layer's are there. ok is false where the
// tensor is none of an expert's.
func (c *converter) expert(
	s stacks, file string, t *formats.Tensor, at Place, to formats.DType,
) (out []Tensor, ok bool, err error) {
	k, ok := expertKinds[c.model]
	if !ok || !strings.Contains(t.Name, k.infix) {
		return nil, false, nil
	}
	bad := func(why string) ([]Tensor, bool, error) {
		return nil, true, refuse(file, "tensor %.64q of an expert %s", t.Name, why)
	}
	rest, ok := strings.CutPrefix(t.Name, "model.layers.")
	number, rest, _ := strings.Cut(rest, ".")
	rest, is := strings.CutPrefix(rest, k.infix)
	layer, known := below(number, c.layers)
	if !ok || !is || !known {
		return bad("is not known")
	}
	prefix := "blk." + number + "."
	if c.model != "mixtral" {
		switch strings.TrimSuffix(rest, ".weight") {
		case "down_proj", "gate_up_proj":
			out, err := c.together(file, t, at, prefix, strings.TrimSuffix(rest, ".weight"), to)
			return out, true, err
		}
	}
	number, rest, _ = strings.Cut(rest, ".")
	expert, known := below(number, c.experts)
	which := -1
	for i, name := range k.names {
		if rest == name+".weight" {
			which = i
		}
	}
	if !known || which < 0 {
		return bad("is not known")
	}
	if err := c.fit(file, t, 2); err != nil {
		return nil, true, err
	}
	x := s[layer]
	if x == nil {
		x = &stack{}
		s[layer] = x
	}
	if x.places[which] == nil {
		x.places[which] = make(map[int64]Place)
		x.shape[which], x.dtype[which] = t.Shape, t.DType
	}
	if t.DType != x.dtype[which] || t.Shape[0] != x.shape[which][0] || t.Shape[1] != x.shape[which][1] {
		return bad("is of another type or shape than those of others")
	}
	x.places[which][expert] = at
	if x.n++; x.n < 3*c.experts { // the names differ
		return nil, true, nil
	}
	delete(s, layer)
	for i, places := range x.places {
		t := Tensor{Entry: gguf.Entry{Name: prefix + k.to[i] + ".weight", DType: to,
			Shape: []int64{c.experts, x.shape[i][0], x.shape[i][1]}}}
		for e := range c.experts {
			t.Experts = append(t.Experts, places[e])
		}
		out = append(out, t)
	}
	return out, true, nil
}

// together is what the weights of all experts become that are in one tensor.
func (c *converter) together(
	file string, t *formats.Tensor, at Place, prefix, name string, to formats.DType,
) ([]Tensor, error) {
	if err := c.fit(file, t, 3); err != nil {
		return nil, err
	}
	if t.Shape[0] != c.experts {
		return nil, refuse(file, "tensor %.64q is of %d experts", t.Name, t.Shape[0])
	}
	one := Tensor{Entry: gguf.Entry{DType: to, Shape: t.Shape}, Part: at.Part, Index: at.Index}
	if name == "down_proj" {
		one.Name = prefix + "ffn_down_exps.weight"
		return []Tensor{one}, nil
	}
	if t.Shape[1]%2 != 0 {
		return nil, refuse(file, "tensor %.64q has %d rows, which are no two halves", t.Name, t.Shape[1])
	}
	one.Shape = []int64{t.Shape[0], t.Shape[1] / 2, t.Shape[2]}
	gate, up := one, one
	gate.Name, gate.Half = prefix+"ffn_gate_exps.weight", 1
	up.Name, up.Half = prefix+"ffn_up_exps.weight", 2
	return []Tensor{gate, up}, nil
}

// below is the number that a text is, if it is as Python prints one from 0 to n-1.
func below(s string, n int64) (int64, bool) {
	x, err := strconv.ParseInt(s, 10, 64)
	return x, err == nil && x >= 0 && x < n && strconv.FormatInt(x, 10) == s
}
