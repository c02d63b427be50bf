package source

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/index/graph"
	"ckptfs/index/graph/graphtest"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	p, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// describe prints a vertex a line: name, op, inputs, tensors.
func describe(g *graph.Graph) string {
	var b strings.Builder
	for i := range g.Vertices {
		v := &g.Vertices[i]
		fmt.Fprintf(&b, "%s %s", v.Name, v.Op)
		for _, in := range v.Inputs {
			fmt.Fprintf(&b, " %s", g.Vertices[in.Vertex].Name)
			if in.Output > 0 {
				fmt.Fprintf(&b, ":%d", in.Output)
			}
		}
		if v.Commutative {
			b.WriteString(" commutes")
		}
		for _, p := range v.Params {
			fmt.Fprintf(&b, " [%s %s]", p.Slot, p.Tensor)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func tensors(names ...string) (out []formats.Tensor) {
	for _, n := range names {
		out = append(out, formats.Tensor{Name: n, DType: formats.F32, Shape: []int64{1}})
	}
	return out
}

// The files are of one model, written by Keras 3.15: a layer called twice, a model with two outputs within,
// an attention with a keyword argument, a Sequential at the end.
func TestKeras(t *testing.T) {
	g, err := ParseKeras(readFile(t, "keras-config.json"),
		tensors("layers/dense/vars/0", "layers/functional/layers/dense_1/vars/1",
			"layers/multi_head_attention/query_dense/vars/0", "layers/sequential/layers/dense/vars/0",
			"optimizer/vars/0"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `in InputLayer
in2 InputLayer
shared Dense in [vars/0 layers/dense/vars/0]
shared#1 Dense in2 [vars/0 layers/dense/vars/0]
sum Add shared shared#1 commutes
inner/d1 Dense shared
inner/d2 Dense shared [vars/1 layers/functional/layers/dense_1/vars/1]
cat Concatenate sum inner/d1 inner/d2
reshape Reshape cat
att MultiHeadAttention reshape reshape [query_dense/vars/0 layers/multi_head_attention/query_dense/vars/0]
flatten Flatten att
tail/s1 Dense flatten [vars/0 layers/sequential/layers/dense/vars/0]
tail/dropout_1 Dropout tail/s1
`
	if got := describe(g); got != want {
		t.Errorf("got\n%s", got)
	}
	h5, err := ParseKeras(readFile(t, "keras-h5-config.json"),
		tensors("model_weights/shared/shared/kernel", "model_weights/inner/d2/bias",
			"model_weights/att/att/query/kernel", "model_weights/tail/tail/s1/kernel:0",
			"optimizer_weights/adam/iteration"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"\nshared#1 Dense in2 [kernel model_weights/shared/shared/kernel]\n",
		"inner/d2 Dense shared [bias model_weights/inner/d2/bias]\n",
		"[query/kernel model_weights/att/att/query/kernel]\n",
		"tail/s1 Dense flatten [kernel:0 model_weights/tail/tail/s1/kernel:0]\n"} {
		if !strings.Contains(describe(h5), s) {
			t.Errorf("no %q in\n%s", s, describe(h5))
		}
	}
	o := graphtest.Identities{}
	if a, b := o.Trees(g), o.Trees(h5); !slices.Equal(a, b) {
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("one model, two files, and not one graph: %s\n%s\n%s", g.Vertices[i].Name,
					g.Vertices[i].Config, h5.Vertices[i].Config)
			}
		}
	}
	for i, want := range map[int][]string{2: {`"units":8`, `"GlorotUniform","config":{"input_axes":null`},
		9: {`"call":`, `"value":null`, `"num_heads":2`}, 12: {`"rate":0.5`}} {
		for _, s := range want {
			if c := g.Vertices[i].Config; !strings.Contains(c, s) || strings.Contains(c, `"seed"`) ||
				strings.Contains(c, `"trainable"`) {
				t.Errorf("%s: no %s in %s", g.Vertices[i].Name, s, c)
			}
		}
	}
}

// Calls as Keras 2 writes them.
func TestKeras2(t *testing.T) {
	g, err := ParseKeras([]byte(`{"class_name":"Model","config":{"name":"m","layers":[
		{"name":"s","class_name":"Dense","config":{"name":"s","units":2,"dtype":"float32"},"inbound_nodes":[[["a",0,0,{}]],[["b",0,0,{"scale":2}]]]},
		{"name":"a","class_name":"InputLayer","config":{"name":"a","dtype":"float32"},"inbound_nodes":[]},
		{"name":"b","class_name":"Split","config":{"name":"b"},"inbound_nodes":[[["a",0,0,{}]]]},
		{"name":"add","class_name":"Add","config":{},"inbound_nodes":[[["s",0,0,{}],["s",1,0,{}],["b",0,1,{}]]]}],
		"input_layers":[["a",0,0]],"output_layers":[["add",0,0]]}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(g); got != "a InputLayer\ns Dense a\nb Split a\ns#1 Dense b\nadd Add s s#1 b:1 commutes\n" {
		t.Errorf("got\n%s", got)
	}
	if got := g.Vertices[3].Config; got != `{"call":[{"kwargs":{"scale":2}}],"config":{"units":2}}` {
		t.Error(got)
	}
	if got := g.Vertices[0].Config; got != `{"dtype":"float32"}` {
		t.Error(got)
	}
	old, err := ParseKeras([]byte(`{"class_name":"Sequential","config":[{"class_name":"Dense","config":{"name":"x","units":1}},{"class_name":"Dense","config":{"name":"x","units":1}}]}`), nil)
	if err != nil || describe(old) != "x Dense\nx Dense x\n" {
		t.Errorf("%v\n%s", err, describe(old))
	}
}

func TestKerasRefused(t *testing.T) {
	model := func(layers string) string {
		return `{"class_name":"Functional","config":{"layers":[` + layers + `],"input_layers":[],"output_layers":[["z",0,0]]}}`
	}
	bomb := `{"class_name":"InputLayer","name":"i","config":{}}`
	inner := `{"class_name":"Sequential","name":"m0","config":{"layers":[{"class_name":"D","config":{"name":"d"}}]}}`
	for i := range 12 { // each model calls the one within four times
		name := fmt.Sprintf("m%d", i)
		inner = strings.TrimSuffix(inner, "}") +
			fmt.Sprintf(`,"inbound_nodes":[[["i",0,0,{}]],[["%[1]s",0,0,{}]],[["%[1]s",1,0,{}]],[["%[1]s",2,0,{}]]]}`, name)
		inner = fmt.Sprintf(`{"class_name":"Functional","name":"m%d","config":{"layers":[%s,%s],"input_layers":[["i",0,0]],"output_layers":[["%s",3,0]]}}`, i+1, bomb, inner, name)
	}
	for name, c := range map[string]struct{ doc, want string }{
		"empty":     {``, "unexpected end"},
		"a list":    {`[]`, "cannot unmarshal"},
		"no model":  {`{"class_name":"Dense","config":{}}`, "no layers"},
		"no layers": {`{"class_name":"Functional","config":{}}`, "no layers"},
		"cycle":     {model(`{"class_name":"A","name":"z","config":{},"inbound_nodes":[[["y",0,0,{}]]]},{"class_name":"A","name":"y","config":{},"inbound_nodes":[[["z",0,0,{}]]]}`), "a cycle"},
		"itself": {model(`{"class_name":"A","name":"z","config":{},"inbound_nodes":[[["z",0,0,{}]]]}`),
			"a cycle"},
		"unknown layer": {model(`{"class_name":"A","name":"z","config":{},"inbound_nodes":[[["q",0,0,{}]]]}`),
			`no call 0 of layer "q"`},
		"unknown call": {model(`{"class_name":"A","name":"z","config":{},"inbound_nodes":[[["z",7,0,{}]]]}`),
			`no call 7`},
		"twice":         {model(`{"class_name":"A","name":"z","config":{}},{"class_name":"A","name":"z","config":{}}`), `"z" twice`},
		"no output":     {model(`{"class_name":"A","name":"y","config":{}}`), `layer "z"`},
		"no class":      {model(`{"name":"z","config":{}}`), "without class"},
		"no history":    {model(`{"class_name":"A","name":"z","config":{},"inbound_nodes":[{"args":[{"class_name":"__keras_tensor__"}]}]}`), "keras_history"},
		"config a list": {model(`{"class_name":"A","name":"z","config":[]}`), "not an object"},
		"member twice": {model(`{"class_name":"A","class_name":"B","name":"z","config":{}}`),
			`"class_name" twice`},
		"bomb": {`{"class_name":"Sequential","config":{"layers":[` + bomb + `,` + inner + `]}}`,
			"more than 65535"},
		"too large": {strings.Repeat(" ", MaxKeras+1), "at most 4194304"},
	} {
		if slow && name == "bomb" {
			continue
		}
		g, err := ParseKeras([]byte(c.doc), nil)
		if !errors.Is(err, graph.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, g, err, c.want)
		}
	}
}

func TestSnakeCase(t *testing.T) {
	for in, want := range map[string]string{"Dense": "dense", "MultiHeadAttention": "multi_head_attention",
		"Conv2D": "conv2d", "LSTM": "lstm", "PReLU": "p_re_lu",
		"InputLayer": "input_layer", "my-Layer": "my_layer", "GRUCell": "gru_cell"} {
		if got := snakeCase(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func FuzzKeras(f *testing.F) {
	f.Add(readFile(f, "keras-config.json"))
	f.Add(readFile(f, "keras-h5-config.json"))
	f.Add([]byte(`{"class_name":"Sequential","config":[{"class_name":"Dense","config":{"name":"x","units":1}}]}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		graphtest.Bounded(t, 256, p, func() {
			checkSource(t, func() (*graph.Graph, error) { return ParseKeras(p, nil) })
		})
	})
}
