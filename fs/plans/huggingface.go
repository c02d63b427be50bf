package plans

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// HuggingFace plans the file model.safetensors of a Hugging Face model, of a checkpoint of Megatron-core that
// dist_checkpointing.save wrote (torch_dist), whole and without an optimizer's state:
//
//	bridge = AutoBridge.from_pretrained(folder_of_config, dtype=dtype, make_vocab_size_divisible_by=multiple)
//	model, = bridge.get_model()
//	dist_checkpointing.load(model.sharded_state_dict(), checkpoint)
//	out = {k: t.contiguous() for k, t in bridge.export_weights([model])}; metadata = {"format": "pt"}
//
// of mbridge 0.15 and megatron-core 0.16, where dtype is the type of all of the tensors, and multiple such that
// the vocabulary of the checkpoint is the config's, padded. It is what Megatron made of a model, taken apart
// again, for the same types of models.
//
// names are those of the checkpoint's files, metadata its .metadata, args the arguments that it has, or nil, and
// config the config.json. A checkpoint with another tensor of a model is refused, one that lacks one, and one
// whose arguments say something else than the config.
func HuggingFace(
	files []*Source, names []string, args *MegatronArgs, metadata, config []byte,
) (*Plan, error) {
	m, err := mcoreOf(config)
	if err == nil {
		err = args.agree(m)
	}
	if err != nil {
		return nil, err
	}
	whole, _, _, err := gathers(files, names, metadata)
	if err != nil {
		return nil, err
	}
	d := &distributed{m: m, whole: whole, used: map[string]bool{}}
	out, err := m.apart(d.tensor)
	if err != nil {
		return nil, err
	}
	if err := d.left(); err != nil {
		return nil, err
	}
	return plan(out, []safetensors.Pair{{Key: "format", Value: "pt"}})
}

// HuggingFaceRanks plans the same of the files that ranks of a tensor-parallel group wrote with torch.save, in
// their order, each with the names of GPTModel below "model": what Megatron plans.
func HuggingFaceRanks(files []*Source, args *MegatronArgs, config []byte) (*Plan, error) {
	m, err := mcoreOf(config)
	if err == nil {
		err = args.agree(m)
	}
	if err != nil {
		return nil, err
	}
	r := &ranked{m: m, files: files}
	if err := r.read(); err != nil {
		return nil, err
	}
	out, err := m.apart(r.tensor)
	if err != nil {
		return nil, err
	}
	if err := r.left(); err != nil {
		return nil, err
	}
	return plan(out, []safetensors.Pair{{Key: "format", Value: "pt"}})
}

// apart are Hugging Face's tensors of those that of finds, whose shapes are checked but for the rows of the
// vocabulary, of which there may be more.
func (m *mcore) apart(of func(t *mcoreTensor) (*gather, error)) (out []output, err error) {
	var dtype formats.DType
	for t := range m.tensors {
		if t.kind == mcoreExtra {
			continue
		}
		g, err := of(&t)
		if err != nil {
			return nil, err
		}
		if err := g.check(t.name); err != nil {
			return nil, err
		}
		if dtype == "" {
			dtype = g.to
		}
		if _, ok := storageClasses[dtype]; !ok || g.to != dtype {
			return nil, none("%q is of type %s, and the first tensor of %s", t.name, g.to, dtype)
		}
		var op op = g
		if len(g.parts) == 1 {
			op = g.parts[0].op
		}
		row := int64(dtype.Bits() / 8)
		if len(t.shape) == 2 {
			row *= t.shape[1]
		}
		turns, first := m.turns(&t), int64(0)
		for i, rows := range m.sections(&t) {
			e := safetensors.Entry{Name: t.of[i], DType: dtype, Shape: slices.Clone(t.shape)}
			e.Shape[0] = turns * rows
			o := output{e, op}
			if len(t.of) > 1 {
				o.op = &oneOf{op, first * row, rows * row, t.shape[0] / turns * row}
			}
			out = append(out, o)
			first += rows
		}
	}
	return out, nil
}

// fitsWhole reports whether a shape is that of a tensor, with more rows if it is of the vocabulary.
func (t *mcoreTensor) fitsWhole(shape []int64) bool {
	return len(shape) == len(t.shape) && slices.Equal(shape[1:], t.shape[1:]) &&
		(shape[0] == t.shape[0] || t.kind == mcoreVocab && shape[0] > t.shape[0] && shape[0]-t.shape[0] < MaxVocab)
}

// distributed is a checkpoint of torch_dist. Its layers are one tensor, with the layer for its first dimension,
// or have one each.
type distributed struct {
	m     *mcore
	whole map[string]*gather
	used  map[string]bool
	parts map[string][][]part // by the name of all layers together, and the layer
}

// layerOf are the names of a layer's tensors.
var layerOf = regexp.MustCompile(`^(decoder\.layers\.)([0-9]+)\.`)

// tensor is one as all ranks have it.
func (d *distributed) tensor(t *mcoreTensor) (*gather, error) {
	if g := d.whole[t.name]; g != nil {
		d.used[t.name] = true
		if !t.fitsWhole(g.shape) {
			return nil, none("%q has the shape %v, and not %v, as the config says", t.name, g.shape, t.shape)
		}
		return g, nil
	}
	at := layerOf.FindStringSubmatchIndex(t.name)
	if at == nil {
		return nil, none("%q is missing", t.name)
	}
	name := t.name[:at[3]] + t.name[at[1]:]
	g := d.whole[name]
	if g == nil {
		return nil, none("%q is missing", t.name)
	}
	layer, _ := strconv.ParseInt(t.name[at[4]:at[5]], 10, 64)
	if len(g.shape) < 2 || !t.fitsWhole(g.shape[1:]) || g.shape[0] != d.m.Layers {
		return nil, none("%q has the shape %v, and not %v for each of %d layers, as the config says", name, g.shape,
			t.shape, d.m.Layers)
	}
	d.used[name] = true
	layers, err := d.byLayer(name, g)
	if err != nil {
		return nil, err
	}
	return &gather{shape: g.shape[1:], to: g.to, parts: layers[layer]}, nil
}

