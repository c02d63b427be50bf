package torch

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
)

// Bounds on the walk through the pickle's graph. The graph can have more paths than atoms exist, and cycles.
const (
	maxDepth   = 400     // containers inside one another; what is deeper has no name
	maxTensors = 1 << 20 // in one file
	maxName    = 1 << 12 // bytes; a tensor with a longer name has none
)

// Tensors returns the tensors that the pickle g names, in storages, or none when it can't be understood as a whole. all
// reports whether those are all that the file holds, as they are.
func Tensors(g *pickle.Pickle, storages []Storage) (tensors []formats.Tensor, all bool) {
	w := walker{
		storages: storages,
		byKey:    make(map[string]int, len(storages)),
		steps:    2*g.Size() + 1<<16,
		names:    2*g.Size() + 1<<16,
		path:     make([]byte, 0, 256),
		open:     make(map[int]bool),
	}
	for i := range storages {
		w.byKey[storages[i].Key] = i
	}
	if w.value(g.Root(), 0); w.steps < 0 || w.names < 0 || len(w.found) > maxTensors {
		return nil, false
	}
	tensors = w.tensors()
	return tensors, !w.partial && w.reachAll()
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

// walker goes through the graph from the root, depth first, and notes the tensors it meets.
type walker struct {
	storages []Storage
	byKey    map[string]int // index into storages

	steps int          // values that may still be visited
	names int          // bytes of names that may still be kept
	path  []byte       // of the value being visited
	open  map[int]bool // containers being visited; meeting one of them again is a cycle
	found []candidate

	partial bool // a tensor was met that has no name, or is shown by its parts
}

// candidate is a tensor with the name it asks for.
type candidate struct {
	formats.Tensor
	storage, depth int
}

// value visits v, whose path is w.path with depth components.
func (w *walker) value(v pickle.Value, depth int) {
	if w.steps--; w.exhausted() {
		return
	}
	switch v.Kind() {
	case pickle.Call:
		if c, ok := asCall(v); ok && w.call(c, depth) {
			return
		}
	case pickle.Dict, pickle.List, pickle.Tuple, pickle.New:
	default:
		return
	}
	if depth >= maxDepth || w.open[v.ID()] {
		return
	}
	w.open[v.ID()] = true
	var index [20]byte
	for i := range v.Len() {
		if w.steps--; w.exhausted() {
			break
		}
		w.child(strconv.AppendInt(index[:0], int64(i), 10), v.At(i), depth)
	}
	w.pairs(v, depth)
	if state, ok := v.State(); ok {
		w.state(state, depth)
	}
	delete(w.open, v.ID())
}

func (w *walker) exhausted() bool { return w.steps < 0 || w.names < 0 || len(w.found) > maxTensors }

// child visits v under key.
func (w *walker) child(key []byte, v pickle.Value, depth int) {
	n := len(w.path)
	if n+len(key) >= maxName {
		return
	}
	if depth > 0 {
		w.path = append(w.path, '.')
	}
	w.path = append(w.path, key...)
	w.value(v, depth+1)
	w.path = w.path[:n]
}

// state visits what BUILD sets on an object: attributes as a dict, or a pair of that and the slots.
func (w *walker) state(v pickle.Value, depth int) {
	if v.Kind() == pickle.Tuple && v.Len() == 2 {
		w.pairs(v.At(0), depth)
		v = v.At(1)
	}
	w.pairs(v, depth)
}

// pairs visits the values of a mapping. Of equal keys the last counts.
func (w *walker) pairs(v pickle.Value, depth int) {
	n := v.NumPairs()
	if w.steps -= n; w.exhausted() {
		return
	}
	last := make(map[string]int, n)
	var buf []byte
	for i := range n {
		k, _ := v.Pair(i)
		if k.Kind() == pickle.Opaque { // it may be any of the others
			return
		}
		if id, _ := appendKey(buf[:0], k); id != nil {
			last[string(id)] = i
			buf = id
		}
	}
	for i := range n {
		k, val := v.Pair(i)
		id, named := appendKey(buf[:0], k)
		if id != nil && last[string(id)] == i && named {
			w.child(id[1:], val, depth)
		}
		if w.exhausted() {
			return
		}
	}
}

// appendKey appends a dict key's identity: a letter for its type, then its text, which is what names show. Python takes
// True and 1.0 for the same key as 1, so they share an identity, but only text and integers make names.
func appendKey(dst []byte, k pickle.Value) (id []byte, named bool) {
	switch k.Kind() {
	case pickle.Text:
		text := k.Text()
		return append(append(dst, 't'), text...), utf8.Valid(text)
	case pickle.Int:
		n, _ := k.Int()
		return strconv.AppendInt(append(dst, 'i'), n, 10), true
	case pickle.Bool:
		n := int64(0)
		if k.Bool() {
			n = 1
		}
		return strconv.AppendInt(append(dst, 'i'), n, 10), false
	case pickle.Float:
		if f, _ := k.Float(); f == math.Trunc(f) && math.Abs(f) < 1<<62 {
			return strconv.AppendInt(append(dst, 'i'), int64(f), 10), false
		}
	}
	return nil, false
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
		t.Name = string(w.path)
		w.names -= len(t.Name)
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
		if i < args.Len() && depth < maxDepth {
			w.child([]byte(part), args.At(i), depth)
		}
	}
	return true
}

// subclass visits the tensors inside of one of a class that wraps others, which are its attributes:
//
//	_rebuild_from_type_v2(_rebuild_wrapper_subclass, Class, (…), {"inner": …})
func (w *walker) subclass(c call, depth int) bool {
	if !isWrapper(c) || depth >= maxDepth {
		return false
	}
	w.state(c.args.At(3), depth)
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
	order := make([]int, len(found)) // shortest way first
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return found[i].depth - found[j].depth })
	wanted := make(map[string]int, len(found)) // name to the number given last
	taken := make(map[string]bool)             // names with numbers
	for _, i := range order {
		wanted[found[i].Name] = 0
	}
	out := make([]formats.Tensor, len(found))
	for _, i := range order {
		out[i] = found[i].Tensor
		name := out[i].Name
		wanted[name]++
		for n := wanted[name]; n > 1; n++ {
			numbered := name + "#" + strconv.Itoa(n)
			if _, used := wanted[numbered]; used || taken[numbered] {
				continue
			}
			wanted[name], taken[numbered], out[i].Name = n, true, numbered
			break
		}
	}
	return out
}
