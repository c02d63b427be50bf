package source

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"ckptfs/formats"
	"ckptfs/index/graph"
	"ckptfs/index/graph/graphtest"
)

func parseONNX(p []byte) (*graph.Graph, error) { return ParseONNX(bytes.NewReader(p), int64(len(p))) }

// The file was written by torch 2.15, of the module in TestExport: constants are folded into what takes them.
func TestONNX(t *testing.T) {
	p := readFile(t, "torch.onnx")
	g, err := parseONNX(p)
	if err != nil {
		t.Fatal(err)
	}
	const want = `input.1 Input
/conv/Conv Conv input.1 [ onnx::Conv_40] [ onnx::Conv_41]
/Relu Relu /conv/Conv
/ReduceMean ReduceMean /Relu
/fc/Gemm Gemm /ReduceMean [ fc.weight] [ fc.bias]
/Split Split /fc/Gemm
/Concat Concat /Split:1 /Split
/shared/Gemm Gemm /Concat [ shared.weight] [ shared.bias]
/shared_1/Gemm Gemm /shared/Gemm [ shared.weight] [ shared.bias]
/Add Add /shared_1/Gemm /shared/Gemm commutes
/Slice Slice /ReduceMean
/Mul Mul /Slice
/Add_1 Add /Add /Mul commutes
`
	if got := describe(g); got != want {
		t.Errorf("got\n%s", got)
	}
	for i, want := range map[int]string{
		0: `{"dtype":1,"shape":[2,3,8,8]}`,
		1: `{"dilations":[1,1],"group":1,"kernel_shape":[3,3],"pads":[1,1,1,1],"strides":[1,1],"in":["","p","p"]}`,
		4: `{"alpha":"1","beta":"1","transB":1,"in":["","p","p"]}`,
	} {
		if got := g.Vertices[i].Config; got != want {
			t.Errorf("%s: %s, want %s", g.Vertices[i].Name, got, want)
		}
	}
	if p := g.Vertices[1].Params[0]; p.DType != formats.F32 ||
		!reflect.DeepEqual(p.Shape, []int64{4, 3, 3, 3}) {
		t.Errorf("%+v", p)
	}
	for _, i := range []int{5, 10, 11} {
		if c := g.Vertices[i].Config; !strings.Contains(c, "hash") {
			t.Errorf("%s: no constant in %s", g.Vertices[i].Name, c)
		}
	}
	for i := range p { // cut anywhere
		if _, err := parseONNX(p[:i]); err != nil && !errors.Is(err, graph.ErrInvalid) {
			t.Fatalf("cut to %d: %v", i, err)
		}
	}
	if _, err := ParseONNX(bytes.NewReader(p[:100]), int64(len(p))); err == nil {
		t.Error("a file shorter than it said was accepted")
	}
}