// byLayer are the parts of a tensor of all layers, by the layer, none of which has several.
func (d *distributed) byLayer(name string, g *gather) ([][]part, error) {
	if layers := d.parts[name]; layers != nil {
		return layers, nil
	}
	if g.shape[0] > int64(len(g.parts)) {
		return nil, none("%q has %d layers in %d parts", name, g.shape[0], len(g.parts))
	}
	layers := make([][]part, g.shape[0])
	for _, p := range g.parts {
		if p.size[0] != 1 || p.origin[0] < 0 || p.origin[0] >= g.shape[0] {
			return nil, none("a part of %q is not of one layer", name)
		}
		layers[p.origin[0]] = append(layers[p.origin[0]], part{p.origin[1:], p.size[1:], p.op})
	}
	if d.parts == nil {
		d.parts = map[string][][]part{}
	}
	d.parts[name] = layers
	return layers, nil
}

// notOfModel are the names of what a checkpoint has beside the model.
var notOfModel = regexp.MustCompile(`(^|\.)optimizer\.|\._extra_state(/|$)|^rng_state(/|$)|^rerun_state_machine_state(/|$)`)

// left is why it is no model that is known if it has more.
func (d *distributed) left() error {
	for _, name := range slices.Sorted(maps.Keys(d.whole)) {
		if !d.used[name] && !notOfModel.MatchString(name) {
			return none("tensor %q is none of a model that is known", name)
		}
	}
	return nil
}

// ranked are the files of the ranks of a tensor-parallel group.
type ranked struct {
	m     *mcore
	files []*Source
	by    []map[string]*formats.Tensor
}

// ofModel begins the names of the model's tensors in a rank's file.
const ofModel = "model."

func (r *ranked) read() error {
	for i, f := range r.files {
		by := map[string]*formats.Tensor{}
		for k := range f.Layout.Tensors {
			t := &f.Layout.Tensors[k]
			if name, ok := strings.CutPrefix(t.Name, ofModel); ok {
				if by[name] != nil {
					return none("two tensors of rank %d are called %q", i, t.Name)
				}
				by[name] = t
			}
		}
		r.by = append(r.by, by)
	}
	if len(r.files) == 0 || len(r.files) > MaxRanks {
		return none("there are %d ranks; it takes 1 to %d", len(r.files), MaxRanks)
	}
	return nil
}

// tensor is one as all ranks have it.
func (r *ranked) tensor(t *mcoreTensor) (*gather, error) {
	ranks := int64(len(r.files))
	g := &gather{}
	for i := range r.files {
		x := r.by[i][t.name]
		if x == nil {
			return nil, none("rank %d lacks %q", i, t.name)
		}
		if i == 0 {
			g.to, g.shape = x.DType, slices.Clone(t.shape)
			if t.kind == mcoreVocab && len(x.Shape) == 2 && x.Shape[0] <= maxDim {
				g.shape[0] = x.Shape[0] * ranks
			}
		}
		if err := r.add(g, t, int64(i), x); err != nil {
			return nil, err
		}
		delete(r.by[i], t.name)
	}
	if !t.fitsWhole(g.shape) {
		return nil, none("%q has %v rows, and not %d, as the config says", t.name, g.shape[0], t.shape[0])
	}
	return g, nil
}

// add adds what a rank has of a tensor.
func (r *ranked) add(g *gather, t *mcoreTensor, rank int64, x *formats.Tensor) error {
	ranks, dim := int64(len(r.files)), 0
	if t.kind == mcoreColumn {
		dim = 1
	}
	want := slices.Clone(g.shape)
	if t.kind != mcoreWhole {
		want[dim] /= ranks
	}
	switch {
	case x.DType != g.to || !slices.Equal(x.Shape, want) || t.kind != mcoreWhole && want[dim]*ranks != g.shape[dim]:
		return none("%q of rank %d is %s of the shape %v, and not %s of %v", t.name, rank, x.DType, x.Shape, g.to, want)
	case t.kind == mcoreWhole && rank > 0:
		return nil // each rank has the same
	}
	op, err := taken(int(rank), r.files[rank], *x)
	if err != nil {
		return err
	}
	origin := make([]int64, len(want))
	if t.kind != mcoreGated {
		if t.kind != mcoreWhole {
			origin[dim] = rank * want[dim]
		}
		g.parts = append(g.parts, part{origin, want, op})
		return nil
	}
	if want[0]%2 != 0 {
		return none("%q of rank %d has the shape %v", t.name, rank, x.Shape)
	}
	want[0] /= 2
	bytes := elements(want) * int64(g.to.Bits()/8)
	for half := range int64(2) {
		at := slices.Clone(origin)
		at[0] = half*r.m.Intermediate + rank*want[0]
		g.parts = append(g.parts, part{at, want, from{op, half * bytes}})
	}
	return nil
}

// left is why it is no model that is known if ranks have more.
func (r *ranked) left() error {
	for i, by := range r.by {
		for _, name := range slices.Sorted(maps.Keys(by)) {
			if !notOfModel.MatchString(name) {
				return none("tensor %q of rank %d is none of a model that is known", name, i)
			}
		}
	}
	return nil
}
