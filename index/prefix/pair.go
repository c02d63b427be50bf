package prefix

import (
	"slices"

	"ckptfs/index/graph"
)

// Common is the longest common prefix of two graphs. It visits at most budget nodes of the search among twins
// (0: DefaultBudget), which look at a bounded part of the graphs, and reports whether that sufficed to know
// that there is no longer one. Graphs of different kinds have none.
func Common(g, a *graph.Graph, budget int) (pairs []Pair, exact bool) {
	if g.Kind != a.Kind || g.Check() != nil || a.Check() != nil {
		return nil, true
	}
	if budget == 0 {
		budget = DefaultBudget
	}
	all := newConfigs()
	var x, y intGraph
	x.of(&all, g)
	y.of(&all, a)
	s := solver{mapping: mapping{g: &x}}
	s.build(&x)
	exact = s.solve(&y, limits{nodes: budget, work: defaultWork}, -1)
	for v, u := range s.best {
		if u >= 0 {
			pairs = append(pairs, Pair{v, int(u)})
		}
	}
	return pairs, exact
}

// Tensor says which tensor of the stored model is to be read for which of the new one.
type Tensor struct{ New, Stored string }

// Tensors lists what a transfer along pairs reads, each new tensor once: of a layer that is called twice, by
// its first call. The graphs are those that the pairs are of.
func Tensors(g, a *graph.Graph, pairs []Pair) []Tensor {
	var out []Tensor
	seen := map[string]bool{}
	for _, p := range pairs {
		to, from := g.Vertices[p.New].Params, a.Vertices[p.Stored].Params
		for i := range to {
			j := i // the parameters that identity is made of agree one by one
			if to[i].Attached || i >= len(from) || from[i].Attached {
				j = slices.IndexFunc(from, func(f graph.Param) bool {
					return f.Attached && f.Slot == to[i].Slot
				})
			}
			if j >= 0 && !seen[to[i].Tensor] {
				seen[to[i].Tensor] = true
				out = append(out, Tensor{to[i].Tensor, from[j].Tensor})
			}
		}
	}
	return out
}
