package plans

import (
	"errors"
	"io"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
	"ckptfs/formats/torchzip"
)

// MegatronArgs are the arguments of Megatron-LM that a checkpoint has, of what torch.save wrote: its "args", an
// argparse.Namespace. Other programs write none.
type MegatronArgs struct {
	state pickle.Value
	is    bool
}

// OpenMegatronArgs reads those of a file: common.pt of a torch_dist, or a rank's. The error is ErrNone when
// torch.save did not write it.
func OpenMegatronArgs(r io.ReaderAt, size int64) (*MegatronArgs, error) {
	o, err := torchzip.Open(r, size)
	if errors.Is(err, formats.ErrNotFormat) {
		return nil, none("%v", err)
	}
	if err != nil {
		return nil, err
	}
	var a MegatronArgs
	if args, ok := valueOf(o.Root, "args"); ok {
		a.state, a.is = args.State()
		a.is = a.is && a.state.Kind() == pickle.Dict
	}
	return &a, nil
}

// valueOf is a value of a dict; the last one that it has by the key.
func valueOf(dict pickle.Value, key string) (v pickle.Value, ok bool) {
	if dict.Kind() != pickle.Dict {
		return v, false
	}
	for i := range dict.NumPairs() {
		if k, x := dict.Pair(i); k.Kind() == pickle.Text && string(k.Text()) == key {
			v, ok = x, true
		}
	}
	return v, ok
}

// agree is why a checkpoint with these arguments is none of the model: they say something else than the config,
// or what mbridge does not look at although it changes what tensors mean.
func (a *MegatronArgs) agree(m *mcore) error {
	if a == nil || !a.is {
		return nil
	}
	flag := func(key string) (is, said bool) {
		v, ok := valueOf(a.state, key)
		said = ok && v.Kind() == pickle.Bool
		return said && v.Bool(), said
	}
	for _, key := range []string{"apply_layernorm_1p", "rotary_interleaved"} {
		if is, _ := flag(key); is {
			return none("it was trained with %s, which Hugging Face's model does not know", key)
		}
	}
	if is, said := flag("swiglu"); said && !is {
		return none("it was trained without swiglu")
	}
	if v, ok := valueOf(a.state, "normalization"); ok && v.Kind() == pickle.Text && string(v.Text()) != "RMSNorm" {
		return none("it was trained with %.64q for its norms", v.Text())
	}
	groups := m.KeyHeads
	if is, said := flag("group_query_attention"); said && !is {
		if groups = 1; m.KeyHeads != m.Heads { // what Megatron-LM says of num_query_groups then
			return none("it was trained without groups of queries, and the config says %d", m.KeyHeads)
		}
	}
	for _, x := range []struct {
		key  string
		want int64
	}{
		{"num_layers", m.Layers}, {"hidden_size", m.Hidden}, {"ffn_hidden_size", m.Intermediate},
		{"num_attention_heads", m.Heads}, {"kv_channels", m.HeadDim}, {"num_query_groups", groups},
	} {
		v, ok := valueOf(a.state, x.key)
		if !ok {
			continue
		}
		if n, is := v.Int(); is && n != x.want {
			return none("it was trained with a %s of %d, and the config says %d", x.key, n, x.want)
		}
	}
	return nil
}
