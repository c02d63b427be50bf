package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"ckptfs/formats"
	"ckptfs/index/graph"
)

// MaxKeras bounds the bytes of a Keras configuration.
const MaxKeras = 4 << 20

// callMark stands in the name of a vertex between the layer and the number of its call, from the second on.
const callMark = "#"

// ParseKeras reads the configuration of a Keras model: config.json of a .keras file (Keras 3), or the
// attribute model_config of an HDF5 file (Keras 2). A Sequential model is a chain; models within models are
// flattened; each call of a layer is a vertex, with all its inputs. What a call gets besides tensors is part
// of the vertex's configuration.
//
// The source names no tensors. Those of the file, if there are any, are attached by name: as Keras 3 saves
// them, layers/dense_1/vars/0 being the first variable of the second Dense of its container, or as HDF5 files
// of both versions have them, model_weights/head/head/kernel:0 being a variable of the layer named head. All
// calls of a layer get them.
//
// The error wraps ErrInvalid. Memory is at most 64 times p.
func ParseKeras(p []byte, all []formats.Tensor) (*graph.Graph, error) {
	if len(p) > MaxKeras {
		return nil, fmt.Errorf("%d bytes, of at most %d: %w", len(p), MaxKeras, graph.ErrInvalid)
	}
	r, err := newReader(p)
	if err != nil {
		return nil, err
	}
	if err := r.skip(); err != nil { // depth, members that come twice
		return nil, err
	}
	var top kerasLayerJSON
	if err := json.Unmarshal(p, &top); err != nil {
		return nil, fmt.Errorf("%v: %w", err, graph.ErrInvalid)
	}
	k := keras{g: &graph.Graph{Kind: graph.Keras}}
	m, err := k.model(&top)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("class %q has no layers: %w", top.ClassName, graph.ErrInvalid)
	}
	if _, err := k.expand(m, nil, kerasPath{}); err != nil {
		return nil, err
	}
	k.attach(all)
	return k.g, k.g.Check()
}

type kerasLayerJSON struct {
	ClassName string            `json:"class_name"`
	Name      string            `json:"name"`
	Config    json.RawMessage   `json:"config"`
	Inbound   []json.RawMessage `json:"inbound_nodes"`

	saved string      // the part of saved that is the layer's
	model *kerasModel // what k.model found, once it was asked
	asked bool
}

type kerasModelJSON struct {
	Name    string           `json:"name"`
	Layers  []kerasLayerJSON `json:"layers"`
	Inputs  any              `json:"input_layers"`
	Outputs any              `json:"output_layers"`
}

type keras struct {
	g        *graph.Graph
	saved    []string // by vertex: where Keras 3 saves its variables
	expanded int      // calls so far, of models too
}

// kerasPath is what the names of a model's layers begin with.
type kerasPath struct{ names, saved string }

// kerasModel is a Sequential or Functional model, not yet expanded.
type kerasModel struct {
	sequential bool
	layers     []kerasLayerJSON
	byName     map[string]int
	inputs     []kerasRef
	outputs    []kerasRef
}

// kerasRef is an output of a call: keras_history.
type kerasRef struct {
	layer        string
	call, output int
}

// model is the model that a layer is, nil for a leaf.
func (k *keras) model(l *kerasLayerJSON) (*kerasModel, error) {
	if l.asked {
		return l.model, nil
	}
	m, err := k.readModel(l)
	l.model, l.asked = m, err == nil
	return m, err
}

func (k *keras) readModel(l *kerasLayerJSON) (*kerasModel, error) {
	switch l.ClassName {
	case "Sequential", "Functional", "Model":
	default:
		return nil, nil
	}
	m := &kerasModel{sequential: l.ClassName == "Sequential", byName: map[string]int{}}
	var c kerasModelJSON
	if json.Unmarshal(l.Config, &m.layers) != nil { // once, a Sequential's config was its layers
		if err := json.Unmarshal(l.Config, &c); err != nil {
			return nil, fmt.Errorf("model %q: %v: %w", l.Name, err, graph.ErrInvalid)
		}
		m.layers = c.Layers
	}
	if m.layers == nil {
		return nil, nil
	}
	used := map[string]int{}
	for i := range m.layers {
		l := &m.layers[i]
		l.saved = snakeCase(l.ClassName)
		if n := used[l.saved]; n > 0 {
			used[l.saved]++
			l.saved += "_" + strconv.Itoa(n)
		} else {
			used[l.saved] = 1
		}
		if l.Name == "" {
			var n struct {
				Name string `json:"name"`
			}
			if json.Unmarshal(l.Config, &n) == nil {
				l.Name = n.Name
			}
		}
		if _, twice := m.byName[l.Name]; twice && !m.sequential {
			return nil, fmt.Errorf("layer %q twice: %w", l.Name, graph.ErrInvalid)
		}
		m.byName[l.Name] = i
	}
	if !m.sequential {
		m.inputs, m.outputs = refs(c.Inputs), refs(c.Outputs)
	}
	return m, nil
}

