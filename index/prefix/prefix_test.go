package prefix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
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

// length is the longest common prefix by Common, by a catalogue of one model, and by brute force, which must agree.
func length(t *testing.T, g, a *graph.Graph) int {
	t.Helper()
	want := brute(g, a)
	pairs, exact := Common(g, a, 0)
	if len(pairs) != want || !exact {
		t.Fatalf("Common: %d pairs, exact %v; brute force %d\n%v\n%v", len(pairs), exact, want, g.Vertices, a.Vertices)
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
		if _, twice := back[p.Stored]; twice || v.Op != u.Op || v.Config != u.Config || v.Commutative != u.Commutative || len(v.Inputs) != len(u.Inputs) {
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
			if used[u] || x.Op != y.Op || x.Config != y.Config || x.Commutative != y.Commutative || len(x.Inputs) != len(y.Inputs) {
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
	var x, y net
	x.of(&all, g)
	y.of(&all, a)
	s := solver{g: &x}
	s.build(&x)
	s.solve(&y, 0, len(g.Vertices))
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
			build(l{"a1", "a"}, l{"a2", "a"}, l{"b", "b", "a1"}, l{"c", "c", "a2"}, l{"d", "d", "b", "c"}), 5, 3},
		{"CE2 twins listed in the other order",
			build(l{"a1", "a"}, l{"a2", "a"}, l{"b", "b", "a1"}, l{"c", "c", "a2"}, l{"d", "d", "b"}, l{"e", "e", "c", "d"}),
			build(l{"a1", "a"}, l{"a2", "a"}, l{"c", "c", "a1"}, l{"b", "b", "a2"}, l{"d", "d", "b"}, l{"e", "e", "c", "d"}), 6, 6},
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
			build(l{"x", "x"}, l{"a", "a", "x"}), build(l{"x", "x"}, l{"a", "a", "x"}, l{"b", "b", "a"}), 2, 2},
		{"an early change in one branch leaves the other",
			build(l{"x", "x"}, l{"a", "a", "x"}, l{"a2", "a", "a"}, l{"b", "b", "x"}, l{"b2", "b", "b"}),
			build(l{"x", "x"}, l{"z", "z", "x"}, l{"z2", "a", "z"}, l{"b", "b", "x"}, l{"b2", "b", "b"}), 3, 3},
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

// scan is the definition: every live model, one after the other.
func scan(live map[uint64]stored, g *graph.Graph, exclude func(uint64) bool) (best Model, n int) {
	for _, s := range live {
		if exclude != nil && exclude(s.Seq) {
			continue
		}
		k := s.lengthTo(g)
		if k > n || k == n && n > 0 && s.better(best) {
			best, n = s.Model, k
		}
	}
	return best, n
}

type stored struct {
	Model
	g    *graph.Graph
	memo map[*graph.Graph]int
}

func (s stored) lengthTo(g *graph.Graph) int {
	n, ok := s.memo[g]
	if !ok {
		n = brute(g, s.g)
		s.memo[g] = n
	}
	return n
}

// A catalogue answers as a scan does, whatever was added, retired, re-rated or excluded.
func TestCatalogueIsScan(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 2))
	for round := range 30 / slow {
		c := New()
		live := map[uint64]stored{}
		var pool []*graph.Graph
		memos := map[*graph.Graph]map[*graph.Graph]int{}
		base := randomGraph(r, 8)
		for range 25 {
			g := base
			if r.IntN(3) == 0 {
				g = randomGraph(r, 1+r.IntN(9))
			}
			for range r.IntN(3) {
				g = mutated(r, g)
			}
			pool = append(pool, permuted(r, g))
			memos[pool[len(pool)-1]] = map[*graph.Graph]int{}
		}
		quality := func() float64 { return []float64{0.5, 0.5, 0.9, math.NaN(), math.Inf(-1), r.Float64()}[r.IntN(6)] }
		for seq := uint64(1); seq <= 300; seq++ {
			switch op := r.IntN(10); {
			case op < 5:
				g := pool[r.IntN(len(pool))]
				m := Model{seq, quality()}
				if err := c.Add(m, g); err != nil {
					t.Fatal(err)
				}
				live[seq] = stored{m, g, memos[g]}
			case op < 9:
				for s := range live {
					delete(live, s)
					if !c.Retire(s) || c.Retire(s) {
						t.Fatal("retire")
					}
					break
				}
			default:
				for s, m := range live {
					m.Quality = quality()
					live[s] = m
					c.SetQuality(s, m.Quality)
					break
				}
			}
			var exclude func(uint64) bool
			if r.IntN(3) == 0 {
				bit := uint64(1) << r.IntN(3)
				exclude = func(s uint64) bool { return s&bit != 0 }
			}
			if r.IntN(40) == 0 {
				c = again(t, c)
			}
			g := pool[r.IntN(len(pool))]
			want, n := scan(live, g, exclude)
			m, ok := c.Find(g, Query{Exclude: exclude})
			if ok != (n > 0) || m.Length != n || m.Model.Seq != want.Seq || ok && !m.Exact {
				t.Fatalf("round %d, %d live: found %+v, want %+v of length %d", round, len(live), m, want, n)
			}
			if ok {
				checkPairs(t, g, live[m.Model.Seq].g, m.Pairs)
			}
			if models, _ := c.Len(); models != len(live) {
				t.Fatalf("%d models, want %d", models, len(live))
			}
		}
	}
}

