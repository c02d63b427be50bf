package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ckptfs/formats"
	"ckptfs/index/graph"
)

// ParseExport reads the graph of a torch.export archive: models/NAME.json in a .pt2 file. Each operator is a
// vertex, named by the module it lies in and its own name; what it gets besides tensors is its configuration.
// Parameters, buffers and lifted constants are parameters, by the names that the module has for them. Graphs
// within the graph (control flow) are refused. The error wraps ErrInvalid. Memory is at most 64 times p.
func ParseExport(p []byte) (*graph.Graph, error) {
	r, err := newReader(p)
	if err != nil {
		return nil, err
	}
	if err := r.skip(); err != nil { // depth, members that come twice
		return nil, err
	}
	var doc struct {
		Module struct {
			Graph struct {
				Nodes  []exportNode          `json:"nodes"`
				Values map[string]exportMeta `json:"tensor_values"`
			} `json:"graph"`
			Signature struct {
				Inputs []map[string]json.RawMessage `json:"input_specs"`
			} `json:"signature"`
		} `json:"graph_module"`
	}
	if err := json.Unmarshal(p, &doc); err != nil {
		return nil, fmt.Errorf("%v: %w", err, graph.ErrInvalid)
	}
	e := export{g: &graph.Graph{Kind: graph.Export}, meta: doc.Module.Graph.Values,
		at: map[string]graph.Input{}, params: map[string]string{}}
	if len(doc.Module.Signature.Inputs) == 0 {
		return nil, fmt.Errorf("no graph_module with a signature: %w", graph.ErrInvalid)
	}
	for _, spec := range doc.Module.Signature.Inputs {
		if err := e.input(spec); err != nil {
			return nil, err
		}
	}
	for i := range doc.Module.Graph.Nodes {
		if err := e.node(&doc.Module.Graph.Nodes[i]); err != nil {
			return nil, err
		}
	}
	return e.g, e.g.Check()
}

type exportNode struct {
	Name   string `json:"name"`
	Target string `json:"target"`
	Inputs []struct {
		Name string `json:"name"`
		Arg  any    `json:"arg"`
	} `json:"inputs"`
	Outputs  []any `json:"outputs"`
	Metadata struct {
		Stack string `json:"nn_module_stack"`
	} `json:"metadata"`
}

type exportMeta struct {
	DType int   `json:"dtype"`
	Sizes []any `json:"sizes"`
}

// exportTypes are the element types by torch's number in the archive's schema.
var exportTypes = map[int]formats.DType{1: formats.U8, 2: formats.I8, 3: formats.I16, 4: formats.I32,
	5: formats.I64, 6: formats.F16, 7: formats.F32,
	8: formats.F64, 10: formats.C64, 11: formats.C128, 12: formats.Bool, 13: formats.BF16}

type export struct {
	g      *graph.Graph
	meta   map[string]exportMeta
	at     map[string]graph.Input // values of the graph
	params map[string]string      // values that are tensors of the module → their names
}

// input reads one of the signature's input_specs.
func (e *export) input(spec map[string]json.RawMessage) error {
	for kind, raw := range spec {
		var s struct {
			Arg       any    `json:"arg"`
			Parameter string `json:"parameter_name"`
			Buffer    string `json:"buffer_name"`
			Constant  string `json:"tensor_constant_name"`
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("input %s: %v: %w", kind, err, graph.ErrInvalid)
		}
		arg, _ := s.Arg.(map[string]any)
		name, _ := arg["name"].(string)
		switch kind {
		case "parameter", "buffer", "tensor_constant":
			if name == "" || s.Parameter+s.Buffer+s.Constant == "" {
				return fmt.Errorf("%s without name: %w", kind, graph.ErrInvalid)
			}
			e.params[name] = s.Parameter + s.Buffer + s.Constant
		case "user_input":
			t, _ := arg["as_tensor"].(map[string]any)
			if name, _ = t["name"].(string); name == "" {
				continue // a number, or nothing
			}
			m := e.meta[name]
			sizes, err := (&exportArgs{e: e}).walk(nil, m.Sizes)
			if err != nil {
				return err
			}
			err = e.add(graph.Vertex{Name: name, Op: "input",
				Config: `{"dtype":` + strconv.Itoa(m.DType) + `,"sizes":` + string(sizes) + `}`})
			if err != nil {
				return err
			}
			e.at[name] = graph.Input{Vertex: len(e.g.Vertices) - 1}
		}
	}
	return nil
}

