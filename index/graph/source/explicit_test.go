package source

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/index/graph"
	"ckptfs/index/graph/graphtest"
)

const example = `{"v": 1, "nodes": [
  {"id": "x",     "op": "Input",  "cfg": {"shape": [null, 3, 32, 32]}},
  {"id": "conv1", "op": "Conv2d", "cfg": {"out": 16, "name": "conv1", "bias": true}, "in": ["x"],
   "params": [{"name": "conv1.weight", "dtype": "F32", "shape": [16, 3, 3, 3]}, "conv1.bias"]},
  {"id": "sum",   "op": "Add",    "in": ["conv1", "x:1"], "comm": true}]}`

func parse(t *testing.T, s string) *graph.Graph {
	t.Helper()
	g, err := ParseExplicit([]byte(s), nil)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return g
}

func TestExplicit(t *testing.T) {
	want := &graph.Graph{Kind: graph.Explicit, Vertices: []graph.Vertex{
		{Name: "x", Op: "Input", Config: `{"shape":[null,3,32,32]}`},
		{Name: "conv1", Op: "Conv2d", Config: `{"bias":true,"out":16}`,
			Inputs: []graph.Input{{Vertex: 0, Output: 0}}, Params: []graph.Param{
				{Tensor: "conv1.weight", Slot: "weight", DType: formats.F32, Shape: []int64{16, 3, 3, 3}},
				{Tensor: "conv1.bias", Slot: "bias"}}},
		{Name: "sum", Op: "Add", Config: "{}", Commutative: true,
			Inputs: []graph.Input{{Vertex: 1, Output: 0}, {Vertex: 0, Output: 1}}},
	}}
	if got := parse(t, example); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	file := ByName([]formats.Tensor{{Name: "conv1.bias"},
		{Name: "conv1.weight", DType: formats.F32, Shape: []int64{16, 3, 3, 3}}})
	if got, err := ParseExplicit([]byte(example), file); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("with tensors: %v, %v", got, err)
	}
}

// What is remembered of one document says the same in the next, and is bounded.
func TestRemembered(t *testing.T) {
	doc := func(cfg string) string { return `{"v":1,"nodes":[{"id":"x","op":"X","cfg":` + cfg + `}]}` }
	for range 2 {
		if got := parse(t,
			doc(`{"name":"x", "b":1,"a":{"name":"y"}}`)).Vertices[0].Config; got != `{"a":{"name":"y"},"b":1}` {
			t.Error(got)
		}
		if _, err := ParseExplicit([]byte(doc(`{"a":1,"a":1}`)), nil); !errors.Is(err, graph.ErrInvalid) {
			t.Errorf("a member twice: %v", err)
		}
		if _, err := ParseExplicit([]byte(doc(`[]`)), nil); !errors.Is(err, graph.ErrInvalid) {
			t.Errorf("no object: %v", err)
		}
	}
	var r remembered
	for i := range 100_000 {
		r.put(fmt.Sprint(i), "{}")
		if _, ok := r.get(fmt.Sprint(i)); !ok || r.bytes > maxRemembered {
			t.Fatalf("%d bytes, remembered %v", r.bytes, ok)
		}
	}
	if r.put(strings.Repeat(" ", maxOfOne+1), ""); r.bytes > maxRemembered {
		t.Error("a large one is remembered")
	}
}

