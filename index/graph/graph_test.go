package graph

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ckptfs/cas"
	"ckptfs/formats"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const example = `{"v": 1, "nodes": [
  {"id": "x",     "op": "Input",  "cfg": {"shape": [null, 3, 32, 32]}},
  {"id": "conv1", "op": "Conv2d", "cfg": {"out": 16, "name": "conv1", "bias": true}, "in": ["x"],
   "params": [{"name": "conv1.weight", "dtype": "F32", "shape": [16, 3, 3, 3]}, "conv1.bias"]},
  {"id": "sum",   "op": "Add",    "in": ["conv1", "x:1"], "comm": true}]}`

func parse(t *testing.T, s string) *Graph {
	t.Helper()
	g, err := ParseExplicit([]byte(s), nil)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return g
}

func TestExplicit(t *testing.T) {
	want := &Graph{Kind: Explicit, Vertices: []Vertex{
		{Name: "x", Op: "Input", Config: `{"shape":[null,3,32,32]}`},
		{Name: "conv1", Op: "Conv2d", Config: `{"bias":true,"out":16}`, Inputs: []Input{{0, 0}}, Params: []Param{
			{Tensor: "conv1.weight", Slot: "weight", DType: formats.F32, Shape: []int64{16, 3, 3, 3}}, {Tensor: "conv1.bias", Slot: "bias"}}},
		{Name: "sum", Op: "Add", Config: "{}", Commutative: true, Inputs: []Input{{1, 0}, {0, 1}}},
	}}
	if got := parse(t, example); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	file := ByName([]formats.Tensor{{Name: "conv1.bias"}, {Name: "conv1.weight", DType: formats.F32, Shape: []int64{16, 3, 3, 3}}})
	if got, err := ParseExplicit([]byte(example), file); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("with tensors: %v, %v", got, err)
	}
}

