package source

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"ckptfs/formats"
	"ckptfs/index/graph"
)

// Tensors is what the file beside a source holds, by name.
type Tensors map[string]*formats.Tensor

// ByName is the Tensors of a layout.
func ByName(all []formats.Tensor) Tensors {
	m := make(Tensors, len(all))
	for i := range all {
		m[all[i].Name] = &all[i]
	}
	return m
}

// ParseExplicit reads a GRAPH.json, as the package comment draws it. With tensors every parameter has to be
// there, with the type and the shape that the source states, by its name or by one of those tied to it, or
// all have to behind a prefix that only one of the file's parts has ("model." in {"model": …, "optimizer":
// …}); the graph names them as the file does. Without (a query, nil) any will do. The error wraps ErrInvalid.
// Memory is at most 64 times p.
func ParseExplicit(p []byte, tensors Tensors) (*graph.Graph, error) {
	r, err := newReader(p)
	if err != nil {
		return nil, err
	}
	e := explicit{reader: r, about: len(p) / 80, tied: map[paramAt][]string{}}
	e.ids, e.inputs = make(map[string]int, e.about), make([]graph.Input, 0, e.about)
	e.g = &graph.Graph{Kind: graph.Explicit, Vertices: make([]graph.Vertex, 0, e.about)}
	version, listed := false, false
	err = r.members("the document", func(key string) error {
		switch key {
		case "v":
			version = true
			v, err := r.int("v", 1<<31)
			if err == nil && v != 1 {
				err = r.errorf("version %d, this program reads 1", v)
			}
			return err
		case "nodes":
			listed = true
			return r.items("nodes", e.node)
		}
		return r.errorf("unknown member %q", key)
	})
	switch {
	case err != nil:
		return nil, err
	case !version || !listed:
		return nil, r.errorf("no %s", map[bool]string{true: `"nodes"`, false: `"v"`}[version])
	}
	if tensors != nil {
		if err := e.bind(tensors); err != nil {
			return nil, err
		}
	}
	return e.g, nil
}

type explicit struct {
	*reader
	ids  map[string]int
	g    *graph.Graph
	tied map[paramAt][]string // further names of parameters

	about int // vertices there may be
	// What the vertices' slices are parts of.
	inputs []graph.Input
	params []graph.Param
	dims   []int64
}

// maxTied bounds the further names of a parameter.
const maxTied = 64

// paramAt is a parameter of a vertex.
type paramAt struct{ vertex, param int }

func (e *explicit) node() error {
	if len(e.g.Vertices) == graph.MaxVertices {
		return tooMany()
	}
	if err := e.open('{', "a node"); err != nil {
		return err
	}
	v := graph.Vertex{Config: "{}"}
	var o object
	for e.next(&o) {
		var err error
		switch o.key {
		case "id":
			v.Name, err = e.string("id")
		case "op":
			v.Op, err = e.string("op")
		case "cfg":
			v.Config, err = e.layerConfig()
		case "comm":
			v.Commutative, err = e.bool("comm")
		case "in":
			v.Inputs, err = e.inputsOf(&v)
		case "params":
			v.Params, err = e.paramsOf()
		default:
			err = e.errorf("unknown member %q of node %q", o.key, v.Name)
		}
		if err != nil {
			return err
		}
	}
	if o.err != nil {
		return o.err
	}
	_, twice := e.ids[v.Name]
	switch {
	case v.Name == "" || v.Op == "":
		return e.errorf("node %d (%q) without id or op", len(e.g.Vertices), v.Name)
	case twice:
		return e.errorf("node %q twice", v.Name)
	case v.Commutative && !graph.MayCommute(v.Op):
		return e.errorf("node %q: the inputs of %s do not commute", v.Name, v.Op)
	}
	slots(v.Params)
	e.ids[v.Name] = len(e.g.Vertices)
	e.g.Vertices = append(e.g.Vertices, v)
	return nil
}

// inputsOf reads the inputs of v.
func (e *explicit) inputsOf(v *graph.Vertex) ([]graph.Input, error) {
	if err := e.open('[', "in"); err != nil {
		return nil, err
	}
	from := len(e.inputs)
	for e.dec.More() {
		s, err := e.string("an input")
		if err != nil {
			return nil, err
		}
		in, ok := e.input(s)
		if !ok {
			return nil, e.errorf("input %q of node %q is no output of a node before it: unknown, out of order, or a cycle", s, v.Name)
		}
		e.inputs = append(e.inputs, in)
	}
	e.close()
	return part(e.inputs, from), nil
}