func TestExplicitRefused(t *testing.T) {
	node := func(s string) string { return `{"v":1,"nodes":[{"id":"a","op":"A"},` + s + `]}` }
	file := ByName([]formats.Tensor{{Name: "w", DType: formats.F32, Shape: []int64{2}}})
	for name, c := range map[string]struct{ doc, want string }{
		"empty":           {``, "unexpected end"},
		"cut short":       {`{"v":1,"nodes":[`, "unexpected end"},
		"trailing":        {`{"v":1,"nodes":[]} x`, "invalid character"},
		"not UTF-8":       {"{\"v\":1,\"nodes\":[],\"\xff\":1}", "not UTF-8"},
		"no version":      {`{"nodes":[]}`, `no "v"`},
		"no nodes":        {`{"v":1}`, `no "nodes"`},
		"later version":   {`{"v":2,"nodes":[]}`, "version 2"},
		"an array":        {`[]`, "not an object"},
		"unknown member":  {`{"v":1,"nodes":[],"edges":[]}`, `unknown member "edges"`},
		"misspelt member": {node(`{"id":"b","op":"B","inputs":["a"]}`), `unknown member "inputs"`},
		"member twice":    {node(`{"id":"b","op":"B","cfg":{"x":1,"x":2}}`), `"x" twice`},
		"id twice":        {node(`{"id":"a","op":"B"}`), `"a" twice`},
		"no op":           {node(`{"id":"b"}`), "without id or op"},
		"cycle of one":    {node(`{"id":"b","op":"B","in":["b"]}`), "a cycle"},
		"cycle":           {node(`{"id":"b","op":"B","in":["c"]},{"id":"c","op":"C","in":["b"]}`), "a cycle"},
		"unknown input":   {node(`{"id":"b","op":"B","in":["z"]}`), `input "z"`},
		"output -1":       {node(`{"id":"b","op":"B","in":["a:-1"]}`), `input "a:-1"`},
		"output 65536":    {node(`{"id":"b","op":"B","in":["a:65536"]}`), `input "a:65536"`},
		"output 01":       {node(`{"id":"b","op":"B","in":["a:01"]}`), `input "a:01"`},
		"comm of Concat":  {node(`{"id":"b","op":"Concat","comm":true}`), "do not commute"},
		"comm is a word":  {node(`{"id":"b","op":"Add","comm":"yes"}`), "comm is not true or false"},
		"cfg is a list":   {node(`{"id":"b","op":"B","cfg":[]}`), "cfg is not an object"},
		"too deep": {node(`{"id":"b","op":"B","cfg":{"x":` + strings.Repeat("[", 70) +
			strings.Repeat("]", 70) + `}}`), "nested deeper"},
		"much too deep":  {strings.Repeat("[", 100_000), "exceeded max depth"},
		"number":         {node(`{"id":"b","op":"B","cfg":{"x":1e400}}`), "out of range"},
		"NaN":            {node(`{"id":"b","op":"B","cfg":{"x":NaN}}`), "invalid character"},
		"unknown tensor": {node(`{"id":"b","op":"B","params":["v"]}`), `no tensor "v"`},
		"other shape": {node(`{"id":"b","op":"B","params":[{"name":"w","dtype":"F32","shape":[3]}]}`),
			"is F32 [2] in the file"},
		"shape alone": {node(`{"id":"b","op":"B","params":[{"name":"w","shape":[2]}]}`), "go together"},
		"dtype":       {node(`{"id":"b","op":"B","params":[{"name":"w","dtype":"torch.float32","shape":[2]}]}`), "none of safetensors'"},
		"negative shape": {node(`{"id":"b","op":"B","params":[{"name":"w","dtype":"F32","shape":[-2]}]}`),
			"a dimension is -2"},
		"param number":  {node(`{"id":"b","op":"B","params":[1]}`), "neither a name nor an object"},
		"tied nameless": {node(`{"id":"b","op":"B","params":[{"name":"w","tied":[""]}]}`), "without name"},
		"tied text": {node(`{"id":"b","op":"B","params":[{"name":"w","tied":"v"}]}`),
			"tied is not an array"},
		"tied to many":   {node(`{"id":"b","op":"B","params":[{"name":"w","tied":["v"` + strings.Repeat(`,"v"`, 64) + `]}]}`), "more than 64 tied"},
		"param nameless": {node(`{"id":"b","op":"B","params":[""]}`), "without name"},
		"too large":      {strings.Repeat(" ", MaxSource+1), "at most 16777216"},
	} {
		g, err := ParseExplicit([]byte(c.doc), file)
		if g != nil || !errors.Is(err, graph.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if slow {
		return
	}
	many := `{"v":1,"nodes":[` + strings.Repeat(`{"id":"%","op":"A"},`, graph.MaxVertices+1)
	var b strings.Builder
	for i, part := range strings.Split(many, "%") {
		if b.WriteString(part); i <= graph.MaxVertices {
			fmt.Fprint(&b, i)
		}
	}
	if _, err := ParseExplicit([]byte(strings.TrimSuffix(b.String(), ",")+"]}"), nil); !errors.Is(err,
		graph.ErrInvalid) || !strings.Contains(err.Error(), "more than 65535") {
		t.Errorf("too many vertices: %v", err)
	}
}

// The names of tensors as the file has them: of tied ones whichever is there, and all behind one prefix.
func TestExplicitBound(t *testing.T) {
	const doc = `{"v":1,"nodes":[{"id":"e","op":"Embedding","params":[{"name":"wte.weight","dtype":"F32","shape":[2],"tied":["head.weight"]}]},
		{"id":"a","op":"Linear","params":["h.weight","h.bias"],"in":["e"]},{"id":"o","op":"Linear","params":[{"name":"head.weight","tied":["wte.weight"]}],"in":["a"]}]}`
	for _, c := range []struct{ file, want, refused string }{
		{"h.bias h.weight wte.weight", "wte.weight h.weight h.bias wte.weight", ""},
		{"h.bias h.weight head.weight", "head.weight h.weight h.bias head.weight", ""},
		{"h.bias h.weight head.weight wte.weight", "wte.weight h.weight h.bias head.weight", ""},
		{"model.h.bias model.h.weight model.wte.weight opt.h.weight opt.wte.weight h.bias",
			"model.wte.weight model.h.weight model.h.bias model.wte.weight", ""},
		{"a/b/h.bias a/b/h.weight a/b/head.weight a/c",
			"a/b/head.weight a/b/h.weight a/b/h.bias a/b/head.weight", ""},
		{"ema.h.bias ema.h.weight ema.wte.weight model.h.bias model.h.weight model.wte.weight", "",
			`below "ema." and below "model."`},
		{"xh.bias xh.weight xwte.weight", "", `no tensor "wte.weight"`},
		{"m.h.bias m.wte.weight", "", `no tensor "wte.weight"`},
		{"h.bias h.weight", "", `no tensor "wte.weight"`},
	} {
		var all []formats.Tensor
		for _, name := range strings.Fields(c.file) {
			all = append(all, formats.Tensor{Name: name, DType: formats.F32, Shape: []int64{2}})
		}
		g, err := ParseExplicit([]byte(doc), ByName(all))
		if c.refused != "" {
			if !errors.Is(err, graph.ErrInvalid) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", c.file, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		var got []string
		for _, v := range g.Vertices {
			for _, p := range v.Params {
				got = append(got, p.Tensor)
				if p.Slot != "weight" && p.Slot != "bias" {
					t.Errorf("%s: slot %q", c.file, p.Slot)
				}
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %s, want %s", c.file, got, c.want)
		}
		if o := (graphtest.Identities{}); !slices.Equal(o.Trees(g), o.Trees(parse(t, doc))) {
			t.Errorf("%s: another identity than without a file", c.file)
		}
	}
}

func TestInputByColon(t *testing.T) {
	g := parse(t,
		`{"v":1,"nodes":[{"id":"a","op":"A"},{"id":"a:1","op":"B"},{"id":"c","op":"C","in":["a:1","a:2","a:1:3"]}]}`)
	if want := []graph.Input{{Vertex: 1, Output: 0}, {Vertex: 0, Output: 2},
		{Vertex: 1, Output: 3}}; !reflect.DeepEqual(g.Vertices[2].Inputs, want) {
		t.Errorf("%v, want %v", g.Vertices[2].Inputs, want)
	}
}

func TestCanonicalConfig(t *testing.T) {
	for _, c := range [][2]string{
		{`{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{`{ "a" : [ 1 , 2.50, 1e2, -0, 0.0 ] }`, `{"a":[1,2.5,100,0,0]}`},
		{`{"a":1E30,"b":1e-7,"c":4.5,"d":2e-3,"e":1e21}`, `{"a":1e+30,"b":1e-7,"c":4.5,"d":0.002,"e":1e+21}`},
		{`{"a":333333333.33333329,"b":0.000001}`, `{"a":333333333.3333333,"b":0.000001}`},
		{`{"a":9007199254740993,"b":9007199254740992}`, `{"a":9007199254740993,"b":9007199254740992}`},
		{`{"name":"x","trainable":false,"seed":3,"k":1}`, `{"k":1}`},
		{`{"dtype_policy":"f","dtype-policy":1,"dtype":2}`, `{"dtype":2}`},
		{`{"init":{"name":"he","seed":7,"s":[{"seed":1}]}}`, `{"init":{"name":"he","s":[{}]}}`},
		{`{"layer":{"config":{"name":"n","units":4,"a":"x\",{"},"class_name":"Dense","name":"d"}}`, `{"layer":{"class_name":"Dense","config":{"a":"x\",{","units":4},"name":"d"}}`},
		{`{"layer":{"config":{"trainable":1},"class_name":"Dense"}}`, `{"layer":{"class_name":"Dense","config":{}}}`},
		{`{"layer":{"config":"name","class_name":"Dense"}}`, `{"layer":{"class_name":"Dense","config":"name"}}`},
		{`{"config":{"name":1}}`, `{"config":{"name":1}}`},
		{`{"a":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"}`, `{"a":"€$\u000f\nA'B\"\\\\\"/"}`},
		{`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`, `{"\r":2,"1":4,"` + "\u0080" + `":6,"ö":7,"€":1,"😀":5,"` + "\ufb33" + `":3}`},
		{`{"a":[true,false,null,{},[]]}`, `{"a":[true,false,null,{},[]]}`},
	} {
		in, want := c[0], c[1]
		r, err := newReader([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.config("cfg", layer)
		if err != nil || got != want {
			t.Errorf("%s\n got %s, %v\nwant %s", in, got, err, want)
		}
		r, _ = newReader([]byte(got))
		if again, err := r.config("cfg", layer); err != nil || again != got {
			t.Errorf("%s: again %s, %v", got, again, err)
		}
	}
}

func TestSlots(t *testing.T) {
	for in, want := range map[string]string{
		"conv1.weight":              "weight",
		"weight":                    "weight",
		"a.q.weight a.k.weight":     "q.weight k.weight",
		"a.weight a.bias":           "weight bias",
		"layer1.w layer10.w":        "layer1.w layer10.w",
		"d/kernel d/bias":           "kernel bias",
		"a.b.c a.b":                 "b.c b",
		".x":                        ".x",
		"a. a.b":                    " b",
		"enc.attn.w enc.mlp.w head": "enc.attn.w enc.mlp.w head",
	} {
		var params []graph.Param
		for _, s := range strings.Split(in, " ") {
			params = append(params, graph.Param{Tensor: s})
		}
		slots(params)
		var got []string
		for _, p := range params {
			got = append(got, p.Slot)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestFromTensors(t *testing.T) {
	all := []formats.Tensor{
		{Name: "conv.weight", DType: formats.F32, Shape: []int64{4, 3}},
		{Name: "conv.bias", DType: formats.F32, Shape: []int64{4}},
		{Name: "fc.weight", DType: formats.F16, Shape: []int64{2, 4}}, {Name: "scale", DType: formats.F32},
	}
	seq, err := FromTensors(graph.Seq, all)
	if err != nil {
		t.Fatal(err)
	}
	bag, err := FromTensors(graph.Bag, all)
	if err != nil {
		t.Fatal(err)
	}
	if len(seq.Vertices) != 3 || len(bag.Vertices) != 3 || seq.Vertices[0].Inputs != nil ||
		seq.Vertices[2].Inputs[0].Vertex != 1 || bag.Vertices[2].Inputs != nil {
		t.Errorf("seq %+v\nbag %+v", seq, bag)
	}
	if v := seq.Vertices[0]; v.Params[0].Slot != "bias" || v.Params[1].Tensor != "conv.weight" ||
		v.Config != "{}" {
		t.Errorf("%+v", v)
	}
	for i := range all { // under another module's name a chain is the same, a bag is not
		all[i].Name = "model." + all[i].Name
	}
	seq2, _ := FromTensors(graph.Seq, all)
	bag2, _ := FromTensors(graph.Bag, all)
	o := graphtest.Identities{}
	if !slices.Equal(o.Trees(seq), o.Trees(seq2)) {
		t.Error("seq: under another module's name another chain")
	}
	if o.Trees(bag)[1] == o.Trees(bag2)[1] {
		t.Error("bag: under another module's name the same")
	}
}

func FuzzExplicit(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"v":1,"nodes":[{"id":"a","op":"A","cfg":{"x":[{"class_name":"D","config":{"name":1}}]}}]}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		graphtest.Bounded(t, 256, p, func() {
			checkSource(t, func() (*graph.Graph, error) { return ParseExplicit(p, nil) })
		})
	})
}

// checkSource holds that a source gives a sound graph or an ErrInvalid.
func checkSource(t *testing.T, source func() (*graph.Graph, error)) {
	t.Helper()
	g, err := source()
	if err != nil {
		if !errors.Is(err, graph.ErrInvalid) {
			t.Fatalf("error of no kind: %v", err)
		}
		return
	}
	p, err := g.Encode()
	if err != nil {
		t.Fatalf("accepted, not sound: %v", err)
	}
	o := graphtest.Identities{}
	if again, err := graph.Decode(p); err != nil || !slices.Equal(o.Trees(again), o.Trees(g)) {
		t.Fatalf("the record is another graph: %v", err)
	}
}
