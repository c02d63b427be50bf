// Package graphtest has what tests of graphs and of their sources share.
package graphtest

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"ckptfs/index/graph"
)

// Identities numbers what vertices are: two have one number exactly if they are one layer, with the same
// inputs.
type Identities map[string]int

// Layers are the numbers of g's vertices by themselves, those of Trees with all that leads to them.
func (o Identities) Layers(g *graph.Graph) (layers []int) {
	for i := range g.Vertices {
		v := &g.Vertices[i]
		s := fmt.Sprintf("%q %q %v", v.Op, v.Config, v.Commutative)
		for _, p := range v.Params {
			if !p.Attached {
				s += fmt.Sprintf(" %q %q %v", p.Slot, p.DType, p.Shape)
			}
		}
		layers = append(layers, o.Number(s))
	}
	return layers
}

func (o Identities) Trees(g *graph.Graph) (trees []int) {
	for i, layer := range o.Layers(g) {
		v := &g.Vertices[i]
		var in []string
		for _, e := range v.Inputs {
			in = append(in, fmt.Sprintf("%d:%d", trees[e.Vertex], e.Output))
		}
		if v.Commutative {
			slices.Sort(in)
		}
		trees = append(trees, o.Number(fmt.Sprint(layer, in)))
	}
	return trees
}

func (o Identities) Number(s string) int {
	if _, ok := o[s]; !ok {
		o[s] = len(o)
	}
	return o[s]
}

// Bounded holds that f allocates no more than perByte for each byte of p, and 1 MiB, garbage and what the
// test itself takes included.
func Bounded(t *testing.T, perByte int, p []byte, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > uint64(8*perByte*len(p)+1<<20) {
		t.Errorf("%d bytes allocated for %d", got, len(p))
	}
}
