package graph

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"ckptfs/formats"
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

// ParseExplicit reads a GRAPH.json, as the package comment draws it. With tensors every parameter has to be there, with the type
// and the shape that the source states, by its name or by one of those tied to it, or all have to behind a prefix that only one of the file's parts
// has ("model." in {"model": …, "optimizer": …}); the graph names them as the file does. Without (a query, nil) any will do. The error wraps
// ErrInvalid. Memory is at most 64 times p.
func ParseExplicit(p []byte, tensors Tensors) (*Graph, error) {
	r, err := newReader(p)
	if err != nil {
		return nil, err
	}
	e := explicit{reader: r, ids: map[string]int{}, g: &Graph{Kind: Explicit}, tied: map[paramAt][]string{}}
	version, nodes := false, false
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
			nodes = true
			return r.items("nodes", e.node)
		}
		return r.errorf("unknown member %q", key)
	})
	switch {
	case err != nil:
		return nil, err
	case !version || !nodes:
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
	g    *Graph
	tied map[paramAt][]string // further names of parameters
}

// maxTied bounds the further names of a parameter.
const maxTied = 64

// paramAt is a parameter of a vertex.
type paramAt struct{ vertex, param int }

func (e *explicit) node() error {
	if len(e.g.Vertices) == MaxVertices {
		return tooMany()
	}
	v := Vertex{Config: "{}"}
	err := e.members("a node", func(key string) (err error) {
		switch key {
		case "id":
			v.Name, err = e.string("id")
		case "op":
			v.Op, err = e.string("op")
		case "cfg":
			v.Config, err = e.layerConfig()
		case "comm":
			v.Commutative, err = e.bool("comm")
		case "in":
			err = e.items("in", func() error {
				s, err := e.string("an input")
				if err != nil {
					return err
				}
				in, ok := e.input(s)
				if !ok {
					return e.errorf("input %q of node %q is no output of a node before it: unknown, out of order, or a cycle", s, v.Name)
				}
				v.Inputs = append(v.Inputs, in)
				return nil
			})
		case "params":
			err = e.items("params", func() error {
				p, tied, err := e.param()
				if tied != nil {
					e.tied[paramAt{len(e.g.Vertices), len(v.Params)}] = tied
				}
				v.Params = append(v.Params, p)
				return err
			})
		default:
			err = e.errorf("unknown member %q of node %q", key, v.Name)
		}
		return err
	})
	if err != nil {
		return err
	}
	_, twice := e.ids[v.Name]
	switch {
	case v.Name == "" || v.Op == "":
		return e.errorf("node %d (%q) without id or op", len(e.g.Vertices), v.Name)
	case twice:
		return e.errorf("node %q twice", v.Name)
	case v.Commutative && !MayCommute(v.Op):
		return e.errorf("node %q: the inputs of %s do not commute", v.Name, v.Op)
	}
	slots(v.Params)
	e.ids[v.Name] = len(e.g.Vertices)
	e.g.Vertices = append(e.g.Vertices, v)
	return nil
}

// layerConfig is config of a cfg, of which most were read before.
func (e *explicit) layerConfig() (string, error) {
	raw := e.dec.Object()
	if s, ok := canonical.get(raw); ok {
		e.dec.Skip(raw)
		return s, nil
	}
	s, err := e.config("cfg", layer)
	if err == nil {
		canonical.put(raw, s)
	}
	return s, err
}

// canonical remembers what cfgs came to: architectures that are asked about have many in common. All stand equally deep, so it depends on their bytes alone.
var canonical remembered

// remembered is a bounded map, from the bytes of an object to a text.
type remembered struct {
	mu    sync.Mutex
	m     map[string]string
	bytes int
}

const (
	maxRemembered = 1 << 20
	maxOfOne      = 4 << 10
)

func (r *remembered) get(raw []byte) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.m[string(raw)]
	return s, ok
}

func (r *remembered) put(raw []byte, s string) {
	if len(raw) > maxOfOne {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes += 64 + len(raw) + len(s); r.m == nil || r.bytes > maxRemembered {
		r.m, r.bytes = map[string]string{}, 64+len(raw)+len(s)
	}
	r.m[string(raw)] = s
}

// input finds "id" or "id:k".
func (e *explicit) input(s string) (Input, bool) {
	if i, ok := e.ids[s]; ok {
		return Input{Vertex: i}, true
	}
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 {
		return Input{}, false
	}
	k, err := strconv.ParseUint(s[colon+1:], 10, 16)
	i, ok := e.ids[s[:colon]]
	return Input{Vertex: i, Output: int(k)}, ok && err == nil && strconv.FormatUint(k, 10) == s[colon+1:]
}

// param reads a name or an object.
func (e *explicit) param() (p Param, tied []string, err error) {
	t, err := e.token()
	if err != nil {
		return p, nil, err
	}
	shape := false
	switch t := t.(type) {
	case string:
		p.Tensor = t
	default:
		if d, ok := t.(interface{ String() string }); !ok || d.String() != "{" {
			return p, nil, e.errorf("a parameter is neither a name nor an object")
		}
		if err := e.deeper(); err != nil {
			return p, nil, err
		}
		err := e.restOfObject(func(key string) (err error) {
			switch key {
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
				err = e.items("shape", func() error {
					d, err := e.int("a dimension", maxDim)
					p.Shape = append(p.Shape, d)
					return err
				})
			case "tied":
				err = e.items("tied", func() error {
					name, err := e.string("a tied name")
					if tied = append(tied, name); len(tied) > maxTied {
						return e.errorf("more than %d tied names", maxTied)
					}
					return err
				})
			default:
				err = e.errorf("unknown member %q of a parameter", key)
			}
			return err
		})
		if err != nil {
			return p, nil, err
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
