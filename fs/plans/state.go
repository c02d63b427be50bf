package plans

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unsafe"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// StatePart is the most bytes of tensors in a file of State: what save_sharded_state_offline.py of vLLM takes
// unless it is told otherwise. A tensor of more is refused.
const StatePart = 5 << 30

// State plans a file of a model in vLLM's format sharded_state, of which each rank of a tensor-parallel group
// loads its own: what rank has of ranks, the part of that number.
//
//	ShardedStateLoader.save_model(model, folder, max_size=5 * 1024**3)
//
// of vLLM 0.33 on rank, of the model that its loader made of the files sources and of config, their
// config.json. Names and shapes are those of vLLM's modules, in the order of state_dict:
//
//	model.embed_tokens.weight, lm_head.weight   of a vocabulary padded with zeros to a multiple of 64, an equal
//	                                            part for each rank; of a model that ties them only the latter
//	…self_attn.qkv_proj.weight, .bias           q_proj, k_proj and v_proj, of each what Shard gives
//	…self_attn.o_proj.weight, .bias             as Shard
//	…self_attn.attn._k_scale, _v_scale,         1, a number of single precision
//	  _q_scale, _prob_scale
//	…self_attn.q_norm.weight, k_norm.weight     whole: of a qwen3
//	…mlp.gate_up_proj.weight, .bias             gate_proj and up_proj, of each what Shard gives
//	…mlp.down_proj.weight, .bias                as Shard
//	…input_layernorm.weight, …                  whole
//
// for the model types llama, mistral, qwen2 and qwen3 in bfloat16 or half precision. A model with any other
// tensor is refused, one that lacks one, one that ties its embeddings and has both of them, and one whose
// config names another type of numbers: vLLM would convert. So is one whose config has what may change vLLM's
// modules.
func State(sources []*Source, config []byte, rank, ranks, part int) (*Plan, error) {
	return stateOf(sources, config, rank, ranks, part, StatePart)
}

func stateOf(sources []*Source, config []byte, rank, ranks, part int, most int64) (*Plan, error) {
	if ranks < 1 || ranks > MaxRanks || rank < 0 || rank >= ranks {
		return nil, none("there is no rank %d of %d", rank, ranks)
	}
	m, err := modelOf(config)
	if err != nil {
		return nil, err
	}
	s := &state{model: m, rank: int64(rank), ranks: int64(ranks)}
	if err := s.read(config, sources); err != nil {
		return nil, err
	}
	out, err := s.outputs()
	if err != nil {
		return nil, err
	}
	var of []output
	size, at := int64(0), 0
	for _, o := range out {
		n := o.NumBytes()
		if n > most {
			return nil, none("tensor %q has more than %d bytes", o.Name, most)
		}
		if size+n > most {
			size = 0
			at++
		}
		if size += n; at == part {
			of = append(of, o)
		}
	}
	if len(of) == 0 {
		return nil, none("rank %d of %d has the parts 0 to %d", rank, ranks, at)
	}
	p, err := plan(of, nil)
	if err == nil {
		p.Parts = at + 1
	}
	return p, err
}

// modelClasses are the classes of the types of models, which a config.json names as architectures.
var modelClasses = map[string]string{
	"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
	"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
}

var stateTypes = map[string]formats.DType{"bfloat16": formats.BF16, "float16": formats.F16}

// padded is what a vocabulary is a multiple of.
const padded = 64

// state is a model as vLLM has it.
type state struct {
	*model
	vllm
	weights
	rank, ranks int64
}

// read reads what the config and the files say.
func (s *state) read(config []byte, sources []*Source) error {
	if err := s.readConfig(config); err != nil {
		return err
	}
	if err := s.weights.read(sources); err != nil {
		return err
	}
	if s.Layers < 1 || s.Layers > int64(len(s.from)) || s.Vocab < 1 || s.Vocab > maxDim {
		return none("config.json: num_hidden_layers or vocab_size is missing, or out of range")
	}
	if s.vocab()%s.ranks != 0 {
		return none("a vocabulary of %d is not cut in %d", s.vocab(), s.ranks)
	}
	return nil
}

// vocab is how many rows the embeddings have, padded.
func (s *state) vocab() int64 { return (s.Vocab + padded - 1) / padded * padded }