func (e *export) add(v graph.Vertex) error {
	if len(e.g.Vertices) == graph.MaxVertices {
		return tooMany()
	}
	e.g.Vertices = append(e.g.Vertices, v)
	return nil
}

func (e *export) node(n *exportNode) error {
	v := graph.Vertex{Name: n.Name, Op: n.Target}
	if i := strings.LastIndexByte(n.Metadata.Stack, ';'); i >= 0 { // the innermost: key,path,class
		if part := strings.Split(n.Metadata.Stack[i+1:], ","); len(part) == 3 && part[1] != "" {
			v.Name = part[1] + "/" + n.Name
		}
	}
	if v.Op == "" {
		return fmt.Errorf("node %q without target: %w", n.Name, graph.ErrInvalid)
	}
	config := []byte("{")
	for i := range n.Inputs {
		in := &n.Inputs[i]
		if i > 0 {
			config = append(config, ',')
		}
		a := exportArgs{e: e, v: &v, slot: in.Name}
		var err error
		if config, err = a.walk(append(appendJSONString(config, in.Name), ':'), in.Arg); err != nil {
			return fmt.Errorf("node %q: %w", n.Name, err)
		}
	}
	r, err := newReader(append(config, '}'))
	if err != nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	if v.Config, err = r.config("arguments", inside); err != nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	v.Commutative = graph.MayCommute(v.Op) && len(v.Inputs) == 2 && len(n.Inputs) == 2
	if err := e.add(v); err != nil {
		return err
	}
	k := 0
	e.outputs(n.Outputs, len(e.g.Vertices)-1, &k)
	return nil
}

// outputs names the outputs of a vertex, wherever in v they stand.
func (e *export) outputs(v any, vertex int, k *int) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			e.outputs(x, vertex, k)
		}
	case map[string]any:
		for _, key := range []string{"name", "as_name"} {
			if s, ok := v[key].(string); ok && *k <= graph.MaxOutput {
				e.at[s] = graph.Input{Vertex: vertex, Output: *k}
				*k++
				return
			}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			e.outputs(v[key], vertex, k)
		}
	}
}

// exportArgs reads one argument of a node.
type exportArgs struct {
	e    *export
	v    *graph.Vertex // gets the tensors
	slot string
}

// walk appends what the argument is besides tensors: null stands for one of the graph, "param" for one of the
// module.
func (a *exportArgs) walk(dst []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case []any:
		dst = append(dst, '[')
		for i, x := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = a.walk(dst, x); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case map[string]any:
		if v["as_graph"] != nil {
			return nil, fmt.Errorf("a graph within the graph: %w", graph.ErrInvalid)
		}
		if name, ok := v["name"].(string); ok && len(v) == 1 {
			return a.take(dst, name)
		}
		if name, ok := v["as_name"].(string); ok {
			if _, made := a.e.at[name]; made {
				return a.take(dst, name)
			}
		}
		dst = append(dst, '{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = a.walk(append(appendJSONString(dst, key), ':'), v[key]); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	}
	return appendScalar(dst, v), nil
}

func (a *exportArgs) take(dst []byte, name string) ([]byte, error) {
	if tensor, ok := a.e.params[name]; ok && a.v != nil {
		m := a.e.meta[name]
		p := graph.Param{Tensor: tensor, Slot: a.slot}
		shape := make([]int64, 0, len(m.Sizes))
		for _, s := range m.Sizes {
			o, _ := s.(map[string]any)
			if n, ok := o["as_int"].(float64); ok && n >= 0 && n == float64(int64(n)) {
				shape = append(shape, int64(n))
			}
		}
		if d := exportTypes[m.DType]; d != "" && len(shape) == len(m.Sizes) {
			p.DType = d
			if len(shape) > 0 {
				p.Shape = shape
			}
		}
		a.v.Params = append(a.v.Params, p)
		return append(dst, `"param"`...), nil
	}
	in, ok := a.e.at[name]
	if !ok || a.v == nil {
		return nil, fmt.Errorf("value %q is made by no node before: %w", name, graph.ErrInvalid)
	}
	a.v.Inputs = append(a.v.Inputs, in)
	return append(dst, "null"...), nil
}

// appendScalar appends what encoding/json made of a value that is neither list nor object.
func appendScalar(dst []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return appendJSONString(dst, v)
	case float64:
		dst, _ = appendNumber(dst, strconv.FormatFloat(v, 'g', -1, 64))
		return dst
	case bool:
		return strconv.AppendBool(dst, v)
	}
	return append(dst, "null"...)
}
