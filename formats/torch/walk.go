package torch

import (
	"bytes"
	"slices"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
)

// maxTensors bounds the tensors of one file.
const maxTensors = 1 << 20

// Tensors returns the tensors that the pickle g names, in storages, or none when it can't be understood as a whole. all
// reports whether those are all that the file holds, as they are.
func Tensors(g *pickle.Pickle, storages []Storage) (tensors []formats.Tensor, all bool) {
	w := newWalker(storages)
	w.Steps, w.Names, w.Visit = 2*g.Size()+1<<16, 2*g.Size()+1<<16, w.visit
	if w.Walk(g.Root(), 0); w.Exhausted() || len(w.found) > maxTensors {
		return nil, false
	}
	tensors = w.tensors()
	return tensors, !w.partial && w.reachAll()
}

// Tensor returns the tensor that one value of a pickle is, without a name. It returns false for any other value.
func Tensor(v pickle.Value, storages []Storage) (formats.Tensor, bool) {
	if v.Kind() != pickle.Call {
		return formats.Tensor{}, false
	}
	c, ok := asCall(v)
	if !ok {
		return formats.Tensor{}, false
	}
	t, _, ok := newWalker(storages).tensor(c)
	return t, ok
}

// reachAll reports whether a tensor was found over each storage that has bytes.
func (w *walker) reachAll() bool {
	over := make([]bool, len(w.storages))
	for i := range w.found {
		over[w.found[i].storage] = true
	}
	for i := range w.storages {
		if w.storages[i].Len > 0 && !over[i] {
			return false
		}
	}
	return true
}

// walker goes through the graph from the root and notes the tensors it meets.
type walker struct {
	pickle.Walker
	storages []Storage
	byKey    map[string]int // index into storages
	found    []candidate

	partial bool // a tensor was met that has no name, or is shown by its parts
}

func newWalker(storages []Storage) *walker {
	w := &walker{storages: storages, byKey: make(map[string]int, len(storages))}
	for i := range storages {
		w.byKey[storages[i].Key] = i
	}
	return w
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

// call notes the tensor that c makes, or its parts. It returns false when c is none of torch's functions for tensors.
func (w *walker) call(c call, depth int) bool {
	module, name := c.fn.Global()
	if !bytes.HasPrefix(module, []byte("torch._")) || !bytes.HasPrefix(name, []byte("_rebuild")) {
		return false
	}
	if t, storage, ok := w.tensor(c); ok {
		t.Name = w.Keep()
		w.found = append(w.found, candidate{t, storage, depth})
		w.partial = w.partial || string(name) == "_rebuild_qtensor"
		return true
	}
	w.partial = true
	if w.subclass(c, depth) {
		return true
	}
	args, kind := c.args, string(name)
	if kind == "_rebuild_sparse_tensor" && args.Len() == 2 && args.At(1).Kind() == pickle.Tuple {
		args, kind = args.At(1), sparseLayout(args.At(0))
	}
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
	found := slices.DeleteFunc(w.found, func(c candidate) bool { return w.storages[c.storage].disputed })
	w.partial = w.partial || len(found) < len(w.found)
	out := make([]formats.Tensor, len(found))
	depths := make([]int, len(found))
	for i := range found {
		out[i], depths[i] = found[i].Tensor, found[i].depth
	}
	formats.Distinguish(out, depths)
	return out
}
