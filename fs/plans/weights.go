package plans

import (
	"maps"
	"slices"

	"ckptfs/formats"
)

// weights are the tensors of a Hugging Face model's files, all of one type.
type weights struct {
	from  map[string]tensorOf // by name; those that are used go
	dtype formats.DType
}

// tensorOf is a tensor of one of the sources.
type tensorOf struct {
	src int
	s   *Source
	t   *formats.Tensor
}

// read reads what the files have.
func (w *weights) read(sources []*Source) error {
	w.from = map[string]tensorOf{}
	for i, f := range sources {
		for k := range f.Layout.Tensors {
			t := &f.Layout.Tensors[k]
			if _, twice := w.from[t.Name]; twice {
				return none("two tensors are called %q", t.Name)
			}
			w.from[t.Name] = tensorOf{i, f, t}
		}
	}
	return nil
}

// take is a tensor that the model has to have.
func (w *weights) take(name string) (tensorOf, error) {
	x, ok := w.from[name]
	switch {
	case !ok:
		return x, none("tensor %q is missing", name)
	case x.t.DType != w.dtype:
		return x, none("tensor %q is of type %s, and the model of %s", name, x.t.DType, w.dtype)
	}
	delete(w.from, name)
	return x, nil
}

// left is why there is no model of a program, of this type, where it does not have all of the tensors.
func (w *weights) left(program, kind string) error {
	if len(w.from) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(w.from))) // the reason is the same at each lookup
	return none("tensor %q is none of %s's model of type %s", first, program, kind)
}
