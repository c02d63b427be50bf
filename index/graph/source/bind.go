package source

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/index/graph"
)

// bind names the parameters as the file does.
func (e *explicit) bind(file Tensors) error {
	var all, distinct []paramAt // the latter of distinct names
	seen := map[string]bool{}
	for v := range e.g.Vertices {
		for p := range e.g.Vertices[v].Params {
			at := paramAt{v, p}
			all = append(all, at)
			if name := e.at(at).Tensor; !seen[name] {
				seen[name] = true
				distinct = append(distinct, at)
			}
		}
	}
	prefix := ""
	if err := e.fit(file, "", distinct); err != nil {
		var found []string
		for _, p := range e.prefixes(file, distinct[0]) {
			if e.fit(file, p, distinct) == nil {
				found = append(found, p)
			}
		}
		switch {
		case len(found) == 0:
			return err
		case len(found) > 1:
			return fmt.Errorf("the file has them below %q and below %q: %w: %w", found[0], found[1], err,
				graph.ErrInvalid)
		}
		prefix = found[0]
	}
	if err := e.fit(file, prefix, all); err != nil {
		return err
	}
	for _, at := range all {
		e.at(at).Tensor, _ = e.find(file, prefix, at)
	}
	return nil
}

func (e *explicit) at(p paramAt) *graph.Param { return &e.g.Vertices[p.vertex].Params[p.param] }

// find is the tensor of a parameter: by its own name, else by the first of those tied to it that is in the
// file.
func (e *explicit) find(file Tensors, prefix string, at paramAt) (string, *formats.Tensor) {
	own := prefix + e.at(at).Tensor
	if t := file[own]; t != nil {
		return own, t
	}
	for _, name := range e.tied[at] {
		if t := file[prefix+name]; t != nil {
			return prefix + name, t
		}
	}
	return own, nil
}

// fit returns an error unless the file has the parameters behind a prefix.
func (e *explicit) fit(file Tensors, prefix string, all []paramAt) error {
	for _, at := range all {
		p := e.at(at)
		name, t := e.find(file, prefix, at)
		if t == nil {
			return fmt.Errorf("no tensor %q in the file: %w", name, graph.ErrInvalid)
		}
		if p.DType != "" && (p.DType != t.DType || !slices.Equal(p.Shape, t.Shape)) {
			return fmt.Errorf("tensor %q is %s %v in the file, not %s %v: %w", name, t.DType, t.Shape,
				p.DType, p.Shape, graph.ErrInvalid)
		}
	}
	return nil
}

// prefixes lists what stands before a parameter's name, or one tied to it, in names of the file, up to a dot
// or slash.
func (e *explicit) prefixes(file Tensors, at paramAt) []string {
	found := map[string]bool{}
	for _, name := range append([]string{e.at(at).Tensor}, e.tied[at]...) {
		for have := range file {
			if p, ok := strings.CutSuffix(have, name); ok &&
				(strings.HasSuffix(p, ".") || strings.HasSuffix(p, "/")) {
				found[p] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