// refs finds [layer, call, output] in lists and objects, objects by key.
func refs(v any) []kerasRef {
	if r, ok := asRef(v); ok {
		return []kerasRef{r}
	}
	var out []kerasRef
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			out = append(out, refs(x)...)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out = append(out, refs(v[key])...)
		}
	}
	return out
}

// asRef reads [layer, call, output] with or without arguments behind.
func asRef(v any) (r kerasRef, ok bool) {
	l, _ := v.([]any)
	if len(l) != 3 && len(l) != 4 {
		return r, false
	}
	r.layer, ok = l[0].(string)
	call, ok1 := asIndex(l[1])
	output, ok2 := asIndex(l[2])
	r.call, r.output = call, output
	return r, ok && ok1 && ok2
}

func asIndex(v any) (int, bool) {
	f, ok := v.(float64)
	if !ok || f < 0 || f > graph.MaxOutput || f != float64(int(f)) {
		return 0, false
	}
	return int(f), true
}

// expand adds a call of a model with these inputs, nil for the outermost, and returns its outputs.
func (k *keras) expand(m *kerasModel, args []graph.Input, path kerasPath) ([]graph.Input, error) {
	if k.expanded++; k.expanded > graph.MaxVertices {
		return nil, tooMany()
	}
	if m.sequential {
		return k.chain(m, args, path)
	}
	e := &kerasCall{keras: k, m: m, args: args, path: path, done: map[[2]int][]graph.Input{}}
	for i := range m.layers {
		if isInput(&m.layers[i]) && args == nil {
			if _, err := e.call(i, 0); err != nil {
				return nil, err
			}
		}
	}
	for i := range m.layers {
		for c := range max(1, len(m.layers[i].Inbound)) {
			if isInput(&m.layers[i]) && args != nil {
				continue
			}
			if _, err := e.call(i, c); err != nil {
				return nil, err
			}
		}
	}
	var out []graph.Input
	for _, r := range m.outputs {
		in, err := e.ref(r)
		if err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	return out, nil
}

func isInput(l *kerasLayerJSON) bool { return l.ClassName == "InputLayer" }

func (k *keras) chain(m *kerasModel, args []graph.Input, path kerasPath) ([]graph.Input, error) {
	last := args
	for i := range m.layers {
		l := &m.layers[i]
		if isInput(l) && args != nil {
			continue
		}
		var err error
		if last, err = k.layer(l, 0, last, "", path); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// layer adds one call of a layer or a model, and returns its outputs: of a leaf one, which stands for all.
func (k *keras) layer(l *kerasLayerJSON, call int, in []graph.Input, how string,
	path kerasPath) ([]graph.Input, error) {
	m, err := k.model(l)
	if err != nil {
		return nil, err
	}
	if m != nil {
		if in == nil {
			return nil, fmt.Errorf("model %q within a model has no inputs: %w", l.Name, graph.ErrInvalid)
		}
		return k.expand(m, in, kerasPath{path.names + l.Name + "/", path.saved + "layers/" + l.saved + "/"})
	}
	if len(k.g.Vertices) == graph.MaxVertices {
		return nil, tooMany()
	}
	v := graph.Vertex{Name: path.names + l.Name, Op: l.ClassName, Config: "{}", Inputs: in}
	if call > 0 {
		v.Name += callMark + strconv.Itoa(call)
	}
	if v.Op == "" {
		return nil, fmt.Errorf("layer %q without class: %w", l.Name, graph.ErrInvalid)
	}
	if l.Config != nil && string(l.Config) != "null" {
		r, err := newReader(l.Config)
		if err != nil {
			return nil, err
		}
		at := kerasLayer
		if isInput(l) {
			at = layer // its dtype is the tensor's
		}
		if v.Config, err = r.config("config", at); err != nil {
			return nil, fmt.Errorf("layer %q: %w", l.Name, err)
		}
	}
	if how != "" {
		v.Config = `{"call":` + how + `,"config":` + v.Config + `}`
	}
	v.Commutative = graph.MayCommute(v.Op) && len(in) > 1
	k.g.Vertices = append(k.g.Vertices, v)
	k.saved = append(k.saved, path.saved+"layers/"+l.saved+"/")
	return []graph.Input{{Vertex: len(k.g.Vertices) - 1}}, nil
}
