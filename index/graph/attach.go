package graph

import (
	"slices"
	"strings"

	"ckptfs/formats"
)

// Attach gives vertices without parameters those tensors of the file whose name has the vertex's name as a component, the
// last such: model_weights/dense_1/dense_1/kernel:0 is a parameter kernel:0 of dense_1. All calls of a layer get them.
// They are no part of the identity, so that a query, which has no file, still finds the graph.
func Attach(g *Graph, all []formats.Tensor) {
	layers := map[string][]int{}
	for i := range g.Vertices {
		if v := &g.Vertices[i]; len(v.Params) == 0 && v.Name != "" {
			name, _, _ := strings.Cut(v.Name, callMark)
			layers[name] = append(layers[name], i)
		}
	}
	for i := range all {
		t := &all[i]
		for end := len(t.Name); end > 0; {
			rest := module(t.Name[:end])
			part := strings.TrimLeft(t.Name[len(rest):end], "./")
			if vs := layers[part]; vs != nil && end < len(t.Name) {
				for _, v := range vs {
					g.Vertices[v].Params = append(g.Vertices[v].Params, Param{Tensor: t.Name, Slot: t.Name[end+1:], DType: t.DType,
						Shape: slices.Clone(t.Shape), Attached: true})
				}
				break
			}
			end = len(rest)
		}
	}
	for i := range g.Vertices {
		slices.SortStableFunc(g.Vertices[i].Params, func(a, b Param) int {
			if !a.Attached || !b.Attached {
				return 0
			}
			return strings.Compare(a.Slot, b.Slot)
		})
	}
}
