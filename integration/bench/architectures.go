package main

import (
	"fmt"
	"math/rand/v2"

	"ckptfs/index/graph"
)

// genome is a choice for each block of a search space, the way a network architecture search sees a model.
type genome []uint8

const choices = 12

// space turns genomes into graphs of about a hundred layers.
type space struct {
	genes int
	graph func(genome) *graph.Graph
}

type maker struct{ g *graph.Graph }

func (m *maker) vertex(op, cfg string, in ...int) int {
	v := graph.Vertex{Op: op, Config: cfg, Commutative: op == "Add", Inputs: make([]graph.Input, len(in))}
	for i, n := range in {
		v.Inputs[i].Vertex = n
	}
	m.g.Vertices = append(m.g.Vertices, v)
	return len(m.g.Vertices) - 1
}

// block is two to four layers, with or without a skip around them.
func (m *maker) block(from int, gene uint8) int {
	n := m.vertex("Dense", fmt.Sprintf(`{"units":%d}`, 16<<(gene%4)), from)
	n = m.vertex("Activation", []string{`{"f":"relu"}`, `{"f":"tanh"}`, `{"f":"swish"}`}[gene/4], n)
	if gene%3 == 0 {
		n = m.vertex("Dropout", `{"rate":0.1}`, n)
	}
	if gene%2 == 0 {
		n = m.vertex("Add", "{}", from, n)
	}
	return n
}

var chain = space{33, func(genes genome) *graph.Graph {
	m := maker{&graph.Graph{Kind: graph.Explicit}}
	n := m.vertex("Input", `{"shape":[null,6212]}`)
	for _, gene := range genes {
		n = m.block(n, gene)
	}
	m.vertex("Dense", `{"units":2}`, n)
	return m.g
}}

// branched is a space of 20 branches; the genes left over choose the layers after the join. The branches
// begin differently, or alike.
func branched(alike bool) space {
	return space{30, func(genes genome) *graph.Graph {
		m := maker{&graph.Graph{Kind: graph.Explicit}}
		in := m.vertex("Input", `{"shape":[null,6212]}`)
		var ends []int
		for i, gene := range genes[:20] {
			n := in
			if !alike {
				n = m.vertex("Slice", fmt.Sprintf(`{"at":%d}`, i), in)
			}
			ends = append(ends, m.block(n, gene))
		}
		n := m.vertex("Concat", "{}", ends...)
		for _, gene := range genes[20:] {
			n = m.block(n, gene)
		}
		m.vertex("Dense", `{"units":2}`, n)
		return m.g
	}}
}

func random(r *rand.Rand, n int) genome {
	g := make(genome, n)
	for i := range g {
		g[i] = uint8(r.IntN(choices))
	}
	return g
}

func mutant(r *rand.Rand, g genome) genome {
	g = append(genome(nil), g...)
	i := r.IntN(len(g))
	g[i] = (g[i] + 1 + uint8(r.IntN(choices-1))) % choices
	return g
}

// candidate is a genome with what it was a mutant of: its place among the candidates, -1 for none.
type candidate struct {
	genome
	parent  int
	quality float64
}

// evolve is aged evolution: a population of 100, of which the best of 10 has a mutant that replaces the
// oldest.
func evolve(r *rand.Rand, genes, n int) []candidate {
	const population = 100
	out := make([]candidate, 0, n)
	for range n {
		c := candidate{parent: -1}
		if len(out) < population {
			c.genome = random(r, genes)
		} else {
			c.parent = len(out) - 1 - r.IntN(population)
			for range 9 {
				if i := len(out) - 1 - r.IntN(population); out[i].quality > out[c.parent].quality {
					c.parent = i
				}
			}
			c.genome = mutant(r, out[c.parent].genome)
		}
		for i, x := range c.genome {
			c.quality += float64((int(x)*7+i*3)%choices) * r.Float64()
		}
		out = append(out, c)
	}
	return out
}

// mutate is random genomes and mutants of those.
func mutate(r *rand.Rand, genes, n int) []candidate {
	out := make([]candidate, 0, n)
	for i := range n {
		c := candidate{parent: -1, quality: r.Float64()}
		if i < 10 || r.IntN(10) == 0 {
			c.genome = random(r, genes)
		} else {
			c.parent = r.IntN(len(out))
			c.genome = mutant(r, out[c.parent].genome)
		}
		out = append(out, c)
	}
	return out
}