// message writes protobuf: numbers as varints, strings and bytes with their length.
func message(fields ...any) []byte {
	var p []byte
	varint := func(v uint64) {
		for ; v >= 0x80; v >>= 7 {
			p = append(p, byte(v)|0x80)
		}
		p = append(p, byte(v))
	}
	for i := 0; i < len(fields); i += 2 {
		n := uint64(fields[i].(int))
		switch v := fields[i+1].(type) {
		case int:
			varint(n << 3)
			varint(uint64(v))
		case string:
			varint(n<<3 | 2)
			varint(uint64(len(v)))
			p = append(p, v...)
		case []byte:
			varint(n<<3 | 2)
			varint(uint64(len(v)))
			p = append(p, v...)
		case float32:
			varint(n<<3 | 5)
			b := math.Float32bits(v)
			p = append(p, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
		}
	}
	return p
}

func TestONNXParts(t *testing.T) {
	model := func(graph ...any) []byte { return message(1, 8, 7, message(graph...)) }
	input := message(1, "x", 2, message(1, message(1, 1, 2,
		message(1, message(2, "batch"), 1, message(), 1, message(1, 4)))))
	weight := message(1, []byte{4, 2}, 2, 1, 8, "w", 9, strings.Repeat("\x00", 32))
	axes := message(1, 1, 2, 7, 8, "axes", 9, "\x01\x00\x00\x00\x00\x00\x00\x00")
	g, err := parseONNX(model(11, input, 5, weight, 5, axes,
		1, message(1, "x", 2, "y", 4, "Identity"),
		1, message(1, "y", 1, "", 1, "w", 1, "axes", 2, "z", 4, "Odd", 7, "my.domain",
			5, message(1, "f", 2, float32(0.1)), 5, message(1, "s", 4, "\xff"), 5,
			message(1, "l", 8, 1, 8, 2), 5, message(1, "fs", 7, []byte{0, 0, 0x80, 0x3f}),
			5, message(1, "ss", 9, "a", 9, "b"), 5, message(1, "none"), 5, message(1, "t", 5, axes), 5,
			message(1, "ts", 10, axes, 10, axes)),
		1, message(1, "z", 1, "y", 2, "out", 3, "mul", 4, "Mul")))
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(g); got != "x Input\nz my.domain::Odd x [ w]\nmul Mul z x commutes\n" {
		t.Errorf("got\n%s", got)
	}
	if got := g.Vertices[0].Config; got != `{"dtype":1,"shape":["batch",null,4]}` {
		t.Error(got)
	}
	const constant = `{"dtype":7,"hash":"H","shape":[1]}`
	want := `{"f":"0.1","fs":["1"],"l":[1,2],"none":null,"s":"hex:ff","ss":["a","b"],"t":` + constant + `,"ts":[` + constant + `,` + constant + `],"in":["","_","p",` +
		string(appendJSONString(nil, constant)) + `]}`
	got := g.Vertices[1].Config
	at := strings.Index(got, `"hash":"`) + 8
	if got = strings.ReplaceAll(got, got[at:at+32], "H"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for name, c := range map[string]struct {
		p    []byte
		want string
	}{
		"empty":         {nil, "no graph"},
		"no graph":      {message(1, 8), "no graph"},
		"unknown input": {model(1, message(1, "q", 2, "z", 4, "A")), `input "q"`},
		"itself":        {model(1, message(1, "z", 2, "z", 4, "A")), `input "z"`},
		"control flow": {model(1, message(2, "z", 4, "If", 5, message(1, "then", 6, message()))),
			"a graph within"},
		"no outputs":         {model(1, message(4, "A")), "0 outputs"},
		"no op":              {model(1, message(2, "z")), "outputs"},
		"longer than it is":  {[]byte{7<<3 | 2, 100, 1}, "1 are left"},
		"a group":            {[]byte{7<<3 | 3}, "wire type 3"},
		"field 0":            {[]byte{0, 0}, "field 0"},
		"number without end": {bytes.Repeat([]byte{0xff}, 20), "more than 64 bits"},
		"negative shape":     {model(5, message(1, -1, 8, "w")), "shape"},
		"name not UTF-8":     {model(1, message(1, "\xff", 4, "A", 2, "z")), "not UTF-8"},
		"constant elsewhere": {model(1, message(2, "c", 4, "Constant", 5,
			message(1, "value", 5, message(14, 1)))), "another file"},
		"constants of 16 MiB": {model(1, message(2, "c", 4, "Constant", 5,
			message(1, "value", 5, message(9, strings.Repeat("x", MaxSource))))), "more than 16777216"},
	} {
		if g, err := parseONNX(c.p); !errors.Is(err, graph.ErrInvalid) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, g, err, c.want)
		}
	}
	// Weights are not read, however large.
	if _, err := parseONNX(model(5, message(1, MaxSource/2, 2, 1, 8, "w", 9,
		strings.Repeat("x", 2*MaxSource)), 11, input)); err != nil {
		t.Error(err)
	}
}

func FuzzONNX(f *testing.F) {
	f.Add(readFile(f, "torch.onnx"))
	f.Fuzz(func(t *testing.T, p []byte) {
		graphtest.Bounded(t, 256, p, func() {
			checkSource(t, func() (*graph.Graph, error) { return parseONNX(p) })
		})
	})
}
