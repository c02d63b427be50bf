package torch

import (
	"bytes"
	"slices"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
)

// maxTensors bounds the tensors of one file.
const maxTensors = 1 << 20

// What is left out, or shown only by its parts, and why; as formats.Layout.Left has it.
const (
	whyConjugated = "tensors are conjugated views: the file has their conjugates, " +
		"`resolve_conj()` makes plain ones"
	whyNegated = "tensors are negated views: the file has their negatives, " +
		"`resolve_neg()` makes plain ones"
	whyMeta      = "tensors are on the meta device, without elements"
	whyType      = "tensors are of types that are not known"
	whyPacked    = "tensors of two elements a byte are strided"
	whyPlace     = "tensors don't lie within their storages"
	whyStorage   = "tensors are of storages that the file lacks, or describes in two ways"
	whyFunction  = "tensors are made by functions that are not known"
	whyQuantised = "quantised tensors as such: their integers are"
	whySparse    = "sparse tensors as such: their indices and values are"
	whyNested    = "nested tensors as such: their parts are"
	whySubclass  = "tensors of subclasses as such: what they hold is"
	whyNoName    = "storages are of no tensor that has a name"
	whyEndless   = "pickles have too many ways to follow, or tensors"
)

// Tensors returns the tensors that the pickle g names, in storages, or none when it can't be understood as a
// whole. left counts what the file holds besides, or in another form, by why; nil when they are all.
func Tensors(g *pickle.Pickle, storages []Storage) (tensors []formats.Tensor, left map[string]int) {
	w := newWalker(storages)
	w.Steps, w.Names, w.Visit = 2*g.Size()+1<<16, 2*g.Size()+1<<16, w.visit
	if w.Walk(g.Root(), 0); w.Exhausted() || len(w.found) > maxTensors {
		return nil, map[string]int{whyEndless: 1}
	}
	tensors = w.tensors()
	for i := range w.storages {
		if w.storages[i].Len > 0 && !w.met[i] {
			w.leave(whyNoName)
		}
	}
	return tensors, w.left
}

// Tensor returns the tensor that one value of a pickle is, without a name. It returns false for any other
// value.
func Tensor(v pickle.Value, storages []Storage) (formats.Tensor, bool) {
	if v.Kind() != pickle.Call {
		return formats.Tensor{}, false
	}
	c, ok := asCall(v)
	if !ok {
		return formats.Tensor{}, false
	}
	t, _, why := newWalker(storages).tensor(c)
	return t, why == ""
}

// walker goes through the graph from the root and notes the tensors it meets.
type walker struct {
	pickle.Walker
	storages []Storage
	byKey    map[string]int // index into storages
	found    []candidate

	met  []bool         // of storages: a tensor over it was met
	left map[string]int // tensors that are left out, or shown by their parts, by why
}

func newWalker(storages []Storage) *walker {
	w := &walker{storages: storages, byKey: make(map[string]int, len(storages)),
		met: make([]bool, len(storages))}
	for i := range storages {
		w.byKey[storages[i].Key] = i
	}
	return w
}

func (w *walker) leave(why string) {
	if w.left == nil {
		w.left = map[string]int{}
	}
	w.left[why]++
}

// candidate is a tensor with the name it asks for.
type candidate struct {
	formats.Tensor
	storage, depth int
}

// visit looks at v.
func (w *walker) visit(v pickle.Value, depth int) bool {
	if len(w.found) > maxTensors {
		w.Steps = -1
		return true
	}
	if v.Kind() != pickle.Call {
		return false
	}
	c, ok := asCall(v)
	return ok && w.call(c, depth)
}

// parts has the arguments of calls that put a tensor together from others, and the names of those.
var parts = map[string][]string{
	"torch.sparse_coo":       {"indices", "values"},
	"torch.sparse_csr":       {"crow_indices", "col_indices", "values"},
	"torch.sparse_bsr":       {"crow_indices", "col_indices", "values"},
	"torch.sparse_csc":       {"ccol_indices", "row_indices", "values"},
	"torch.sparse_bsc":       {"ccol_indices", "row_indices", "values"},
	"_rebuild_nested_tensor": {"buffer", "sizes", "strides", "offsets"},
}

// call notes the tensor that c makes, or its parts. It returns false when c is none of torch's functions for
// tensors.
func (w *walker) call(c call, depth int) bool {
	module, name := c.fn.Global()
	if !bytes.HasPrefix(module, []byte("torch._")) || !bytes.HasPrefix(name, []byte("_rebuild")) {
		return false
	}
	t, storage, why := w.tensor(c)
	if why == "" {
		t.Name = w.Keep()
		w.found = append(w.found, candidate{t, storage, depth})
		if string(name) == "_rebuild_qtensor" {
			w.leave(whyQuantised)
			for i := range c.args.At(4).Len() { // scales and zero points
				if c, ok := asCall(c.args.At(4).At(i)); ok {
					w.tensor(c)
				}
			}
		}
		return true
	}
	if w.subclass(c, depth) {
		w.leave(whySubclass)
		return true
	}
	args, kind := c.args, string(name)
	if kind == "_rebuild_sparse_tensor" && args.Len() == 2 && args.At(1).Kind() == pickle.Tuple {
		args, kind = args.At(1), sparseLayout(args.At(0))
	}
	switch {
	case parts[kind] != nil && kind != string(name):
		why = whySparse
	case parts[kind] != nil:
		why = whyNested
	case kind == "_rebuild_meta_tensor_no_storage":
		why = whyMeta
	}
	w.leave(why)
	for i, part := range parts[kind] {
		if i < args.Len() && depth < pickle.MaxDepth {
			w.Child([]byte(part), args.At(i), depth)
		}
	}
	return true
}

// subclass visits the tensors inside of one of a class that wraps others, which are its attributes:
//
//	_rebuild_from_type_v2(_rebuild_wrapper_subclass, Class, (…), {"inner": …})
func (w *walker) subclass(c call, depth int) bool {
	if !isWrapper(c) || depth >= pickle.MaxDepth {
		return false
	}
	w.State(c.args.At(3), depth)
	return true
}

// sparseLayout is the layout that v makes: torch.serialization._get_layout('torch.sparse_coo').
func sparseLayout(v pickle.Value) string {
	fn, args, _ := v.Call()
	if v.Kind() != pickle.Call || !fn.IsGlobal("torch.serialization", "_get_layout") ||
		args.Kind() != pickle.Tuple || args.Len() != 1 {
		return ""
	}
	return string(args.At(0).Text())
}

// tensors gives the candidates their names and drops those of disputed storages.
func (w *walker) tensors() []formats.Tensor {
	found := slices.DeleteFunc(w.found, func(c candidate) bool {
		disputed := w.storages[c.storage].disputed
		if disputed {
			w.leave(whyStorage)
		}
		return disputed
	})
	out := make([]formats.Tensor, len(found))
	depths := make([]int, len(found))
	for i := range found {
		out[i], depths[i] = found[i].Tensor, found[i].depth
	}
	formats.Distinguish(out, depths)
	return out
}
