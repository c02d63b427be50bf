package graph_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/cas/golden"
	"ckptfs/formats"
	"ckptfs/index/graph"
	"ckptfs/index/graph/graphtest"
)

func TestGolden(t *testing.T) {
	g := &graph.Graph{Kind: graph.Explicit, Vertices: []graph.Vertex{
		{Name: "x", Op: "Input", Config: `{"shape":[null,3,32,32]}`},
		{Name: "conv1", Op: "Conv2d", Config: `{"bias":true,"out":16}`,
			Inputs: []graph.Input{{Vertex: 0, Output: 0}}, Params: []graph.Param{
				{Tensor: "conv1.weight", Slot: "weight", DType: formats.F32, Shape: []int64{16, 3, 3, 3}},
				{Tensor: "conv1.bias", Slot: "bias"}}},
		{Name: "sum", Op: "Add", Config: "{}", Commutative: true,
			Inputs: []graph.Input{{Vertex: 1, Output: 0}, {Vertex: 0, Output: 1}}},
	}}
	p, err := g.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got := dump(p)
	golden.Same(t, "example.hex", got)
}

// dump prints bytes, 16 a line, with the printable ones beside.
func dump(p []byte) string {
	var b strings.Builder
	for i := 0; i < len(p); i += 16 {
		row := p[i:min(i+16, len(p))]
		text := strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '.'
			}
			return r
		}, string(row))
		fmt.Fprintf(&b, "%04x  %-47s  %s\n", i, fmt.Sprintf("% x", row), text)
	}
	return b.String()
}

func randomGraph(r *rand.Rand) *graph.Graph {
	g := &graph.Graph{Kind: graph.Kind(1 + r.IntN(6))}
	for i := range r.IntN(20) {
		v := graph.Vertex{Name: fmt.Sprintf("l%d.%d", i/3, r.IntN(3)), Op: []string{"A", "Add"}[r.IntN(2)],
			Config: fmt.Sprintf(`{"k":%d}`, r.IntN(3))}
		v.Commutative = v.Op == "Add" && r.IntN(2) == 0
		for range min(i, r.IntN(4)) {
			v.Inputs = append(v.Inputs, graph.Input{Vertex: r.IntN(i), Output: r.IntN(3) / 2 * r.IntN(300)})
		}
		for j := range r.IntN(3) {
			p := graph.Param{Tensor: fmt.Sprintf("%s.w%d", v.Name, j), Slot: fmt.Sprintf("w%d", j),
				Attached: r.IntN(4) == 0}
			if r.IntN(2) == 0 {
				p.DType = formats.BF16
				for range r.IntN(3) {
					p.Shape = append(p.Shape, r.Int64N(1<<uint(1+r.IntN(60))))
				}
			}
			v.Params = append(v.Params, p)
		}
		g.Vertices = append(g.Vertices, v)
	}
	return g
}

func TestRecord(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		g := randomGraph(r)
		p, err := g.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := graph.Decode(p)
		if err != nil || !reflect.DeepEqual(got, g) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, g)
		}
		for range 5 {
			checkDecode(t, damaged(r, p))
		}
	}
	if _, err := graph.Decode([]byte("CKG2")); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a later version: %v", err)
	}
	long := &graph.Graph{Kind: graph.Seq, Vertices: []graph.Vertex{{Name: strings.Repeat("n", 300)},
		{Name: strings.Repeat("n", 299) + "m"}, {Name: strings.Repeat("n", 300)}}}
	p, err := long.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := graph.Decode(p); err != nil || !reflect.DeepEqual(got, long) {
		t.Errorf("long names: %v", err)
	}
}

// An outline says what the graph is: layers have one number exactly if they are one layer, whichever record
// they are in.
func TestOutline(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	var reader, other graph.OutlineReader
	o, numbers := graphtest.Identities{}, map[uint32]int{}
	for range 2000 {
		g := randomGraph(r)
		p, err := g.Encode()
		if err != nil {
			t.Fatal(err)
		}
		out, err := reader.Read(p)
		if err != nil || out.Kind != g.Kind || len(out.Layer) != len(g.Vertices) {
			t.Fatalf("%+v, %v\n%+v", out, err, g)
		}
		for i, layer := range o.Layers(g) {
			if n, ok := numbers[out.Layer[i]]; ok && n != layer {
				t.Fatalf("vertex %d of %+v: two layers of one number", i, g)
			}
			numbers[out.Layer[i]] = layer
			var in []uint32
			for _, e := range g.Vertices[i].Inputs {
				in = append(in, uint32(e.Vertex)<<16|uint32(e.Output))
			}
			if !slices.Equal(out.In[out.First[i]:out.First[i+1]], in) {
				t.Fatalf("vertex %d of %+v: inputs %v", i, g, out.In)
			}
		}
		for range 5 {
			checkOutline(t, &other, damaged(r, p))
		}
	}
	if len(numbers) != len(reader.Layers) {
		t.Errorf("%d layers, %d numbers", len(reader.Layers), len(numbers))
	}
	seen := graphtest.Identities{}
	for i := range reader.Layers {
		v := reader.Layers[i]
		if n := o.Layers(&graph.Graph{Vertices: []graph.Vertex{v}})[0]; n != numbers[uint32(i)] ||
			seen.Number(fmt.Sprint(n)) != i {
			t.Fatalf("layer %d is %+v", i, v)
		}
	}
	if _, err := reader.Read([]byte("CKG2")); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a later version: %v", err)
	}
}

// checkOutline holds that of damaged bytes there is an outline where there is a graph, and else, unless names
// are all that is wrong, an error.
func checkOutline(t *testing.T, r *graph.OutlineReader, p []byte) {
	t.Helper()
	out, err := r.Read(p)
	g, wrong := graph.Decode(p)
	switch {
	case err != nil && !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer):
		t.Fatalf("error of no kind: %v", err)
	case wrong == nil && (err != nil || len(out.Layer) != len(g.Vertices)):
		t.Fatalf("%v, and decoded it is %+v", err, g)
	case err == nil && wrong != nil && !strings.Contains(wrong.Error(), "name shares") &&
		!strings.Contains(wrong.Error(), "twice"):
		t.Fatalf("outlined, and decoded it is %v", wrong)
	}
}

func damaged(r *rand.Rand, p []byte) []byte {
	q := append([]byte(nil), p...)
	switch r.IntN(3) {
	case 0:
		q = q[:r.IntN(len(q))]
	case 1:
		q[r.IntN(len(q))] ^= 1 << r.IntN(8)
	default:
		q[r.IntN(len(q))] = byte(r.Uint32())
	}
	return q
}

func checkDecode(t *testing.T, p []byte) {
	t.Helper()
	g, err := graph.Decode(p)
	if err != nil {
		if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer) {
			t.Fatalf("error of no kind: %v", err)
		}
		return
	}
	q, err := g.Encode()
	if err != nil || string(q) != string(p) {
		t.Fatalf("accepted, encodes to other bytes: %v\n% x\n% x", err, p, q)
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		p, err := randomGraph(r).Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		graphtest.Bounded(t, 256, p, func() { checkDecode(t, p) })
	})
}
