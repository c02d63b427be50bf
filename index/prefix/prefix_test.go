package prefix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/index/graph"
)

// build makes a graph of lines "name op in in…"; an op that ends in + commutes.
func build(lines ...[]string) *graph.Graph {
	g := &graph.Graph{Kind: graph.Explicit}
	at := map[string]int{}
	for _, l := range lines {
		v := graph.Vertex{Name: l[0], Op: l[1], Config: "{}", Commutative: l[1] == "Add"}
		for _, in := range l[2:] {
			v.Inputs = append(v.Inputs, graph.Input{Vertex: at[in]})
		}
		at[l[0]] = len(g.Vertices)
		g.Vertices = append(g.Vertices, v)
	}
	return g
}

type l = []string

// length is the longest common prefix by Common, by a catalogue of one model, and by brute force, which must
// agree.
func length(t *testing.T, g, a *graph.Graph) int {
	t.Helper()
	want := brute(g, a)
	pairs, exact := Common(g, a, 0)
	if len(pairs) != want || !exact {
		t.Fatalf("Common: %d pairs, exact %v; brute force %d\n%v\n%v", len(pairs), exact, want, g.Vertices,
			a.Vertices)
	}
	checkPairs(t, g, a, pairs)
	c := New()
	if err := c.Add(Model{Seq: 1}, a); err != nil {
		t.Fatal(err)
	}
	m, ok := c.Find(g, Query{})
	if m.Length != want || ok != (want > 0) || ok && !m.Exact {
		t.Fatalf("Find: %+v, %v; brute force %d", m, ok, want)
	}
	checkPairs(t, g, a, m.Pairs)
	return want
}

// checkPairs holds that pairs are a common prefix, by the definition.
func checkPairs(t *testing.T, g, a *graph.Graph, pairs []Pair) {
	t.Helper()
	phi, back := map[int]int{}, map[int]int{}
	for _, p := range pairs {
		v, u := &g.Vertices[p.New], &a.Vertices[p.Stored]
		if _, twice := back[p.Stored]; twice || v.Op != u.Op || v.Config != u.Config ||
			v.Commutative != u.Commutative || len(v.Inputs) != len(u.Inputs) {
			t.Fatalf("pair %v: not injective, or unlike", p)
		}
		var got []graph.Input
		for _, in := range v.Inputs {
			w, ok := phi[in.Vertex]
			if !ok {
				t.Fatalf("pair %v: an input is not in the prefix", p)
			}
			got = append(got, graph.Input{Vertex: w, Output: in.Output})
		}
		want := slices.Clone(u.Inputs)
		if v.Commutative {
			byVertex := func(a, b graph.Input) int { return (a.Vertex-b.Vertex)<<16 + a.Output - b.Output }
			slices.SortFunc(got, byVertex)
			slices.SortFunc(want, byVertex)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("pair %v: inputs %v, want %v", p, got, want)
		}
		phi[p.New], back[p.Stored] = p.Stored, p.New
	}
}

// brute tries every map.
func brute(g, a *graph.Graph) int {
	phi := make([]int, len(g.Vertices))
	used := make([]bool, len(a.Vertices))
	best := 0
	var try func(v, n int)
	try = func(v, n int) {
		if n+len(phi)-v <= best {
			return
		}
		if v == len(phi) {
			best = n
			return
		}
		x := &g.Vertices[v]
	next:
		for u := range a.Vertices {
			y := &a.Vertices[u]
			if used[u] || x.Op != y.Op || x.Config != y.Config || x.Commutative != y.Commutative ||
				len(x.Inputs) != len(y.Inputs) {
				continue
			}
			var ins [8][2]graph.Input
			for i, in := range x.Inputs {
				if phi[in.Vertex] < 0 {
					continue next
				}
				ins[i] = [2]graph.Input{{Vertex: phi[in.Vertex], Output: in.Output}, y.Inputs[i]}
			}
			if x.Commutative {
				for _, p := range ins[:len(x.Inputs)] {
					have, want := 0, 0
					for _, q := range ins[:len(x.Inputs)] {
						if q[0] == p[0] {
							have++
						}
						if q[1] == p[0] {
							want++
						}
					}
					if have != want {
						continue next
					}
				}
			} else {
				for _, p := range ins[:len(x.Inputs)] {
					if p[0] != p[1] {
						continue next
					}
				}
			}
			phi[v], used[u] = u, true
			try(v+1, n+1)
			used[u] = false
		}
		phi[v] = -1
		try(v+1, n)
	}
	try(0, 0)
	return best
}