// outputs are the tensors of the rank, in the order of state_dict.
func (s *state) outputs() (out []output, err error) {
	add := func(o output, e error) {
		out, err = append(out, o), cmp.Or(err, e)
	}
	if _, both := s.from["lm_head.weight"]; s.Tied && both {
		return nil, none(`tie_word_embeddings is true, and "lm_head.weight" is there: vLLM ties them if they are equal`)
	}
	if s.Tied {
		add(s.embedding("lm_head.weight", "model.embed_tokens.weight"))
	} else {
		add(s.embedding("model.embed_tokens.weight", "model.embed_tokens.weight"))
	}
	old := s.model.Type == "llama" || s.model.Type == "mistral" // which vLLM makes of the same modules
	qkv := s.Bias || s.OldBias && old || s.model.Type == "qwen2"
	outs := (s.Bias || s.OldBias) && old
	mlp := s.MLPBias && old
	for i := int64(0); i < s.Layers && err == nil; i++ {
		at := fmt.Sprintf("model.layers.%d.", i)
		// linear adds a layer's weights, and biases if it has some, joined of several.
		linear := func(name string, bias bool, of ...string) {
			kinds := []string{".weight"}
			if bias {
				kinds = append(kinds, ".bias")
			}
			for _, kind := range kinds {
				var from []string
				for _, x := range of {
					from = append(from, at+x+kind)
				}
				add(s.joined(at+name+kind, from))
			}
		}
		linear("self_attn.qkv_proj", qkv, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
		linear("self_attn.o_proj", outs, "self_attn.o_proj")
		for _, scale := range []string{"_k_scale", "_v_scale", "_q_scale", "_prob_scale"} {
			add(output{safetensors.Entry{Name: at + "self_attn.attn." + scale, DType: formats.F32}, one}, nil)
		}
		if s.model.Type == "qwen3" {
			add(s.norm(at+"self_attn.q_norm.weight", s.HeadDim))
			add(s.norm(at+"self_attn.k_norm.weight", s.HeadDim))
		}
		linear("mlp.gate_up_proj", mlp, "mlp.gate_proj", "mlp.up_proj")
		linear("mlp.down_proj", mlp, "mlp.down_proj")
		add(s.norm(at+"input_layernorm.weight", s.Hidden))
		add(s.norm(at+"post_attention_layernorm.weight", s.Hidden))
		delete(s.from, at+"self_attn.rotary_emb.inv_freq") // vLLM does not read it
	}
	add(s.norm("model.norm.weight", s.Hidden))
	if !s.Tied {
		add(s.embedding("lm_head.weight", "lm_head.weight"))
	}
	return out, cmp.Or(err, s.left("vLLM", s.model.Type))
}

// one is the number 1 in single precision.
var one = literal(le.AppendUint32(nil, math.Float32bits(1)))

// norm is a whole tensor of n numbers.
func (s *state) norm(name string, n int64) (output, error) {
	x, err := s.take(name)
	if err == nil && !slices.Equal(x.t.Shape, []int64{n}) {
		err = none("tensor %q has the shape %v, and not what the config says", name, x.t.Shape)
	}
	if err != nil {
		return output{}, err
	}
	return output{safetensors.Entry{Name: name, DType: s.dtype, Shape: x.t.Shape},
		&copied{x.src, x.s.base(x.t)}}, nil
}

// embedding is the rank's part of the rows of the vocabulary.
func (s *state) embedding(name, from string) (output, error) {
	x, err := s.take(from)
	if err == nil && !slices.Equal(x.t.Shape, []int64{s.Vocab, s.Hidden}) {
		err = none("tensor %q has the shape %v, and not what the config says", from, x.t.Shape)
	}
	if err != nil {
		return output{}, err
	}
	rows := s.vocab() / s.ranks
	row := s.Hidden * int64(s.dtype.Bits()/8)
	first := min(s.rank*rows, s.Vocab)
	there := min(rows, s.Vocab-first) * row
	return output{safetensors.Entry{Name: name, DType: s.dtype, Shape: []int64{rows, s.Hidden}},
		&chain{[]link{{&copied{x.src, x.s.base(x.t) + first*row}, there}, {zeros{}, rows*row - there}}}}, nil
}

// joined are the rank's parts of some tensors, one behind the other.
func (s *state) joined(name string, from []string) (output, error) {
	out := output{Entry: safetensors.Entry{Name: name, DType: s.dtype}}
	var all chain
	for _, f := range from {
		x, err := s.take(f)
		if err != nil {
			return output{}, err
		}
		c, err := s.cutOf(x.t, s.ranks)
		if err != nil {
			return output{}, err
		}
		o, err := c.part(x.src, x.s, x.t, s.rank, s.ranks)
		if err != nil {
			return output{}, err
		}
		if !s.fits(f, o.Shape) {
			return output{}, none("tensor %q has the shape %v, and not what the config says", f, x.t.Shape)
		}
		if all.links = append(all.links, link{o.op, o.NumBytes()}); out.Shape == nil {
			out.Shape = slices.Clone(o.Shape)
		} else {
			out.Shape[0] += o.Shape[0]
		}
	}
	if out.op = &all; len(all.links) == 1 {
		out.op = all.links[0].op
	}
	return out, nil
}

// fits reports whether a part of a tensor has the shape that the config says, in the dimensions that are
// not cut: cutOf looks at the other.
func (s *state) fits(name string, shape []int64) bool {
	inwards := strings.Contains(name, "o_proj") || strings.Contains(name, "down_proj")
	if strings.HasSuffix(name, ".bias") {
		return len(shape) == 1 && (shape[0] == s.Hidden || !inwards)
	}
	across := 1
	if inwards {
		across = 0
	}
	return len(shape) == 2 && shape[across] == s.Hidden
}

// chain is tensors one behind the other.
type chain struct{ links []link }

type link struct {
	op   op
	size int64 // bytes
}

func (c *chain) read(src []io.ReaderAt, p []byte, off int64) error {
	for _, l := range c.links {
		if off >= l.size {
			off -= l.size
			continue
		}
		n := min(int64(len(p)), l.size-off)
		if err := l.op.read(src, p[:n], off); err != nil {
			return err
		}
		if p = p[n:]; len(p) == 0 {
			return nil
		}
		off = 0
	}
	return nil
}

func (c *chain) memory() int64 {
	n := int64(unsafe.Sizeof(*c))
	for _, l := range c.links {
		n += int64(unsafe.Sizeof(l)) + l.op.memory()
	}
	return n
}
