package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"ckptfs/index/graph"
)

// kerasCall is one expansion of a Functional model.
type kerasCall struct {
	*keras
	m    *kerasModel
	args []graph.Input
	path kerasPath
	done map[[2]int][]graph.Input // by layer and call; nil while it is being expanded
}

// ref is the tensor that r names.
func (e *kerasCall) ref(r kerasRef) (graph.Input, error) {
	i, ok := e.m.byName[r.layer]
	if !ok || r.call >= max(1, len(e.m.layers[i].Inbound)) {
		return graph.Input{}, fmt.Errorf("no call %d of layer %q: %w", r.call, r.layer, graph.ErrInvalid)
	}
	out, err := e.call(i, r.call)
	if err != nil {
		return graph.Input{}, err
	}
	if m, err := e.model(&e.m.layers[i]); m == nil && err == nil &&
		!(isInput(&e.m.layers[i]) && e.args != nil) {
		return graph.Input{Vertex: out[0].Vertex, Output: r.output}, nil
	}
	if r.output >= len(out) {
		return graph.Input{}, fmt.Errorf("no output %d of %q: %w", r.output, r.layer, graph.ErrInvalid)
	}
	return out[r.output], nil
}

// call expands a call of a layer, after those that it takes tensors from.
func (e *kerasCall) call(i, n int) ([]graph.Input, error) {
	l := &e.m.layers[i]
	key := [2]int{i, n}
	if out, ok := e.done[key]; ok {
		if out == nil {
			return nil, fmt.Errorf("layer %q: a cycle: %w", l.Name, graph.ErrInvalid)
		}
		return out, nil
	}
	e.done[key] = nil
	if isInput(l) && e.args != nil {
		at := slices.IndexFunc(e.m.inputs, func(r kerasRef) bool { return r.layer == l.Name })
		if at < 0 || at >= len(e.args) {
			return nil, fmt.Errorf("layer %q: no argument for it: %w", l.Name, graph.ErrInvalid)
		}
		e.done[key] = e.args[at : at+1]
		return e.done[key], nil
	}
	var in []graph.Input
	how := ""
	if n < len(l.Inbound) {
		var v any
		if err := json.Unmarshal(l.Inbound[n], &v); err != nil {
			return nil, fmt.Errorf("layer %q: %v: %w", l.Name, err, graph.ErrInvalid)
		}
		a := kerasArgs{e: e}
		text, plain, err := a.walk(nil, v)
		if err != nil {
			return nil, fmt.Errorf("layer %q: %w", l.Name, err)
		}
		if in = a.in; !plain {
			how = string(text)
		}
	}
	out, err := e.layer(l, n, in, how, e.path)
	if err != nil {
		return nil, err
	}
	if out == nil {
		out = []graph.Input{}
	}
	e.done[key] = out
	return out, nil
}

// kerasArgs reads the arguments of a call, of either version.
type kerasArgs struct {
	e  *kerasCall
	in []graph.Input
}

// walk gathers the tensors in v, and appends what is left, with null for tensors. It is plain when there are
// only lists of tensors: then it says nothing.
func (a *kerasArgs) walk(dst []byte, v any) (text []byte, plain bool, err error) {
	switch v := v.(type) {
	case []any:
		if r, ok := asRef(v); ok {
			if err := a.take(r); err != nil {
				return nil, false, err
			}
			if kw, ok := v[len(v)-1].(map[string]any); ok && len(kw) > 0 {
				return a.walk(dst, map[string]any{"kwargs": kw})
			}
			return append(dst, "null"...), true, nil
		}
		dst, plain = append(dst, '['), true
		for i, x := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			var p bool
			if dst, p, err = a.walk(dst, x); err != nil {
				return nil, false, err
			}
			plain = plain && p
		}
		return append(dst, ']'), plain, nil
	case map[string]any:
		if v["class_name"] == "__keras_tensor__" {
			c, _ := v["config"].(map[string]any)
			r, ok := asRef(c["keras_history"])
			if !ok {
				return nil, false, fmt.Errorf("a tensor without keras_history: %w", graph.ErrInvalid)
			}
			return append(dst, "null"...), true, a.take(r)
		}
		dst, plain = append(dst, '{'), true
		first := true
		for _, key := range slices.Sorted(maps.Keys(v)) {
			x := v[key]
			if kw, ok := x.(map[string]any); x == nil || ok && len(kw) == 0 {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			var p bool
			if dst, p, err = a.walk(append(appendJSONString(dst, key), ':'), x); err != nil {
				return nil, false, err
			}
			plain = plain && p && key == "args"
		}
		return append(dst, '}'), plain, nil
	}
	return appendScalar(dst, v), false, nil
}

func (a *kerasArgs) take(r kerasRef) error {
	in, err := a.e.ref(r)
	a.in = append(a.in, in)
	return err
}
