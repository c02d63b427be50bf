package source

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"ckptfs/formats/protowire"
	"ckptfs/index/graph"
)

// onnxWindow is how many bytes are read at a time.
const onnxWindow = 4 << 10

// ParseONNX reads the graph of an ONNX model of size bytes. Each operator is a vertex; its attributes are its
// configuration. Initializers are parameters, by type and shape: their names mean nothing across files.
// Constant operators, and initializers of integers of at most 1 KiB (shapes, axes), are folded into the
// configuration of the operators that take them, Identity operators away. Graphs within the graph (control
// flow) are refused. The weights are not read.
//
// The error wraps ErrInvalid, or is r's. At most 16 MiB are read; memory is at most 64 times what is read.
func ParseONNX(r io.ReaderAt, size int64) (*graph.Graph, error) {
	o := onnxParser{
		Reader: protowire.New(r, size, onnxWindow, MaxSource),
		g:      &graph.Graph{Kind: graph.ONNX},
		at:     map[string]onnxValue{"": {text: "_"}},
	}
	model := protowire.Span{Off: -1}
	err := o.Fields(o.All(), func(f protowire.Field) error {
		if f.Number == 7 && f.Type == protowire.Bytes {
			model = f.Span
		}
		return nil
	})
	if err == nil && model.Off < 0 {
		err = fmt.Errorf("no graph: %w", graph.ErrInvalid)
	}
	if err == nil {
		err = o.graph(model)
	}
	if errors.Is(err, protowire.ErrInvalid) {
		err = fmt.Errorf("%w: %w", err, graph.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	return o.g, o.g.Check()
}

type onnxParser struct {
	*protowire.Reader
	g  *graph.Graph
	at map[string]onnxValue
}

// onnxValue is what a name stands for: a vertex's output (text is empty), a parameter ("p"), or a constant.
type onnxValue struct {
	in    graph.Input
	param graph.Param
	text  string
}

func (o *onnxParser) graph(s protowire.Span) error {
	var nodes []protowire.Span
	var inputs []protowire.Span
	err := o.Fields(s, func(f protowire.Field) error {
		switch {
		case f.Type != protowire.Bytes:
		case f.Number == 1:
			if nodes = append(nodes, f.Span); len(nodes) > 2*graph.MaxVertices {
				return tooMany()
			}
		case f.Number == 5:
			t, err := o.tensor(f.Span)
			if err != nil {
				return err
			}
			v := onnxValue{text: "p",
				param: graph.Param{Tensor: t.name, DType: onnxTypes[t.dtype], Shape: t.dims}}
			if v.param.DType == "" {
				v.param.Shape = nil
			}
			if t.size <= maxConstant && t.integer() {
				if v.text, err = o.constant(&t); err != nil {
					return err
				}
			}
			if t.name != "" {
				o.at[t.name] = v
			}
		case f.Number == 11:
			inputs = append(inputs, f.Span)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range inputs {
		if err := o.input(s); err != nil {
			return err
		}
	}
	for _, s := range nodes {
		if err := o.node(s); err != nil {
			return err
		}
	}
	return nil
}

// path calls each with the fields of each message that is field number of s; of an empty one with the zero
// Field.
func (o *onnxParser) path(s protowire.Span, number int, each func(protowire.Field) error) error {
	return o.Fields(s, func(f protowire.Field) error {
		if f.Number != number || f.Type != protowire.Bytes {
			return nil
		}
		if f.Span.Len() == 0 {
			return each(protowire.Field{})
		}
		return o.Fields(f.Span, each)
	})
}

// string is the text of a field.
func (o *onnxParser) string(s protowire.Span) (string, error) {
	b, err := o.Bytes(s)
	if err == nil && !utf8.Valid(b) {
		err = fmt.Errorf("a name that is not UTF-8: %w", graph.ErrInvalid)
	}
	return string(b), err
}

// input reads a ValueInfoProto: a vertex, unless it only gives the type of an initializer.
func (o *onnxParser) input(s protowire.Span) error {
	name, elem, sizes := "", uint64(0), []byte{}
	err := o.Fields(s, func(f protowire.Field) (err error) {
		switch {
		case f.Number == 1 && f.Type == protowire.Bytes:
			name, err = o.string(f.Span)
		case f.Number == 2 && f.Type == protowire.Bytes:
			return o.path(f.Span, 1, func(f protowire.Field) error {
				if f.Number == 1 && f.Type != protowire.Bytes {
					elem = f.Value
				} else if f.Number == 2 && f.Type == protowire.Bytes {
					return o.path(f.Span, 1, func(f protowire.Field) error {
						if len(sizes) > 0 {
							sizes = append(sizes, ',')
						}
						switch {
						case f.Number == 1 && f.Type != protowire.Bytes:
							sizes = strconv.AppendInt(sizes, int64(f.Value), 10)
						case f.Number == 2 && f.Type == protowire.Bytes:
							s, err := o.string(f.Span)
							sizes = appendJSONString(sizes, s)
							return err
						default:
							sizes = append(sizes, "null"...)
						}
						return nil
					})
				}
				return nil
			})
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, ok := o.at[name]; ok {
		return nil
	}
	return o.add(graph.Vertex{Name: name, Op: "Input",
		Config: fmt.Sprintf(`{"dtype":%d,"shape":[%s]}`, elem, sizes)}, []string{name})
}

func (o *onnxParser) add(v graph.Vertex, outputs []string) error {
	if len(o.g.Vertices) == graph.MaxVertices {
		return tooMany()
	}
	o.g.Vertices = append(o.g.Vertices, v)
	for i, name := range outputs {
		if name != "" {
			o.at[name] = onnxValue{in: graph.Input{Vertex: len(o.g.Vertices) - 1, Output: i}}
		}
	}
	return nil
}

// node reads a NodeProto.
func (o *onnxParser) node(s protowire.Span) error {
	var inputs, outputs []string
	var name, op, domain string
	attrs := map[string]string{}
	err := o.Fields(s, func(f protowire.Field) (err error) {
		if f.Type != protowire.Bytes {
			return nil
		}
		var s string
		if f.Number != 5 && f.Number <= 7 {
			if s, err = o.string(f.Span); err != nil {
				return err
			}
		}
		switch f.Number {
		case 1:
			inputs = append(inputs, s)
		case 2:
			outputs = append(outputs, s)
		case 3:
			name = s
		case 4:
			op = s
		case 5:
			return o.attribute(f.Span, attrs)
		case 7:
			domain = s
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("node %q: %w", name, err)
	case op == "" || len(outputs) == 0 || len(outputs) > graph.MaxOutput:
		return fmt.Errorf("node %q (%q) with %d outputs: %w", name, op, len(outputs), graph.ErrInvalid)
	}
	if domain != "" && domain != "ai.onnx" {
		op = domain + "::" + op
	}
	var keys []string
	for k := range attrs {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var config []byte
	for _, k := range keys {
		config = append(append(appendJSONString(append(config, ','), k), ':'), attrs[k]...)
	}
	if op == "Constant" && len(inputs) == 0 {
		o.at[outputs[0]] = onnxValue{text: "c" + string(config)}
		return nil
	}
	v := graph.Vertex{Name: name, Op: op}
	if name == "" {
		v.Name = outputs[0]
	}
	other := false
	var places []byte
	for i, s := range inputs {
		x, ok := o.at[s]
		if !ok {
			return fmt.Errorf("node %q: input %q is made by no node before: %w", v.Name, s, graph.ErrInvalid)
		}
		if op == "Identity" && len(inputs) == 1 && s != "" {
			o.at[outputs[0]] = x
			return nil
		}
		if i > 0 {
			places = append(places, ',')
		}
		if places = appendJSONString(places, x.text); len(places) > MaxSource {
			return fmt.Errorf("node %q: constants of more than %d bytes: %w", v.Name, MaxSource,
				graph.ErrInvalid)
		}
		switch x.text {
		case "":
			v.Inputs = append(v.Inputs, x.in)
			continue
		case "p":
			v.Params = append(v.Params, x.param)
		}
		other = true
	}
	if other { // which inputs are what
		config = append(append(append(config, `,"in":[`...), places...), ']')
	}
	v.Config = "{}"
	if len(config) > 0 {
		config[0] = '{'
		v.Config = string(append(config, '}'))
	}
	v.Commutative = graph.MayCommute(op) && !other && len(v.Inputs) > 1
	return o.add(v, outputs)
}

// attribute reads an AttributeProto.
func (o *onnxParser) attribute(s protowire.Span, attrs map[string]string) error {
	name := ""
	var value, list []byte
	item := func(f func([]byte) []byte) {
		if list == nil {
			list = []byte{}
		} else {
			list = append(list, ',')
		}
		list = f(list)
	}
	float := func(bits uint32) func([]byte) []byte {
		return func(p []byte) []byte {
			f := float64(math.Float32frombits(bits))
			return strconv.AppendQuote(p, strconv.FormatFloat(f, 'g', -1, 32))
		}
	}
	integer := func(v uint64) func([]byte) []byte {
		return func(p []byte) []byte { return strconv.AppendInt(p, int64(v), 10) }
	}
	err := o.Fields(s, func(f protowire.Field) error {
		switch f.Number {
		case 1:
			var err error
			name, err = o.string(f.Span)
			return err
		case 2:
			value = float(uint32(f.Value))(nil)
		case 3:
			value = integer(f.Value)(nil)
		case 4, 9:
			p, err := o.Bytes(f.Span)
			if f.Number == 4 {
				value = appendText(nil, p)
			} else {
				item(func(q []byte) []byte { return appendText(q, p) })
			}
			return err
		case 5, 10:
			t, err := o.tensor(f.Span)
			if err != nil {
				return err
			}
			s, err := o.constant(&t)
			if f.Number == 5 {
				value = []byte(s)
			} else {
				item(func(q []byte) []byte { return append(q, s...) })
			}
			return err
		case 6, 11:
			return fmt.Errorf("a graph within the graph: %w", graph.ErrInvalid)
		case 7:
			return o.Numbers(f, protowire.Fixed32, func(v uint64) { item(float(uint32(v))) })
		case 8:
			return o.Numbers(f, protowire.Varint, func(v uint64) { item(integer(v)) })
		}
		return nil
	})
	if err != nil {
		return err
	}
	if list != nil {
		value = append(append([]byte("["), list...), ']')
	}
	if value == nil { // an empty list, or the default, which is not written
		value = []byte("null")
	}
	attrs[name] = string(value)
	return nil
}

// appendText appends bytes as a JSON string, those that are no text in hex.
func appendText(dst, p []byte) []byte {
	if utf8.Valid(p) {
		return appendJSONString(dst, string(p))
	}
	return appendJSONString(dst, "hex:"+hex.EncodeToString(p))
}
