// Package torch finds the tensors in the pickles that torch.save writes, whatever file they lie in.
//
// A tensor is a call of one of torch's _rebuild functions on a storage, which a persistent id names:
//
//	_rebuild_tensor_v2(('storage', FloatStorage, '0', 'cpu', 12), offset, size, stride,
//	    requires_grad, hooks)
//
// It is found below nested dicts, lists, tuples, OrderedDicts and other objects' items and state. Its name is
// the keys and indices on the way, joined by dots: in a flat state dict exactly the key. What can't be named
// with certainty has no name, and its bytes are still in a Data region:
//
//   - A key that is neither text nor an integer ends the way. Of equal keys the last one counts, as in
//     Python.
//   - Of several tensors that would have one name, the first with the shortest way has it; the next is
//     name#2.
//   - A tensor must lie inside its storage, whose length must be what its persistent id says.
//   - Conjugated and negated views, meta tensors, 4-bit quantised, complex32, bits and unknown types have no
//     name; what is left out is counted, by why.
//   - The wrappers _rebuild_parameter, …_with_state and _rebuild_from_type_v2 are looked through.
//   - A quantised tensor is one of its integer type. Sparse and nested tensors are their parts: name.indices,
//     name.values, name.crow_indices, name.buffer …
//   - A tensor of a subclass that wraps others (DTensor, torchao) is those others: name._local_tensor …
//
// The walk through the graph visits at most two values a byte of the pickle and 65,536 more, and keeps as
// many bytes of names: the graph can have more paths than atoms exist, and cycles.
package torch

// Endings are those of the names under which programs save what torch.save writes, most usual first.
var Endings = []string{".pt", ".pth", ".bin", ".ckpt", ".pt2"}
