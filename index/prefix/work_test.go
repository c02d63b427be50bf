package prefix

import (
	"testing"
	"time"

	"ckptfs/index/graph"
)

// fan is an Input and n equal vertices behind it, more of another kind behind the last of them.
func fan(n, more int) *graph.Graph {
	g := build(l{"x", "Input"})
	for range n {
		g.Vertices = append(g.Vertices, graph.Vertex{Op: "A", Config: "{}", Inputs: []graph.Input{{}}})
	}
	for range more {
		g.Vertices = append(g.Vertices,
			graph.Vertex{Op: "B", Config: "{}", Inputs: []graph.Input{{Vertex: n}}})
	}
	return g
}

// layers is an Input and two layers of n: each vertex of the second hangs at one of the first, shift further.
func layers(n, shift int) *graph.Graph {
	g := fan(n, 0)
	for i := range n {
		g.Vertices = append(g.Vertices, graph.Vertex{Op: "B", Config: "{}",
			Inputs: []graph.Input{{Vertex: 1 + (i*i+shift)%n}}})
	}
	return g
}

// TestWorkIsBounded asks what takes a search without a bound minutes: its nodes are few, and each looks at
// all of the graph. There is an answer, that is a prefix; it need not be the longest.
func TestWorkIsBounded(t *testing.T) {
	for _, c := range []struct {
		name   string
		g, a   *graph.Graph
		atBest int // length
	}{
		{"one layer of 50,000", fan(50_000, 0), fan(49_999, 1), 50_000},
		{"one layer, and more behind it", fan(30_000, 20_000), fan(30_001, 20_001), 50_001},
		{"two layers of 20,000", layers(20_000, 0), layers(20_000, 1), 40_001},
		{"two layers, one longer", layers(20_000, 0), layers(20_001, 7), 40_001},
	} {
		t.Run(c.name, func(t *testing.T) {
			catalogue := New()
			for i, a := range []*graph.Graph{c.a, fan(3, 1), layers(5, 1)} {
				if err := catalogue.Add(Model{Seq: uint64(i)}, a); err != nil {
					t.Fatal(err)
				}
			}
			start := time.Now()
			m, ok := catalogue.Find(c.g, Query{})
			took := time.Since(start)
			t.Logf("%v: %d of %d, exact: %v", took, m.Length, c.atBest, m.Exact)
			if took > 10*time.Second*slow {
				t.Errorf("took %v", took)
			}
			if !ok || m.Length < c.atBest/4 || m.Exact && m.Length != c.atBest {
				t.Errorf("%d in common, exact: %v; %d there are", m.Length, m.Exact, c.atBest)
			}
			checkPairs(t, c.g, c.a, m.Pairs)
		})
	}
}

// TestStopped: a search that is told to stop asks of each architecture a few times more at most, and does not
// call its answer exact.
func TestStopped(t *testing.T) {
	catalogue := New()
	for i := range 4 {
		if err := catalogue.Add(Model{Seq: uint64(i)}, layers(20_000, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	find := func(stopAt int) (Match, bool) {
		asked = 0
		return catalogue.Find(layers(20_000, 0), Query{Stop: func() bool {
			asked++
			return stopAt > 0 && asked >= stopAt
		}})
	}
	find(0)
	t.Logf("asked %d times", asked)
	if asked < 50 {
		t.Fatalf("asked %d times: too small a search", asked)
	}
	for _, at := range []int{1, 2, 10} {
		m, ok := find(at)
		if asked > at+4*4 {
			t.Errorf("told to stop at %d, and asked %d times", at, asked)
		}
		if ok && m.Exact {
			t.Errorf("told to stop at %d: %d in common, exact", at, m.Length)
		}
	}
}
