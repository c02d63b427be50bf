package prefix

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"ckptfs/index/graph"
)

// BenchmarkFind asks 20,000 architectures of 40 layers for mutants of them: chains, which share their
// beginnings, and branches from one root, of which bitmaps are read; and small ones full of twins.
func BenchmarkFind(b *testing.B) {
	r := rand.New(rand.NewPCG(8, 9))
	chosen := func(inputOf func(i int) int) func() *graph.Graph {
		return func() *graph.Graph {
			g := build(l{"x", "x"})
			for i := range 39 {
				g.Vertices = append(g.Vertices, graph.Vertex{Op: fmt.Sprint(i, r.IntN(4)), Config: "{}",
					Inputs: []graph.Input{{Vertex: inputOf(i)}}})
			}
			return g
		}
	}
	for _, shape := range []struct {
		name string
		make func() *graph.Graph
	}{
		{"chains", chosen(func(i int) int { return i })},
		{"branches", chosen(func(int) int { return 0 })},
		{"twins", func() *graph.Graph { return randomGraph(r, 12) }},
	} {
		b.Run(shape.name, func(b *testing.B) {
			c := New()
			var asked []*graph.Graph
			for seq := range uint64(20_000) {
				g := shape.make()
				if err := c.Add(Model{Seq: seq}, g); err != nil {
					b.Fatal(err)
				}
				if seq%200 == 0 {
					asked = append(asked, mutated(r, mutated(r, g)))
				}
			}
			for i := 0; b.Loop(); i++ {
				c.Find(asked[i%len(asked)], Query{})
			}
		})
	}
}