// What is remembered of one document says the same in the next, and is bounded.
func TestRemembered(t *testing.T) {
	doc := func(cfg string) string { return `{"v":1,"nodes":[{"id":"x","op":"X","cfg":` + cfg + `}]}` }
	for range 2 {
		if got := parse(t, doc(`{"name":"x", "b":1,"a":{"name":"y"}}`)).Vertices[0].Config; got != `{"a":{"name":"y"},"b":1}` {
			t.Error(got)
		}
		if _, err := ParseExplicit([]byte(doc(`{"a":1,"a":1}`)), nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("a member twice: %v", err)
		}
		if _, err := ParseExplicit([]byte(doc(`[]`)), nil); !errors.Is(err, ErrInvalid) {
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
		"too deep":        {node(`{"id":"b","op":"B","cfg":{"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}}`), "nested deeper"},
		"much too deep":   {strings.Repeat("[", 100_000), "exceeded max depth"},
		"number":          {node(`{"id":"b","op":"B","cfg":{"x":1e400}}`), "out of range"},
		"NaN":             {node(`{"id":"b","op":"B","cfg":{"x":NaN}}`), "invalid character"},
		"unknown tensor":  {node(`{"id":"b","op":"B","params":["v"]}`), `no tensor "v"`},
		"other shape":     {node(`{"id":"b","op":"B","params":[{"name":"w","dtype":"F32","shape":[3]}]}`), "is F32 [2] in the file"},
		"shape alone":     {node(`{"id":"b","op":"B","params":[{"name":"w","shape":[2]}]}`), "go together"},
		"dtype":           {node(`{"id":"b","op":"B","params":[{"name":"w","dtype":"torch.float32","shape":[2]}]}`), "none of safetensors'"},
		"negative shape":  {node(`{"id":"b","op":"B","params":[{"name":"w","dtype":"F32","shape":[-2]}]}`), "a dimension is -2"},
		"param number":    {node(`{"id":"b","op":"B","params":[1]}`), "neither a name nor an object"},
		"tied nameless":   {node(`{"id":"b","op":"B","params":[{"name":"w","tied":[""]}]}`), "without name"},
		"tied text":       {node(`{"id":"b","op":"B","params":[{"name":"w","tied":"v"}]}`), "tied is not an array"},
		"tied to many":    {node(`{"id":"b","op":"B","params":[{"name":"w","tied":["v"` + strings.Repeat(`,"v"`, 64) + `]}]}`), "more than 64 tied"},
		"param nameless":  {node(`{"id":"b","op":"B","params":[""]}`), "without name"},
		"too large":       {strings.Repeat(" ", MaxSource+1), "at most 16777216"},
	} {
		g, err := ParseExplicit([]byte(c.doc), file)
		if g != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if slow {
		return
	}
	many := `{"v":1,"nodes":[` + strings.Repeat(`{"id":"%","op":"A"},`, MaxVertices+1)
	var b strings.Builder
	for i, part := range strings.Split(many, "%") {
		if b.WriteString(part); i <= MaxVertices {
			fmt.Fprint(&b, i)
		}
	}
	if _, err := ParseExplicit([]byte(strings.TrimSuffix(b.String(), ",")+"]}"), nil); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "more than 65535") {
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
		{"model.h.bias model.h.weight model.wte.weight opt.h.weight opt.wte.weight h.bias", "model.wte.weight model.h.weight model.h.bias model.wte.weight", ""},
		{"a/b/h.bias a/b/h.weight a/b/head.weight a/c", "a/b/head.weight a/b/h.weight a/b/h.bias a/b/head.weight", ""},
		{"ema.h.bias ema.h.weight ema.wte.weight model.h.bias model.h.weight model.wte.weight", "", `below "ema." and below "model."`},
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
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.refused) {
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
		if o := (identities{}); !slices.Equal(o.trees(g), o.trees(parse(t, doc))) {
			t.Errorf("%s: another identity than without a file", c.file)
		}
	}
}

func TestInputByColon(t *testing.T) {
	g := parse(t, `{"v":1,"nodes":[{"id":"a","op":"A"},{"id":"a:1","op":"B"},{"id":"c","op":"C","in":["a:1","a:2","a:1:3"]}]}`)
	if want := []Input{{1, 0}, {0, 2}, {1, 3}}; !reflect.DeepEqual(g.Vertices[2].Inputs, want) {
		t.Errorf("%v, want %v", g.Vertices[2].Inputs, want)
	}
}

func TestCanonicalConfig(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":2}`:                                                                           `{"a":2,"b":1}`,
		`{ "a" : [ 1 , 2.50, 1e2, -0, 0.0 ] }`:                                                    `{"a":[1,2.5,100,0,0]}`,
		`{"a":1E30,"b":1e-7,"c":4.5,"d":2e-3,"e":1e21}`:                                           `{"a":1e+30,"b":1e-7,"c":4.5,"d":0.002,"e":1e+21}`,
		`{"a":333333333.33333329,"b":0.000001}`:                                                   `{"a":333333333.3333333,"b":0.000001}`,
		`{"a":9007199254740993,"b":9007199254740992}`:                                             `{"a":9007199254740993,"b":9007199254740992}`,
		`{"name":"x","trainable":false,"seed":3,"k":1}`:                                           `{"k":1}`,
		`{"dtype_policy":"f","dtype-policy":1,"dtype":2}`:                                         `{"dtype":2}`,
		`{"init":{"name":"he","seed":7,"s":[{"seed":1}]}}`:                                        `{"init":{"name":"he","s":[{}]}}`,
		`{"layer":{"config":{"name":"n","units":4,"a":"x\",{"},"class_name":"Dense","name":"d"}}`: `{"layer":{"class_name":"Dense","config":{"a":"x\",{","units":4},"name":"d"}}`,
		`{"layer":{"config":{"trainable":1},"class_name":"Dense"}}`:                               `{"layer":{"class_name":"Dense","config":{}}}`,
		`{"layer":{"config":"name","class_name":"Dense"}}`:                                        `{"layer":{"class_name":"Dense","config":"name"}}`,
		`{"config":{"name":1}}`:                                                                   `{"config":{"name":1}}`,
		`{"a":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"}`:                                   `{"a":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`:             `{"\r":2,"1":4,"` + "\u0080" + `":6,"ö":7,"€":1,"😀":5,"` + "\ufb33" + `":3}`,
		`{"a":[true,false,null,{},[]]}`:                                                           `{"a":[true,false,null,{},[]]}`,
	} {
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
		var params []Param
		for _, s := range strings.Split(in, " ") {
			params = append(params, Param{Tensor: s})
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
		{Name: "conv.weight", DType: formats.F32, Shape: []int64{4, 3}}, {Name: "conv.bias", DType: formats.F32, Shape: []int64{4}},
		{Name: "fc.weight", DType: formats.F16, Shape: []int64{2, 4}}, {Name: "scale", DType: formats.F32},
	}
	seq, err := FromTensors(Seq, all)
	if err != nil {
		t.Fatal(err)
	}
	bag, err := FromTensors(Bag, all)
	if err != nil {
		t.Fatal(err)
	}
	if len(seq.Vertices) != 3 || len(bag.Vertices) != 3 || seq.Vertices[0].Inputs != nil || seq.Vertices[2].Inputs[0].Vertex != 1 || bag.Vertices[2].Inputs != nil {
		t.Errorf("seq %+v\nbag %+v", seq, bag)
	}
	if v := seq.Vertices[0]; v.Params[0].Slot != "bias" || v.Params[1].Tensor != "conv.weight" || v.Config != "{}" {
		t.Errorf("%+v", v)
	}
	for i := range all { // under another module's name a chain is the same, a bag is not
		all[i].Name = "model." + all[i].Name
	}
	seq2, _ := FromTensors(Seq, all)
	bag2, _ := FromTensors(Bag, all)
	o := identities{}
	if !slices.Equal(o.trees(seq), o.trees(seq2)) {
		t.Error("seq: under another module's name another chain")
	}
	if o.trees(bag)[1] == o.trees(bag2)[1] {
		t.Error("bag: under another module's name the same")
	}
}

func TestGolden(t *testing.T) {
	g := parse(t, example)
	p, err := g.Encode()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "example.hex")
	got := dump(p)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the encoding changed; -update if that is meant\n%s", got)
	}
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

