package llamacpp

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/gguf"
	"ckptfs/formats/pyjson"
)

// renamed are llama.cpp's names of weights and biases: of a model, and of a layer.
var renamed = map[string]string{
	"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
}
var renamedLayer = map[string]string{
	"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
	"self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
	"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
}

// leftOut are endings of the names of tensors that are left out.
var leftOut = []string{".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq"}

// rename is llama.cpp's name of a tensor; "" where there is none.
func (c *converter) rename(name string) string {
	stem, suffix := strings.TrimSuffix(name, ".weight"), ".weight"
	if stem == name {
		if stem, suffix = strings.TrimSuffix(name, ".bias"), ".bias"; stem == name {
			return ""
		}
	}
	if to, ok := renamed[stem]; ok {
		return to + suffix
	}
	rest, ok := strings.CutPrefix(stem, "model.layers.")
	number, rest, _ := strings.Cut(rest, ".")
	_, is := below(number, c.layers)
	to := renamedLayer[rest]
	switch {
	case strings.HasSuffix(to, "q_norm") || strings.HasSuffix(to, "k_norm"):
		ok = ok && (c.arch == "qwen3" || c.arch == "qwen3moe")
	case strings.HasPrefix(to, "ffn_") && to != "ffn_norm":
		ok = ok && !strings.HasSuffix(c.arch, "moe") // which has no name for layers without experts
	case to == "":
		to = routed[c.model][rest]
	}
	if !ok || !is || to == "" {
		return ""
	}
	return "blk." + number + "." + to + suffix
}

// parts are the files of weights, in the order in which they are read, and whether an index says so.
func (c *converter) parts() (of []int, weights *pyjson.Object, err error) {
	for i := range c.f.Parts {
		of = append(of, i)
	}
	slices.SortFunc(of, func(a, b int) int { return cmp.Compare(c.f.Parts[a].Name, c.f.Parts[b].Name) })
	index, err := c.json(fileIndex)
	if err != nil {
		return nil, nil, err
	}
	if index != nil {
		v, _ := index.Get("weight_map")
		if weights, _ = v.(*pyjson.Object); weights == nil || weights.Len() == 0 {
			return nil, nil, refuse(fileIndex, "it has no weight_map")
		}
		named := make(map[string]bool)
		for i := range weights.Len() {
			_, v := weights.Key(i)
			s, ok := v.(string)
			if !ok {
				return nil, nil, refuse(fileIndex, "a name of a file is no text")
			}
			named[s] = true
		}
		of = slices.DeleteFunc(of, func(i int) bool { return !named[c.f.Parts[i].Name] })
		if len(of) < len(named) {
			return nil, nil, refuse(fileIndex, "a file that it names is not there, or is not called model….safetensors")
		}
	}
	if len(of) == 0 {
		return nil, nil, refuse("the folder", "it has no weights in files called model….safetensors")
	}
	return of, weights, nil
}

// tensors are the tensors of the file: by part, and in each by name.
func (c *converter) tensors(to formats.DType) ([]Tensor, error) {
	out, err := c.frequencies()
	if err != nil {
		return nil, err
	}
	of, weights, err := c.parts()
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	experts := make(stacks)
	for _, i := range of {
		part := &c.f.Parts[i]
		order := make([]int, len(part.Tensors))
		for k := range order {
			order[k] = k
		}
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Compare(part.Tensors[a].Name, part.Tensors[b].Name)
		})
		for _, k := range order {
			t := &part.Tensors[k]
			if seen[t.Name] {
				return nil, refuse(part.Name, "tensor %.64q is in another file, too", t.Name)
			}
			seen[t.Name] = true
			if slices.ContainsFunc(leftOut, func(end string) bool { return strings.HasSuffix(t.Name, end) }) {
				continue
			}
			all, ok, err := c.expert(experts, part.Name, t, Place{i, k}, to)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, all...)
				continue
			}
			x, err := c.tensor(part.Name, t, to)
			if err != nil {
				return nil, err
			}
			x.Part, x.Index = i, k
			out = append(out, x)
		}
	}
	if len(experts) > 0 {
		return nil, refuse("the folder", "it lacks weights of experts of layer %d, of which there are %d",
			slices.Min(slices.Collect(maps.Keys(experts))), c.experts)
	}
	if weights != nil {
		for i := range weights.Len() {
			if name, _ := weights.Key(i); !seen[name] {
				return nil, refuse(fileIndex, "tensor %.64q is not there", name)
			}
		}
		if len(seen) > weights.Len() {
			return nil, refuse(fileIndex, "it lacks a tensor that is there")
		}
	}
	return out, nil
}

