package prefix

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/index/graph"
)

// genome is a choice for each block of a search space, the way a network architecture search sees a model.
type genome []uint8

const choices = 12

// space turns genomes into graphs of about a hundred vertices.
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

// block is two or three layers, with or without a skip around them.
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

var spaces = map[string]space{
	"chain": {33, func(genes genome) *graph.Graph {
		m := maker{&graph.Graph{Kind: graph.Explicit}}
		n := m.vertex("Input", `{"shape":[null,6212]}`)
		for _, gene := range genes {
			n = m.block(n, gene)
		}
		m.vertex("Dense", `{"units":2}`, n)
		return m.g
	}},
	"branches": {30, func(genes genome) *graph.Graph { // 20 branches; the genes left over choose the layers after the join
		m := maker{&graph.Graph{Kind: graph.Explicit}}
		in := m.vertex("Input", `{"shape":[null,6212]}`)
		var ends []int
		for i, gene := range genes[:20] {
			n := m.vertex("Slice", fmt.Sprintf(`{"at":%d}`, i), in)
			ends = append(ends, m.block(n, gene))
		}
		n := m.vertex("Concat", "{}", ends...)
		for _, gene := range genes[20:] {
			n = m.block(n, gene)
		}
		m.vertex("Dense", `{"units":2}`, n)
		return m.g
	}},
	"twins": {30, func(genes genome) *graph.Graph { // as branches, but the branches begin alike
		m := maker{&graph.Graph{Kind: graph.Explicit}}
		in := m.vertex("Input", `{"shape":[null,6212]}`)
		var ends []int
		for _, gene := range genes[:20] {
			ends = append(ends, m.block(in, gene))
		}
		n := m.vertex("Concat", "{}", ends...)
		for _, gene := range genes[20:] {
			n = m.block(n, gene)
		}
		m.vertex("Dense", `{"units":2}`, n)
		return m.g
	}},
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

// evolve is aged evolution: a population of 100, of which the best of 10 has a mutant that replaces the oldest.
func evolve(r *rand.Rand, genes, n int) []genome {
	type one struct {
		g genome
		q float64
	}
	population := make([]one, 0, n)
	out := make([]genome, 0, n)
	fitness := func(g genome) float64 {
		q := 0.0
		for i, x := range g {
			q += float64((int(x)*7+i*3)%choices) * r.Float64()
		}
		return q
	}
	for range n {
		var g genome
		if len(out) < 100 {
			g = random(r, genes)
		} else {
			best := population[len(population)-1-r.IntN(100)]
			for range 9 {
				if c := population[len(population)-1-r.IntN(100)]; c.q > best.q {
					best = c
				}
			}
			g = mutant(r, best.g)
		}
		out = append(out, g)
		population = append(population, one{g, fitness(g)})
	}
	return out
}

// sample is random genomes and mutants of those.
func sample(r *rand.Rand, genes, n int) []genome {
	out := make([]genome, 0, n)
	for i := range n {
		if i < 10 || r.IntN(10) == 0 {
			out = append(out, random(r, genes))
		} else {
			out = append(out, mutant(r, out[r.IntN(len(out))]))
		}
	}
	return out
}

// workload is a catalogue and graphs that are not in it.
func workload(name string, n, queries int) (stored, asked []*graph.Graph) {
	r := rand.New(rand.NewPCG(uint64(n), 7))
	shape, how, _ := strings.Cut(name, "/")
	s := spaces[shape]
	make := evolve
	if how == "random" {
		make = sample
	}
	all := make(r, s.genes, n)
	for _, g := range all {
		stored = append(stored, s.graph(g))
	}
	for range queries {
		asked = append(asked, s.graph(mutant(r, all[n-1-r.IntN(min(n, 1000))])))
	}
	return stored, asked
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cpu is the time that this thread ran: on a machine that others use, wall time says little.
func cpu() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var workloads = []string{"chain/evolved", "chain/random", "branches/evolved", "branches/random", "twins/evolved"}

var sizes = []int{1_000, 10_000, 100_000}

func BenchmarkFind(b *testing.B) {
	for _, name := range workloads {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				runtime.LockOSThread()
				stored, asked := workload(name, n, 1000)
				before := heap()
				c := New()
				start := cpu()
				for i, g := range stored {
					if err := c.Add(Model{Seq: uint64(i), Quality: float64(i*7919%1000) / 1000}, g); err != nil {
						b.Fatal(err)
					}
				}
				insert := cpu() - start
				memory := heap() - before
				var length, inexact, vertices int
				start = cpu()
				i := 0
				for b.Loop() {
					g := asked[i%len(asked)]
					m, _ := c.Find(g, Query{})
					length += m.Length
					vertices += len(g.Vertices)
					if !m.Exact {
						inexact++
					}
					i++
				}
				b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(i), "cpu-ns/op")
				b.ReportMetric(float64(length)/float64(i), "length")
				b.ReportMetric(float64(vertices)/float64(i), "vertices")
				b.ReportMetric(float64(inexact)/float64(i), "inexact")
				b.ReportMetric(float64(memory)/float64(n), "B/model")
				b.ReportMetric(float64(insert.Nanoseconds())/float64(n), "cpu-ns/insert")
				runtime.KeepAlive(stored)
			})
		}
	}
}

// BenchmarkScan is the paper's way: every model, in a compact form; its vertices' hashes looked up among those of the
// query. It finds what Find does where there are no twins.
func BenchmarkScan(b *testing.B) {
	for _, name := range workloads {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				runtime.LockOSThread()
				stored, asked := workload(name, n, 100)
				keys := make([][]uint64, n)
				for i, g := range stored {
					keys[i] = graph.Keys(graph.Trees(g, graph.Configs(g)))
				}
				stored = nil
				var w weights
				start := cpu()
				i := 0
				for b.Loop() {
					g := asked[i%len(asked)]
					w.reset(len(g.Vertices))
					for _, k := range graph.Keys(graph.Trees(g, graph.Configs(g))) {
						w.add(k, 1)
					}
					best := 0
					for _, ks := range keys {
						length := 0
						for _, k := range ks {
							length += w.get(k)
						}
						best = max(best, length)
					}
					i++
				}
				b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(i), "cpu-ns/op")
			})
		}
	}
}