// In a catalogue that is large enough for bitmaps, too.
func TestLargeCatalogueIsScan(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 6))
	for _, branches := range []bool{false, true} {
		c := New()
		live := map[uint64]stored{}
		make := func() *graph.Graph { return randomGraph(r, 8) }
		if branches { // each vertex after the root is one of four, so that architectures have much in common in many ways
			make = func() *graph.Graph {
				g := build(l{"x", "x"})
				for i := range 7 {
					g.Vertices = append(g.Vertices, graph.Vertex{Op: fmt.Sprint(i, r.IntN(4)), Config: "{}", Inputs: []graph.Input{{Vertex: r.IntN(1 + i/6)}}})
				}
				return g
			}
		}
		for seq := range uint64(4000 / slow) {
			g, m := make(), Model{seq, float64(r.IntN(50))}
			if err := c.Add(m, g); err != nil {
				t.Fatal(err)
			}
			live[seq] = stored{m, g, map[*graph.Graph]int{}}
			if seq%5 == 4 {
				old := uint64(r.IntN(int(seq)))
				if _, ok := live[old]; ok != c.Retire(old) {
					t.Fatal("retire")
				}
				delete(live, old)
			}
		}
		bitmaps := 0
		for _, class := range c.kinds[graph.Explicit].classes {
			if class.post.words != nil {
				bitmaps++
			}
		}
		if bitmaps < 10 {
			t.Errorf("%d bitmaps", bitmaps)
		}
		for i := range 60 / slow {
			if i == 30/slow {
				c = again(t, c)
			}
			g := make()
			want, n := scan(live, g, nil)
			m, ok := c.Find(g, Query{})
			if ok != (n > 0) || m.Length != n || m.Model.Seq != want.Seq || ok && !m.Exact {
				t.Fatalf("found %+v, want %+v of length %d", m, want, n)
			}
			if ok {
				checkPairs(t, g, live[m.Model.Seq].g, m.Pairs)
			}
		}
	}
}

func TestPosting(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 7))
	for range 50 {
		var p posting
		have := map[uint32]bool{}
		high := 1 + r.IntN(20_000)
		for range r.IntN(3000) {
			if a := uint32(r.IntN(high)); !have[a] {
				have[a] = true
				p.add(a)
			}
			if r.IntN(500) == 0 {
				high += r.IntN(200_000)
			}
		}
		check := func() {
			t.Helper()
			all := p.all(nil)
			if p.n != len(have) || len(all) != len(have) || len(p.words) > 2*p.n {
				t.Fatalf("%d, all %d of %d, %d words", p.n, len(all), len(have), len(p.words))
			}
			for _, a := range append(all, p.latest(4, nil)...) {
				if !have[a] {
					t.Fatalf("%d is not in it", a)
				}
			}
			for first := uint32(0); p.words != nil && first < 300_000/64; first += block {
				var buf [block]uint64
				for k, w := range p.block(first, &buf) {
					for i := range uint32(64) {
						if w>>i&1 != 0 != have[(first+uint32(k))*64+i] {
							t.Fatalf("bit %d of word %d", i, first+uint32(k))
						}
					}
				}
			}
		}
		check()
		for a := range have {
			if r.IntN(3) == 0 {
				delete(have, a)
			}
		}
		p.keep(func(a uint32) bool { return have[a] })
		check()
	}
}

// A catalogue from which everything was retired holds no keys.
func TestSweep(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 3))
	c := New()
	for seq := range uint64(500) {
		if err := c.Add(Model{Seq: seq}, randomGraph(r, 12)); err != nil {
			t.Fatal(err)
		}
	}
	for seq := range uint64(500) {
		c.Retire(seq)
	}
	x := c.kinds[graph.Explicit]
	if models, archs := c.Len(); models != 0 || archs != 0 || x.dead > 20 {
		t.Errorf("%d models, %d architectures, %d dead left", models, archs, x.dead)
	}
	x.sweep()
	if x.dict.used != 0 || len(x.unused) != len(x.classes) || len(x.byShape) != 0 {
		t.Errorf("left: %d keys, %d of %d classes, %d shapes", x.dict.used, len(x.classes)-len(x.unused), len(x.classes), len(x.byShape))
	}
}