// inSingle are endings of the names of tensors that are in single precision.
var inSingle = []string{"_norm.weight", ".bias", ".ffn_gate_inp.weight", ".ffn_gate_inp_shexp.weight"}

// fit refuses a tensor of another type, or of none of these ranks.
func (c *converter) fit(file string, t *formats.Tensor, ranks ...int) error {
	switch {
	case t.DType != formats.F32 && t.DType != formats.F16 && t.DType != formats.BF16:
		return refuse(file, "tensor %.64q is of type %s, and not F32, F16 or BF16", t.Name, t.DType)
	case !slices.Contains(ranks, len(t.Shape)) || t.NumElements() <= 0:
		return refuse(file, "tensor %.64q has the shape %v", t.Name, t.Shape)
	}
	return nil
}

// tensor is what one tensor becomes.
func (c *converter) tensor(file string, t *formats.Tensor, to formats.DType) (Tensor, error) {
	name := c.rename(t.Name)
	if name == "" {
		return Tensor{}, refuse(file, "tensor %.64q is not known in a %s of %d layers", t.Name, c.architecture, c.layers)
	}
	if err := c.fit(file, t, 1, 2); err != nil {
		return Tensor{}, err
	}
	x := Tensor{Entry: gguf.Entry{Name: name, DType: to, Shape: t.Shape}}
	if len(t.Shape) == 1 || slices.ContainsFunc(inSingle, func(end string) bool { return strings.HasSuffix(name, end) }) {
		x.DType = formats.F32
	}
	if c.arch == "llama" {
		switch end := name[strings.LastIndexByte(name[:strings.LastIndexByte(name, '.')], '.')+1:]; end {
		case "attn_q.weight", "attn_q.bias":
			x.Heads = c.heads
		case "attn_k.weight", "attn_k.bias":
			x.Heads = c.keyHeads
		}
		if x.Heads > 0 && t.Shape[0]%(2*x.Heads) != 0 {
			return Tensor{}, refuse(file, "tensor %.64q has %d rows, not divisible by two times %d heads", t.Name,
				t.Shape[0], x.Heads)
		}
	}
	return x, nil
}

// frequencies are the factors of rotary embeddings that are scaled as Llama 3's: computed in single precision
// as torch computes them. Its powers are known to be those that are rounded correctly only for what is tried
// in TestFrequencies.
func (c *converter) frequencies() ([]Tensor, error) {
	if typ, _ := c.rope.Get("rope_type"); typ != "llama3" || c.arch != "llama" {
		return nil, nil
	}
	number := func(key string) float64 { n, _ := c.ropeNumber(key); return n.Float() }
	base, dim := number("rope_theta"), c.rotated
	if base != 500000 || !slices.Contains([]int64{16, 32, 64, 80, 128, 256}, dim) {
		return nil, refuse(fileConfig, "factors of rotary embeddings of base %v for heads of %d are not computed here",
			base, dim)
	}
	factor, low, high := number("factor"), number("low_freq_factor"), number("high_freq_factor")
	old := number("original_max_position_embeddings")
	if factor == 0 || low <= 0 || high <= low {
		return nil, refuse(fileConfig, "the factors of its rotary embeddings are out of range")
	}
	out := make([]float32, dim/2)
	for i := range out {
		x := float32(2*i) / float32(dim)
		freq := 1 / float32(math.Pow(base, float64(x)))
		wavelength := float32(1/freq) * float32(2*math.Pi)
		switch {
		case wavelength < float32(old/high):
			out[i] = 1
		case wavelength > float32(old/low):
			out[i] = float32(factor)
		default:
			smooth := float32(1/wavelength) * float32(old)
			smooth = float32(smooth-float32(low)) / float32(high-low)
			rest := float32(1-smooth) / float32(factor)
			out[i] = 1 / float32(rest+smooth)
		}
	}
	return []Tensor{{
		Entry: gguf.Entry{Name: "rope_freqs.weight", DType: formats.F32, Shape: []int64{dim / 2}},
		Index: -1, Data: out,
	}}, nil
}
