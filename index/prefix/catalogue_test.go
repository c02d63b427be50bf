package prefix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"ckptfs/index/graph"
)

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
		quality := func() float64 {
			return []float64{0.5, 0.5, 0.9, math.NaN(), math.Inf(-1),
				r.Float64()}[r.IntN(6)]
		}
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
		// each vertex after the root is one of four, so that architectures have much in common in many ways
		if branches {
			make = func() *graph.Graph {
				g := build(l{"x", "x"})
				for i := range 7 {
					g.Vertices = append(g.Vertices, graph.Vertex{Op: fmt.Sprint(i, r.IntN(4)), Config: "{}",
						Inputs: []graph.Input{{Vertex: r.IntN(1 + i/6)}}})
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
		t.Errorf("left: %d keys, %d of %d classes, %d shapes", x.dict.used, len(x.classes)-len(x.unused),
			len(x.classes), len(x.byShape))
	}
}

// Two keys that collide make a graph look longer than it is. The answer is right all the same.
func TestCollision(t *testing.T) {
	c := New()
	short, long := build(l{"x", "x"}, l{"y", "y", "x"}),
		build(l{"x", "x"}, l{"y", "y", "x"}, l{"z", "z", "y"})
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
	r.ints.of(&c.configs, q)
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
			g.Vertices = append(g.Vertices, graph.Vertex{Op: "e", Config: "{}",
				Inputs: []graph.Input{{Vertex: r.IntN(14)}, {Vertex: r.IntN(14)}}})
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

// In a catalogue of several blocks of bitmaps, whose architectures change with time, too.
func TestManyBlocksAreScanned(t *testing.T) {
	const models, branches, choices = 12_000, 12, 6
	r := rand.New(rand.NewPCG(8, 11))
	make := func(now int) *graph.Graph {
		g := build(l{"x", "x"})
		for i := range branches {
			op := fmt.Sprint(i, r.IntN(choices)+now/3000)
			g.Vertices = append(g.Vertices,
				graph.Vertex{Op: op, Config: "{}", Inputs: []graph.Input{{}}},
				graph.Vertex{Op: "tail", Config: "{}", Inputs: []graph.Input{{Vertex: len(g.Vertices)}}})
		}
		return g
	}
	c := New()
	var all []*graph.Graph
	for seq := range models {
		all = append(all, make(seq))
		if err := c.Add(Model{Seq: uint64(seq), Quality: float64(seq % 5)}, all[seq]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 24 / slow {
		if i == 12/slow {
			c = again(t, c)
		}
		g := make(r.IntN(models))
		var best Model
		length := 0
		for seq, a := range all {
			pairs, _ := Common(g, a, 0)
			m := Model{uint64(seq), float64(seq % 5)}
			if n := len(pairs); n > length || n == length && n > 0 && m.better(best) {
				best, length = m, n
			}
		}
		m, ok := c.Find(g, Query{})
		if !ok || m.Length != length || m.Model.Seq != best.Seq || !m.Exact {
			t.Fatalf("found %+v, want %+v of length %d", m, best, length)
		}
		checkPairs(t, g, all[m.Model.Seq], m.Pairs)
	}
}