// bag is the number of trees that two graphs share.
func bag(g, a *graph.Graph) int {
	all := newConfigs()
	var x, y intGraph
	x.of(&all, g)
	y.of(&all, a)
	s := solver{mapping: mapping{g: &x}}
	s.build(&x)
	s.solve(&y, limits{}, len(g.Vertices))
	return s.ceil
}

// The counter-examples to equality of hashes, by their names in the specification.
func TestCounterExamples(t *testing.T) {
	for _, c := range []struct {
		name      string
		g, a      *graph.Graph
		bag, want int
	}{
		{"CE1 one a feeds b and c, or two equal a do",
			build(l{"a1", "a"}, l{"a2", "a"}, l{"b", "b", "a1"}, l{"c", "c", "a1"}, l{"d", "d", "b", "c"}),
			build(l{"a1", "a"}, l{"a2", "a"}, l{"b", "b", "a1"}, l{"c", "c", "a2"}, l{"d", "d", "b", "c"}), 5,
			3},
		{"CE2 twins listed in the other order",
			build(l{"a1", "a"}, l{"a2", "a"}, l{"b", "b", "a1"}, l{"c", "c", "a2"}, l{"d", "d", "b"},
				l{"e", "e", "c", "d"}),
			build(l{"a1", "a"}, l{"a2", "a"}, l{"c", "c", "a1"}, l{"b", "b", "a2"}, l{"d", "d", "b"},
				l{"e", "e", "c", "d"}), 6, 6},
		{"CE3 children of twins spread differently",
			build(l{"a1", "a"}, l{"a2", "a"}, l{"b", "b", "a1"}, l{"c", "c", "a1"}, l{"d", "d", "a2"}),
			build(l{"a1", "a"}, l{"a2", "a"}, l{"b", "b", "a1"}, l{"c", "c", "a2"}, l{"d", "d", "a2"}), 5, 4},
		{"CE4 Concat of the same in the other order",
			build(l{"x", "x"}, l{"a", "a", "x"}, l{"b", "b", "x"}, l{"c", "Concat", "a", "b"}),
			build(l{"x", "x"}, l{"a", "a", "x"}, l{"b", "b", "x"}, l{"c", "Concat", "b", "a"}), 3, 3},
		{"CE4 Add of the same in the other order",
			build(l{"x", "x"}, l{"a", "a", "x"}, l{"b", "b", "x"}, l{"c", "Add", "a", "b"}),
			build(l{"x", "x"}, l{"a", "a", "x"}, l{"b", "b", "x"}, l{"c", "Add", "b", "a"}), 4, 4},
		{"CE5 Add(x, x)",
			build(l{"x", "x"}, l{"s", "Add", "x", "x"}, l{"y", "y", "s"}),
			build(l{"x", "x"}, l{"s", "Add", "x", "x"}, l{"y", "y", "s"}), 3, 3},
		{"CE5 Add(x, x) is not Add(x, y)",
			build(l{"x", "x"}, l{"y", "x"}, l{"s", "Add", "x", "x"}),
			build(l{"x", "x"}, l{"y", "x"}, l{"s", "Add", "x", "y"}), 3, 2},
		{"an input of another shape is no common root",
			build(l{"x", "x"}, l{"a", "a", "x"}), build(l{"x", "y"}, l{"a", "a", "x"}), 0, 0},
		{"a graph within a longer one",
			build(l{"x", "x"}, l{"a", "a", "x"}), build(l{"x", "x"}, l{"a", "a", "x"}, l{"b", "b", "a"}), 2,
			2},
		{"an early change in one branch leaves the other",
			build(l{"x", "x"}, l{"a", "a", "x"}, l{"a2", "a", "a"}, l{"b", "b", "x"}, l{"b2", "b", "b"}),
			build(l{"x", "x"}, l{"z", "z", "x"}, l{"z2", "a", "z"}, l{"b", "b", "x"}, l{"b2", "b", "b"}), 3,
			3},
	} {
		if n := bag(c.g, c.a); n != c.bag {
			t.Errorf("%s: bag of hashes %d, want %d", c.name, n, c.bag)
		}
		if n := length(t, c.g, c.a); n != c.want {
			t.Errorf("%s: %d, want %d", c.name, n, c.want)
		}
		if n := length(t, c.a, c.g); n != c.want {
			t.Errorf("%s, exchanged: %d, want %d", c.name, n, c.want)
		}
	}
}