// paramsOf reads the parameters of a vertex.
func (e *explicit) paramsOf() ([]graph.Param, error) {
	if err := e.open('[', "params"); err != nil {
		return nil, err
	}
	if e.params == nil {
		e.params = make([]graph.Param, 0, e.about)
	}
	from := len(e.params)
	for e.dec.More() {
		p, tied, err := e.param()
		if err != nil {
			return nil, err
		}
		if tied != nil {
			e.tied[paramAt{len(e.g.Vertices), len(e.params) - from}] = tied
		}
		e.params = append(e.params, p)
	}
	e.close()
	return part(e.params, from), nil
}

// part is what was appended to all since it was so long, nil when nothing was.
func part[T any](all []T, from int) []T {
	if from == len(all) {
		return nil
	}
	return all[from:len(all):len(all)]
}

// layerConfig is config of a cfg, of which most were read before.
func (e *explicit) layerConfig() (string, error) {
	raw := e.dec.Object()
	if s, ok := canonical.get(raw); ok {
		e.dec.Skip(len(raw))
		return s, nil
	}
	s, err := e.config("cfg", layer)
	if err == nil {
		canonical.put(raw, s)
	}
	return s, err
}

// canonical remembers what cfgs came to: architectures that are asked about have many in common. All stand
// equally deep, so it depends on their bytes alone.
var canonical remembered

// remembered is a bounded map, from the text of an object to another.
type remembered struct {
	mu    sync.Mutex
	m     map[string]string
	bytes int
}

const (
	maxRemembered = 1 << 20
	maxOfOne      = 4 << 10
)

func (r *remembered) get(raw string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.m[raw]
	return s, ok
}

func (r *remembered) put(raw, s string) {
	if len(raw) > maxOfOne {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes += 64 + len(raw) + len(s); r.m == nil || r.bytes > maxRemembered {
		r.m, r.bytes = map[string]string{}, 64+len(raw)+len(s)
	}
	r.m[strings.Clone(raw)] = s
}

// input finds "id" or "id:k".
func (e *explicit) input(s string) (graph.Input, bool) {
	if i, ok := e.ids[s]; ok {
		return graph.Input{Vertex: i}, true
	}
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 {
		return graph.Input{}, false
	}
	k, err := strconv.ParseUint(s[colon+1:], 10, 16)
	i, ok := e.ids[s[:colon]]
	return graph.Input{Vertex: i, Output: int(k)}, ok && err == nil &&
		strconv.FormatUint(k, 10) == s[colon+1:]
}

// param reads a name or an object.
func (e *explicit) param() (p graph.Param, tied []string, err error) {
	name, ok, err := e.dec.Text()
	if err != nil {
		return p, nil, e.errorf("%v", err)
	}
	shape := false
	if p.Tensor = name; !ok {
		if !e.dec.Take('{') {
			return p, nil, e.errorf("a parameter is neither a name nor an object")
		}
		if err := e.deeper(); err != nil {
			return p, nil, err
		}
		var o object
		for e.next(&o) {
			switch o.key {
			case "name":
				p.Tensor, err = e.string("name")
			case "dtype":
				var s string
				s, err = e.string("dtype")
				if p.DType = formats.DType(s); err == nil && p.DType.Bits() == 0 {
					err = e.errorf("dtype %q is none of safetensors'", s)
				}
			case "shape":
				shape = true
				p.Shape, err = e.shape()
			case "tied":
				tied, err = e.tiedNames()
			default:
				err = e.errorf("unknown member %q of a parameter", o.key)
			}
			if err != nil {
				return p, nil, err
			}
		}
		if o.err != nil {
			return p, nil, o.err
		}
		if shape != (p.DType != "") {
			return p, nil, e.errorf("parameter %q: dtype and shape go together", p.Tensor)
		}
	}
	if p.Tensor == "" || slices.Contains(tied, "") {
		return p, nil, e.errorf("a parameter without name")
	}
	return p, tied, nil
}

func (e *explicit) shape() ([]int64, error) {
	if err := e.open('[', "shape"); err != nil {
		return nil, err
	}
	if e.dims == nil {
		e.dims = make([]int64, 0, e.about)
	}
	from := len(e.dims)
	for e.dec.More() {
		d, err := e.int("a dimension", maxDim)
		if err != nil {
			return nil, err
		}
		e.dims = append(e.dims, d)
	}
	e.close()
	return part(e.dims, from), nil
}

func (e *explicit) tiedNames() (tied []string, err error) {
	err = e.items("tied", func() error {
		name, err := e.string("a tied name")
		if tied = append(tied, name); len(tied) > maxTied {
			return e.errorf("more than %d tied names", maxTied)
		}
		return err
	})
	return tied, err
}
