package plans

import (
	"cmp"
	"slices"

	"ckptfs/formats/safetensors"
)

// MegatronFile is the name of the file that Megatron plans.
const MegatronFile = megatronStem + ".pt"

const megatronStem = "model_optim_rng"

// Megatron plans the file model_optim_rng.pt of one rank of a tensor-parallel group of Megatron-core, of the
// Hugging Face model in the files sources and of config, their config.json:
//
//	bridge = AutoBridge.from_pretrained(folder, dtype=dtype, make_vocab_size_divisible_by=multiple)
//	model, = bridge.get_model(folder)
//	torch.serialization.set_crc32_options(False)
//	torch.save({"model": dict(model.state_dict()), "checkpoint_version": 3.0, "iteration": 0},
//	    "model_optim_rng.pt")
//
// of mbridge 0.15 and megatron-core 0.16 on rank, where dtype is the type of all of the tensors. The layers are
// those of TransformerEngine, by their names, and say nothing of themselves (_extra_state is None):
//
//	embedding.word_embeddings.weight      the rank's rows, of a vocabulary padded with zeros to a multiple
//	output_layer.weight                   so, too; none if the config ties the two
//	….self_attention.linear_qkv.weight    of each group of queries: its rows of q_proj, then k_proj's and
//	  and .bias                           v_proj's; of that the rank's rows
//	….self_attention.linear_proj.weight   the rank's columns of o_proj
//	….mlp.linear_fc1.weight               the rank's rows of gate_proj, and those of up_proj
//	….mlp.linear_fc2.weight               the rank's columns of down_proj
//	….linear_qkv.layer_norm_weight, …     whole
//
// for the model types llama, mistral (as a llama), qwen2 and qwen3. A model with any other tensor is refused,
// one that lacks one, one that ties its embeddings and has both, and one of several types of numbers.
func Megatron(sources []*Source, config []byte, rank, ranks int, multiple int64) (*Plan, error) {
	if ranks < 1 || ranks > MaxRanks || rank < 0 || rank >= ranks || multiple < 1 || multiple > MaxVocab {
		return nil, none("there is no rank %d of %d, of a vocabulary of multiples of %d", rank, ranks, multiple)
	}
	m, err := mcoreOf(config)
	if err != nil {
		return nil, err
	}
	g := &megatron{mcore: m, rank: int64(rank), ranks: int64(ranks), multiple: multiple}
	if err := g.check(sources); err != nil {
		return nil, err
	}
	out, err := g.outputs()
	if err != nil {
		return nil, err
	}
	return torchSave(megatronStem, out)
}

// megatron is a model as a rank has it.
type megatron struct {
	*mcore
	weights
	rank, ranks, multiple int64
}

// check reads the tensors, and says whether so many ranks can have the model.
func (g *megatron) check(sources []*Source) error {
	if err := g.weights.read(sources); err != nil {
		return err
	}
	x, ok := g.from["model.embed_tokens.weight"]
	if !ok {
		return none(`tensor "model.embed_tokens.weight" is missing`)
	}
	g.dtype = x.t.DType
	if _, ok := storageClasses[g.dtype]; !ok {
		return none("its tensors are of type %s, and not of BF16, F16 or F32", g.dtype)
	}
	if _, both := g.from["lm_head.weight"]; g.Tied && both {
		return none(`tie_word_embeddings is true, and "lm_head.weight" is there: Megatron-core would leave it out`)
	}
	k := g.ranks
	switch {
	case g.Heads%k != 0:
		return none("%d heads are not cut in %d", g.Heads, k)
	case g.KeyHeads%k != 0 && k%g.KeyHeads != 0, (g.Heads+2*g.KeyHeads)*g.HeadDim%k != 0:
		return none("%d heads of keys are not cut in %d", g.KeyHeads, k)
	case g.Intermediate%k != 0:
		return none("an intermediate_size of %d is not cut in %d", g.Intermediate, k)
	case g.rows()%k != 0:
		return none("a vocabulary of %d is not cut in %d: it can be padded (tp=%d,vocab=%d)", g.rows(), k, k, 128*k)
	}
	return nil
}

// rows is how many there are of the vocabulary.
func (g *megatron) rows() int64 { return (g.Vocab + g.multiple - 1) / g.multiple * g.multiple }

// outputs are the tensors of the rank, in the order of state_dict.
func (g *megatron) outputs() (out []output, err error) {
	for t := range g.tensors {
		o := output{Entry: safetensors.Entry{Name: t.name, DType: g.dtype}}
		if t.kind != mcoreExtra {
			if o, err = g.output(&t); err != nil {
				return nil, err
			}
		}
		out = append(out, o)
	}
	for i := range g.Layers {
		delete(g.from, hfLayer(i)+"self_attn.rotary_emb.inv_freq") // mbridge does not read it
	}
	return out, cmp.Or(err, g.left("Megatron-core", g.Type))
}

// output is what the rank has of a tensor.
func (g *megatron) output(t *mcoreTensor) (output, error) {
	o := output{Entry: safetensors.Entry{Name: t.name, DType: g.dtype, Shape: slices.Clone(t.shape)}}
	row := int64(g.dtype.Bits() / 8)
	if len(t.shape) == 2 {
		row *= t.shape[1]
	}
	turns, all := g.turns(t), &byTurns{}
	for i, rows := range g.sections(t) {
		x, err := g.take(t.of[i])
		if err != nil {
			return o, err
		}
		want := slices.Clone(t.shape)
		want[0] = turns * rows
		if !slices.Equal(x.t.Shape, want) {
			return o, none("tensor %q has the shape %v, and not %v, as the config says", t.of[i], x.t.Shape, want)
		}
		if t.kind == mcoreColumn {
			c := cut{dim: 1, of: t.shape[1], sections: 1, copies: 1}
			part, err := c.part(x.src, x.s, x.t, g.rank, g.ranks)
			part.Name = t.name
			return part, err
		}
		var data op = &copied{x.src, x.s.base(x.t)}
		if t.kind == mcoreGated {
			rows /= g.ranks
			data = from{data, g.rank * rows * row}
		}
		all.of = append(all.of, link{data, rows * row})
		all.turn += rows * row
	}
	o.op = all
	if len(all.of) == 1 {
		o.op = all.of[0].op
	}
	switch t.kind {
	case mcoreGated:
		o.Shape[0] /= g.ranks
	case mcoreQKV:
		o.Shape[0] /= g.ranks
		o.op = from{o.op, g.rank * o.Shape[0] * row}
	case mcoreVocab:
		o.Shape[0] = g.rows() / g.ranks
		first := min(g.rank*o.Shape[0], g.Vocab)
		there := min(o.Shape[0], g.Vocab-first)
		o.op = from{o.op, first * row}
		if there < o.Shape[0] {
			o.op = &chain{[]link{{o.op, there * row}, {zeros{}, (o.Shape[0] - there) * row}}}
		}
	}
	return o, nil
}