// randomGraph has few ops, so that twins abound.
func randomGraph(r *rand.Rand, n int) *graph.Graph {
	g := &graph.Graph{Kind: graph.Explicit}
	ops := []string{"a", "b", "Add", "Concat"}
	for i := range n {
		v := graph.Vertex{Op: ops[r.IntN(6)/5], Config: "{}"}
		if i > 0 && r.IntN(5) > 0 {
			for range 1 + r.IntN(3)/2 {
				in := graph.Input{Vertex: r.IntN(i)}
				if r.IntN(12) == 0 {
					in.Output = 1
				}
				v.Inputs = append(v.Inputs, in)
			}
			if len(v.Inputs) > 1 || r.IntN(8) == 0 {
				v.Op = ops[2+r.IntN(2)]
				v.Commutative = v.Op == "Add"
			}
		}
		g.Vertices = append(g.Vertices, v)
	}
	return g
}

// permuted is the same graph in another topological order.
func permuted(r *rand.Rand, g *graph.Graph) *graph.Graph {
	out := &graph.Graph{Kind: g.Kind}
	to := make([]int, len(g.Vertices))
	for i := range to {
		to[i] = -1
	}
	for len(out.Vertices) < len(to) {
		i := r.IntN(len(to))
		ready := to[i] < 0
		for _, in := range g.Vertices[i].Inputs {
			ready = ready && to[in.Vertex] >= 0
		}
		if !ready {
			continue
		}
		to[i] = len(out.Vertices)
		v := g.Vertices[i]
		v.Inputs = slices.Clone(v.Inputs)
		for j := range v.Inputs {
			v.Inputs[j].Vertex = to[v.Inputs[j].Vertex]
		}
		if v.Commutative {
			r.Shuffle(len(v.Inputs), func(i, j int) { v.Inputs[i], v.Inputs[j] = v.Inputs[j], v.Inputs[i] })
		}
		out.Vertices = append(out.Vertices, v)
	}
	return out
}

// mutated changes the op of a vertex, or what feeds it.
func mutated(r *rand.Rand, g *graph.Graph) *graph.Graph {
	out := &graph.Graph{Kind: g.Kind, Vertices: slices.Clone(g.Vertices)}
	v := &out.Vertices[r.IntN(len(out.Vertices))]
	if len(v.Inputs) > 0 && r.IntN(2) == 0 {
		v.Inputs = slices.Clone(v.Inputs)
		i := r.IntN(len(v.Inputs))
		v.Inputs[i].Vertex = r.IntN(v.Inputs[i].Vertex + 1)
	} else {
		v.Op, v.Commutative = "c", false
	}
	return out
}

func TestBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	lengths := map[int]int{}
	ambiguous := 0
	for range 20_000 / slow {
		g := randomGraph(r, 1+r.IntN(7))
		a := randomGraph(r, 1+r.IntN(7))
		switch r.IntN(4) {
		case 0:
			a = permuted(r, g)
		case 1, 2:
			a = permuted(r, mutated(r, g))
		}
		n := length(t, g, a)
		lengths[n]++
		if b := bag(g, a); b < n {
			t.Fatalf("bag of hashes %d < %d", b, n)
		} else if b > n {
			ambiguous++
		}
	}
	if len(lengths) < 8 || ambiguous < 100/slow {
		t.Errorf("poor pairs: lengths %v, %d where hashes say too much", lengths, ambiguous)
	}
}

func TestTensors(t *testing.T) {
	g, a := build(l{"x", "x"}, l{"y", "y", "x"}, l{"y2", "y", "y"}),
		build(l{"x", "x"}, l{"y", "y", "x"}, l{"y2", "y", "y"})
	param := func(s string) []graph.Param { return []graph.Param{{Tensor: s + ".w", Slot: "w"}} }
	g.Vertices[1].Params, g.Vertices[2].Params = param("n"), param("n")
	a.Vertices[1].Params, a.Vertices[2].Params = param("s1"), param("s2")
	pairs, _ := Common(g, a, 0)
	if got := fmt.Sprint(Tensors(g, a, pairs)); got != "[{n.w s1.w}]" {
		t.Error(got)
	}
}
