package source

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/index/graph"
	"ckptfs/index/graph/graphtest"
)

// The file was written by torch 2.15: a layer called twice, a split whose halves are exchanged, an addition
// with a factor.
func TestExport(t *testing.T) {
	g, err := ParseExport(readFile(t, "torch-export.json"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `x input
conv/conv2d torch.ops.aten.conv2d.default x [weight conv.weight] [bias conv.bias]
bn/batch_norm torch.ops.aten.batch_norm.default conv/conv2d [weight bn.weight] [bias bn.bias] [running_mean bn.running_mean] [running_var bn.running_var]
relu torch.ops.aten.relu.default bn/batch_norm
mean torch.ops.aten.mean.dim relu
fc/linear torch.ops.aten.linear.default mean [weight fc.weight] [bias fc.bias]
split torch.ops.aten.split.Tensor fc/linear
cat torch.ops.aten.cat.default split:1 split
shared/linear_1 torch.ops.aten.linear.default cat [weight shared.weight] [bias shared.bias]
shared/linear_2 torch.ops.aten.linear.default shared/linear_1 [weight shared.weight] [bias shared.bias]
add torch.ops.aten.add.Tensor shared/linear_2 shared/linear_1 commutes
slice_1 torch.ops.aten.slice.Tensor mean
add_1 torch.ops.aten.add.Tensor add slice_1
`
	if got := describe(g); got != want {
		t.Errorf("got\n%s", got)
	}
	if p := g.Vertices[1].Params[0]; p.DType != formats.F32 ||
		!reflect.DeepEqual(p.Shape, []int64{4, 3, 3, 3}) {
		t.Errorf("%+v", p)
	}
	for i, want := range map[int]string{
		0:  `{"dtype":7,"sizes":[{"as_int":2},{"as_int":3},{"as_int":8},{"as_int":8}]}`,
		7:  `{"dim":{"as_int":1},"tensors":{"as_tensors":[null,null]}}`,
		12: `{"alpha":{"as_int":2},"other":{"as_tensor":null},"self":{"as_tensor":null}}`,
	} {
		if got := g.Vertices[i].Config; got != want {
			t.Errorf("%s: %s, want %s", g.Vertices[i].Name, got, want)
		}
	}
}

func TestExportRefused(t *testing.T) {
	doc := func(node string) string {
		return `{"graph_module":{"graph":{"nodes":[` + node + `]},"signature":{"input_specs":[{"user_input":{"arg":{"as_tensor":{"name":"x"}}}}]}}}`
	}
	for name, c := range map[string]struct{ doc, want string }{
		"empty":         {``, "unexpected end"},
		"no graph":      {`{}`, "no graph_module"},
		"a list":        {`[]`, "cannot unmarshal"},
		"unknown value": {doc(`{"name":"a","target":"t","inputs":[{"name":"i","arg":{"as_tensor":{"name":"y"}}}]}`), `value "y"`},
		"itself":        {doc(`{"name":"a","target":"t","inputs":[{"name":"i","arg":{"as_tensor":{"name":"a"}}}],"outputs":[{"as_tensor":{"name":"a"}}]}`), `value "a"`},
		"control flow":  {doc(`{"name":"a","target":"t","inputs":[{"name":"i","arg":{"as_graph":{"name":"g","graph":{}}}}]}`), "a graph within"},
		"no target":     {doc(`{"name":"a"}`), "without target"},
		"one twice":     {doc(`{"name":"a","target":"t","inputs":[{"name":"i","arg":1},{"name":"i","arg":2}]}`), `"i" twice`},
		"nameless":      {`{"graph_module":{"signature":{"input_specs":[{"parameter":{"arg":{"name":""}}}]}}}`, "parameter without name"},
	} {
		if g, err := ParseExport([]byte(c.doc)); !errors.Is(err, graph.ErrInvalid) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, g, err, c.want)
		}
	}
}

func FuzzExport(f *testing.F) {
	f.Add(readFile(f, "torch-export.json"))
	f.Fuzz(func(t *testing.T, p []byte) {
		graphtest.Bounded(t, 256, p, func() {
			checkSource(t, func() (*graph.Graph, error) { return ParseExport(p) })
		})
	})
}
