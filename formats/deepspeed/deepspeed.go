// Package deepspeed reads what the ranks of DeepSpeed say, in the files of a ZeRO step, of the model that
// these files make up.
//
//	mp_rank_00_model_states.pt                          stages 1 and 2: a Model
//	zero_pp_rank_R_mp_rank_00_model_states.pt           stage 3: a Model of each rank R
//	zero_pp_rank_R_mp_rank_00_optim_states.pt           an Optimizer of each rank R
//	bf16_zero_pp_rank_R_mp_rank_00_optim_states.pt      the same, of a model in bfloat16
//
// torch.save writes them (package torchzip). A Model is
//
//	{"module": {name: tensor, …}, "buffer_names": [name, …], "param_shapes": [{name: torch.Size, …}, …],
//	 "frozen_param_shapes": None or {name: torch.Size, …},
//	 "frozen_param_fragments": None or {name: tensor, …}, "shared_params": {name: name it shares, …}, …}
//
// and an Optimizer is
//
//	{"optimizer_state_dict": {"zero_stage": 2, "partition_count": ranks, or a list of ranks by group,
//	 "single_partition_of_fp32_groups": [flat tensor, …]       (stages 1 and 2), or
//	 "fp32_flat_groups": [flat tensor, …]                      (stage 3),
//	 "param_alignment_paddings": [[elements behind each parameter, …], …] or not there, …}, …}
//
// Nothing is executed. What is said otherwise than so is refused (formats.ErrNotFormat). The source is
// deepspeed/utils/zero_to_fp32.py of DeepSpeed 0.19.
package deepspeed

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
	"ckptfs/formats/torchzip"
)

// The ends of the names of a step's files.
const (
	ModelSuffix     = "_model_states.pt"
	OptimizerSuffix = "_optim_states.pt"
)

// IsPart reports whether a file's name is that of a part of a step.
func IsPart(name string) bool {
	return strings.HasSuffix(name, ModelSuffix) || strings.HasSuffix(name, OptimizerSuffix)
}

var named = regexp.MustCompile(
	`^(?:(?:bf16_)?zero_pp_rank_([0-9]{1,9})_)?mp_rank_00_(model|optim)_states\.pt$`)

// Rank is whose file a name is: -1 of all ranks. ok is false for a name of another layout, with pipelines,
// experts or tensor parallelism.
func Rank(name string) (rank int, ok bool) {
	m := named.FindStringSubmatch(name)
	if m == nil || m[1] == "" && m[2] == "optim" {
		return 0, false
	}
	if m[1] == "" {
		return -1, true
	}
	rank, err := strconv.Atoi(m[1])
	return rank, err == nil
}

// Param is a parameter of the model.
type Param struct {
	Name  string
	Shape []int64
}

// Model is what a file of model states says.
type Model struct {
	Groups  [][]Param        // that are trained, as the optimizer has them
	Buffers []formats.Tensor // by name
	Frozen  []Frozen
	Shared  [][2]string // a name, and that of the parameter that it shares
}

// Frozen is a parameter that is not trained, and what the file has of it.
type Frozen struct {
	Param
	Fragment formats.Tensor
}

// Optimizer is what a file of optimizer states says.
type Optimizer struct {
	Stage, Ranks int
	Flat         []formats.Tensor // of each group, the part of the rank
	Paddings     [][]int64        // of each group, elements behind each parameter; nil: there are none
}

// File is a file of a step. One of Model and Optimizer is set. The tensors lie in the regions of Layout.
type File struct {
	Layout    *formats.Layout
	Model     *Model
	Optimizer *Optimizer
}

