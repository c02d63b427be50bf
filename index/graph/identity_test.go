package graph

import (
	"fmt"
	"slices"
)

// identities numbers what vertices are: two have one number exactly if they are one layer, with the same inputs.
type identities map[string]int

// layers are the numbers of g's vertices by themselves, trees with all that leads to them.
func (o identities) layers(g *Graph) (layers []int) {
	for i := range g.Vertices {
		v := &g.Vertices[i]
		s := fmt.Sprintf("%q %q %v", v.Op, v.Config, v.Commutative)
		for _, p := range v.Params {
			if !p.Attached {
				s += fmt.Sprintf(" %q %q %v", p.Slot, p.DType, p.Shape)
			}
		}
		layers = append(layers, o.number(s))
	}
	return layers
}

func (o identities) trees(g *Graph) (trees []int) {
	for i, layer := range o.layers(g) {
		v := &g.Vertices[i]
		var in []string
		for _, e := range v.Inputs {
			in = append(in, fmt.Sprintf("%d:%d", trees[e.Vertex], e.Output))
		}
		if v.Commutative {
			slices.Sort(in)
		}
		trees = append(trees, o.number(fmt.Sprint(layer, in)))
	}
	return trees
}

func (o identities) number(s string) int {
	if _, ok := o[s]; !ok {
		o[s] = len(o)
	}
	return o[s]
}
