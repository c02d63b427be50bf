package source

import (
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/index/graph"
)

// FromTensors guesses a graph of kind Seq or Bag from a file's tensors in the file's order: one vertex for
// each module, with the tensors' names, types and shapes as configuration.
func FromTensors(kind graph.Kind, all []formats.Tensor) (*graph.Graph, error) {
	g := &graph.Graph{Kind: kind}
	at := make(map[string]int)
	for i := range all {
		t := &all[i]
		name := module(t.Name)
		n, ok := at[name]
		if !ok {
			if n = len(g.Vertices); n == graph.MaxVertices {
				return nil, tooMany()
			}
			at[name] = n
			v := graph.Vertex{Name: name, Op: "module", Config: "{}"}
			switch {
			case kind == graph.Bag:
				v.Config = `{"module":` + string(appendJSONString(nil, name)) + `}`
			case n > 0:
				v.Inputs = []graph.Input{{Vertex: n - 1}}
			}
			g.Vertices = append(g.Vertices, v)
		}
		slot := t.Name
		if name != "" {
			slot = t.Name[len(name)+1:]
		}
		v := &g.Vertices[n]
		v.Params = append(v.Params, graph.Param{Tensor: t.Name, Slot: slot, DType: t.DType,
			Shape: slices.Clone(t.Shape)})
	}
	// torch saves a layer's tensors as they were registered, safetensors by width and name
	for i := range g.Vertices {
		slices.SortFunc(g.Vertices[i].Params, func(a, b graph.Param) int {
			return strings.Compare(a.Tensor, b.Tensor)
		})
	}
	return g, g.Check()
}