func reject(format string, args ...any) error {
	return fmt.Errorf("DeepSpeed: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Parse reads the pickle of a file of size bytes.
func Parse(r io.ReaderAt, size int64) (*File, error) {
	o, err := torchzip.Open(r, size)
	if err != nil {
		return nil, err
	}
	f := &File{Layout: o.Layout}
	root := dict(o.Root)
	if root.get("buffer_names").Kind() == pickle.None {
		f.Optimizer, err = optimizer(o, dict(root.get("optimizer_state_dict")))
	} else {
		f.Model, err = model(o, root)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func model(o *torchzip.Object, root members) (*Model, error) {
	for _, key := range []string{"ds_autoep_layers", "autoep_layers"} {
		if root.get(key).Kind() != pickle.None {
			return nil, reject("experts are distributed (AutoEP)")
		}
	}
	m := &Model{}
	names := root.get("buffer_names")
	if names.Kind() != pickle.List {
		return nil, reject("no buffer_names: it is no file of model states")
	}
	module := dict(root.get("module"))
	for i := range names.Len() {
		name := string(names.At(i).Text())
		if _, ok := module[name]; !ok {
			continue
		}
		t, ok := o.Tensor(module.get(name))
		if !ok {
			return nil, reject("buffer %.64q is no tensor", name)
		}
		t.Name = name
		m.Buffers = append(m.Buffers, t)
	}
	shapes := root.get("param_shapes")
	if shapes.Kind() != pickle.List {
		return nil, reject("no param_shapes")
	}
	for i := range shapes.Len() {
		group, err := params(shapes.At(i))
		if err != nil {
			return nil, err
		}
		m.Groups = append(m.Groups, group)
	}
	frozen, err := params(root.get("frozen_param_shapes"))
	if err != nil {
		return nil, err
	}
	fragments := dict(root.get("frozen_param_fragments"))
	for _, p := range frozen {
		t, ok := o.Tensor(fragments.get(p.Name))
		if !ok {
			return nil, reject("no fragment of %.64q", p.Name)
		}
		m.Frozen = append(m.Frozen, Frozen{p, t})
	}
	err = pairs(root.get("shared_params"), func(name string, of pickle.Value) error {
		if of.Kind() != pickle.Text {
			return reject("what %.64q shares has no name", name)
		}
		m.Shared = append(m.Shared, [2]string{name, string(of.Text())})
		return nil
	})
	return m, err
}

// maxRanks bounds the ranks of a step.
const maxRanks = 1 << 20

func optimizer(o *torchzip.Object, state members) (*Optimizer, error) {
	p := &Optimizer{}
	stage, ok := number(state.get("zero_stage"))
	if !ok || stage < 1 || stage > 3 {
		return nil, reject("no step of ZeRO")
	}
	p.Stage = int(stage)
	counts := state.get("partition_count")
	if n, ok := counts.Int(); ok {
		p.Ranks = int(min(n, maxRanks))
	}
	for i := range counts.Len() {
		n, _ := counts.At(i).Int()
		p.Ranks = max(p.Ranks, int(min(n, maxRanks)))
	}
	key := "single_partition_of_fp32_groups"
	if p.Stage == 3 {
		key = "fp32_flat_groups"
	}
	flat := state.get(key)
	if flat.Kind() != pickle.List {
		return nil, reject("no %s", key)
	}
	for i := range flat.Len() {
		t, ok := o.Tensor(flat.At(i))
		if !ok || len(t.Shape) != 1 {
			return nil, reject("%s are no flat tensors", key)
		}
		p.Flat = append(p.Flat, t)
	}
	paddings := state.get("param_alignment_paddings")
	if paddings.Kind() == pickle.None {
		return p, nil
	}
	for i := range paddings.Len() {
		group := make([]int64, paddings.At(i).Len())
		for k := range group {
			n, ok := paddings.At(i).At(k).Int()
			if !ok || n < 0 {
				return nil, reject("no number of elements behind a parameter")
			}
			group[k] = n
		}
		p.Paddings = append(p.Paddings, group)
	}
	return p, nil
}

// isDict reports whether a value is a dict, or an OrderedDict.
func isDict(v pickle.Value) bool {
	fn, args, ok := v.Call()
	return v.Kind() == pickle.Dict ||
		v.Kind() == pickle.Call && ok && fn.IsGlobal("collections", "OrderedDict") && args.Len() == 0
}

// members are the values of a dict by its keys, of which text alone counts.
type members map[string]pickle.Value

// get is the value of a key, None where there is none.
func (m members) get(key string) pickle.Value {
	if v, ok := m[key]; ok {
		return v
	}
	return nothing()
}

var nothing = sync.OnceValue(func() pickle.Value {
	p, err := pickle.Parse([]byte("N."), pickle.DefaultLimits)
	if err != nil {
		panic(err) // it is a pickle of None
	}
	return p.Root()
})

// dict is a dict, or an OrderedDict; as in Python the last one of two keys that are equal counts.
func dict(v pickle.Value) members {
	out := members{}
	if !isDict(v) {
		return out
	}
	for i := range v.NumPairs() {
		if k, x := v.Pair(i); k.Kind() == pickle.Text {
			out[string(k.Text())] = x
		}
	}
	return out
}

// pairs calls f with each pair of a dict, in its order. None has none.
func pairs(v pickle.Value, f func(name string, x pickle.Value) error) error {
	if v.Kind() == pickle.None {
		return nil
	}
	if !isDict(v) {
		return reject("something else where there should be a dict")
	}
	met := map[string]bool{}
	for i := range v.NumPairs() {
		k, x := v.Pair(i)
		name := string(k.Text())
		if k.Kind() != pickle.Text || met[name] {
			return reject("names are no text, or one is there twice")
		}
		met[name] = true
		if err := f(name, x); err != nil {
			return err
		}
	}
	return nil
}

// params are the shapes of parameters by their names.
func params(v pickle.Value) (out []Param, err error) {
	err = pairs(v, func(name string, x pickle.Value) error {
		shape, ok := size(x)
		if !ok {
			return reject("%.64q has no shape", name)
		}
		out = append(out, Param{name, shape})
		return nil
	})
	return out, err
}

// size is a torch.Size, whose number of elements does not overflow.
func size(v pickle.Value) ([]int64, bool) {
	fn, args, ok := v.Call()
	if !ok || !fn.IsGlobal("torch", "Size") || args.Len() != 1 || args.At(0).Kind() != pickle.Tuple {
		return nil, false
	}
	dims := args.At(0)
	shape := make([]int64, dims.Len())
	for i := range shape {
		if shape[i], ok = dims.At(i).Int(); !ok {
			return nil, false
		}
	}
	return shape, (&formats.Tensor{Shape: shape}).NumElements() >= 0
}

// number is an integer, or an Enum of one.
func number(v pickle.Value) (int64, bool) {
	if _, args, ok := v.Call(); ok && args.Len() == 1 {
		v = args.At(0)
	}
	return v.Int()
}