func randomGraph(r *rand.Rand) *Graph {
	g := &Graph{Kind: Kind(1 + r.IntN(6))}
	for i := range r.IntN(20) {
		v := Vertex{Name: fmt.Sprintf("l%d.%d", i/3, r.IntN(3)), Op: []string{"A", "Add"}[r.IntN(2)], Config: fmt.Sprintf(`{"k":%d}`, r.IntN(3))}
		v.Commutative = v.Op == "Add" && r.IntN(2) == 0
		for range min(i, r.IntN(4)) {
			v.Inputs = append(v.Inputs, Input{r.IntN(i), r.IntN(3) / 2 * r.IntN(300)})
		}
		for j := range r.IntN(3) {
			p := Param{Tensor: fmt.Sprintf("%s.w%d", v.Name, j), Slot: fmt.Sprintf("w%d", j), Attached: r.IntN(4) == 0}
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
		got, err := Decode(p)
		if err != nil || !reflect.DeepEqual(got, g) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, g)
		}
		for range 5 {
			checkDecode(t, damaged(r, p))
		}
	}
	if _, err := Decode([]byte("CKG2")); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a later version: %v", err)
	}
	long := &Graph{Kind: Seq, Vertices: []Vertex{{Name: strings.Repeat("n", 300)}, {Name: strings.Repeat("n", 299) + "m"}, {Name: strings.Repeat("n", 300)}}}
	p, err := long.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(p); err != nil || !reflect.DeepEqual(got, long) {
		t.Errorf("long names: %v", err)
	}
}

// An outline says what the graph is: layers have one number exactly if they are one layer, whichever record they are in.
func TestOutline(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	var reader, other OutlineReader
	o, numbers := identities{}, map[uint32]int{}
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
		for i, layer := range o.layers(g) {
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
	seen := identities{}
	for i := range reader.Layers {
		v := reader.Layers[i]
		if n := o.layers(&Graph{Vertices: []Vertex{v}})[0]; n != numbers[uint32(i)] || seen.number(fmt.Sprint(n)) != i {
			t.Fatalf("layer %d is %+v", i, v)
		}
	}
	if _, err := reader.Read([]byte("CKG2")); !errors.Is(err, cas.ErrNewer) {
		t.Errorf("a later version: %v", err)
	}
}

// checkOutline holds that of damaged bytes there is an outline where there is a graph, and else, unless names are all that is wrong, an error.
func checkOutline(t *testing.T, r *OutlineReader, p []byte) {
	t.Helper()
	out, err := r.Read(p)
	g, wrong := Decode(p)
	switch {
	case err != nil && !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, cas.ErrNewer):
		t.Fatalf("error of no kind: %v", err)
	case wrong == nil && (err != nil || len(out.Layer) != len(g.Vertices)):
		t.Fatalf("%v, and decoded it is %+v", err, g)
	case err == nil && wrong != nil && !strings.Contains(wrong.Error(), "name shares") && !strings.Contains(wrong.Error(), "twice"):
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
	g, err := Decode(p)
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
		bounded(t, 256, p, func() { checkDecode(t, p) })
	})
}

func FuzzExplicit(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"v":1,"nodes":[{"id":"a","op":"A","cfg":{"x":[{"class_name":"D","config":{"name":1}}]}}]}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		bounded(t, 256, p, func() { checkSource(t, func() (*Graph, error) { return ParseExplicit(p, nil) }) })
	})
}

// checkSource holds that a source gives a sound graph or an ErrInvalid.
func checkSource(t *testing.T, source func() (*Graph, error)) {
	t.Helper()
	g, err := source()
	if err != nil {
		if !errors.Is(err, ErrInvalid) {
			t.Fatalf("error of no kind: %v", err)
		}
		return
	}
	p, err := g.Encode()
	if err != nil {
		t.Fatalf("accepted, not sound: %v", err)
	}
	o := identities{}
	if again, err := Decode(p); err != nil || !slices.Equal(o.trees(again), o.trees(g)) {
		t.Fatalf("the record is another graph: %v", err)
	}
}