// Two keys that collide make a graph look longer than it is. The answer is right all the same.
func TestCollision(t *testing.T) {
	c := New()
	short, long := build(l{"x", "x"}, l{"y", "y", "x"}), build(l{"x", "x"}, l{"y", "y", "x"}, l{"z", "z", "y"})
	for seq, g := range []*graph.Graph{short, long} {
		if err := c.Add(Model{Seq: uint64(seq)}, g); err != nil {
			t.Fatal(err)
		}
	}
	q := build(l{"x", "x"}, l{"y", "y", "x"}, l{"z", "z", "y"}, l{"x2", "x", "x"}, l{"z2", "z", "x"})
	x := c.kinds[graph.Explicit]
	for c := range x.classes {
		if x.classes[c].folded {
			x.unfold(uint32(c))
		}
	}
	var r keyring
	r.net.of(&c.configs, q)
	c.keys(&r)
	for _, k := range r.trees[3:] {
		x.dict.set(k, x.dict.find(r.trees[0]))
	}
	m, ok := c.Find(q, Query{})
	if !ok || m.Model.Seq != 1 || m.Length != 3 || !m.Exact {
		t.Errorf("found %+v", m)
	}
	checkPairs(t, q, long, m.Pairs)
}

// Queries run beside changes. Whatever they find was there at some time, and is what it is said to be.
func TestConcurrent(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 5))
	var pool []*graph.Graph
	for range 20 {
		pool = append(pool, randomGraph(r, 10))
	}
	c := New()
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := range 300 {
				g := pool[(i*7+w)%len(pool)]
				m, ok := c.Find(g, Query{Pin: true})
				if !ok {
					continue
				}
				checkPairs(t, g, pool[m.Model.Seq%20], m.Pairs)
				if !c.Pinned(m.Model.Seq) {
					t.Error("not pinned")
				}
				m.Release()
			}
		})
	}
	for seq := uint64(1); seq <= 300; seq++ {
		if err := c.Add(Model{Seq: seq, Quality: float64(seq % 7)}, pool[seq%20]); err != nil {
			t.Fatal(err)
		}
		if seq > 30 {
			c.Retire(seq - 30)
		}
	}
	wg.Wait()
}

func TestPin(t *testing.T) {
	c := New()
	g := build(l{"x", "x"})
	if err := c.Add(Model{Seq: 7}, g); err != nil {
		t.Fatal(err)
	}
	m, ok := c.Find(g, Query{Pin: true})
	if !ok || !c.Pinned(7) {
		t.Fatal("not pinned")
	}
	c.Retire(7)
	if _, ok := c.Find(g, Query{}); ok || !c.Pinned(7) {
		t.Error("retired: found, or not pinned")
	}
	m.Release()
	m.Release()
	if c.Pinned(7) {
		t.Error("still pinned")
	}
	if err := c.Add(Model{Seq: 7}, g); err != nil {
		t.Error(err)
	}
	if err := c.Add(Model{Seq: 7}, g); err == nil {
		t.Error("added twice")
	}
}

// A search among many twins ends at its budget with a valid prefix, and says so.
func TestBudget(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 4))
	edges := func() *graph.Graph { // n equal sources, one vertex an edge: maximum common edge subgraph
		g := &graph.Graph{Kind: graph.Explicit}
		for range 14 {
			g.Vertices = append(g.Vertices, graph.Vertex{Op: "s", Config: "{}"})
		}
		for range 30 {
			g.Vertices = append(g.Vertices, graph.Vertex{Op: "e", Config: "{}", Inputs: []graph.Input{{Vertex: r.IntN(14)}, {Vertex: r.IntN(14)}}})
		}
		return g
	}
	g, a := edges(), edges()
	pairs, exact := Common(g, a, 300)
	if exact || len(pairs) < 14 {
		t.Errorf("%d pairs, exact %v", len(pairs), exact)
	}
	checkPairs(t, g, a, pairs)
	c := New()
	if err := c.Add(Model{Seq: 1}, a); err != nil {
		t.Fatal(err)
	}
	m, _ := c.Find(g, Query{Budget: 300})
	if m.Exact || m.Length != len(pairs) {
		t.Errorf("found %d, exact %v", m.Length, m.Exact)
	}
	if m, _ := c.Find(a, Query{}); !m.Exact || m.Length != len(a.Vertices) {
		t.Errorf("itself: %d of %d, exact %v", m.Length, len(a.Vertices), m.Exact)
	}
}

func TestKindsDoNotCompete(t *testing.T) {
	c := New()
	g := build(l{"x", "x"})
	if err := c.Add(Model{Seq: 1}, g); err != nil {
		t.Fatal(err)
	}
	q := *g
	q.Kind = graph.Bag
	if m, ok := c.Find(&q, Query{}); ok {
		t.Errorf("found %+v", m)
	}
}

func TestTensors(t *testing.T) {
	g, a := build(l{"x", "x"}, l{"y", "y", "x"}, l{"y2", "y", "y"}), build(l{"x", "x"}, l{"y", "y", "x"}, l{"y2", "y", "y"})
	param := func(s string) []graph.Param { return []graph.Param{{Tensor: s + ".w", Slot: "w"}} }
	g.Vertices[1].Params, g.Vertices[2].Params = param("n"), param("n")
	a.Vertices[1].Params, a.Vertices[2].Params = param("s1"), param("s2")
	pairs, _ := Common(g, a, 0)
	if got := fmt.Sprint(Tensors(g, a, pairs)); got != "[{n.w s1.w}]" {
		t.Error(got)
	}
}
