// Package onnx lays out ONNX models: the initializers of the graph.
//
// A model is one protobuf message. What matters of it:
//
//	ModelProto   1 ir_version, 7 graph, 8 opset_import
//	GraphProto   5 initializer, 15 sparse_initializer, 1 node
//	TensorProto  1 dims, 2 data_type, 8 name, 9 raw_data, 4 float_data, 10 double_data, 13 external_data, 14
//	             data_location
//	NodeProto    5 attribute { 5 t, 6 g, 10 tensors, 11 graphs }
//
//	08 08 12 .. producer  3A .. graph {
//	    … 2A .. initializer { 08 03 08 04 10 01 42 01 'w' 4A 30 | 48 bytes | } …
//	} 42 .. opset
//
// The bytes of an initializer, raw_data or packed floats, are a Data region, and a tensor called by its name.
// All else is Blob.
//
// # What is recognised
//
// Files that start with ir_version (1 to 64), as all libraries write them, have one graph and one
// opset_import or more, and in which every field that is looked into is well formed to the last byte. Types:
// all that formats.DType has; of others (INT4, UINT4, INT2, UINT2) the bytes are Data without a tensor, and
// strings and packed integers are Blob; the layout is then partial, as it is when a tensor lies in another
// file (external data), in a node's attributes, or is sparse. A file of external data is itself raw bytes;
// External.Layout lays it out by the model: each initializer that says that it lies there is Data, and a
// tensor. That layout is partial always.
//
// At most 262,144 initializers, and 64 MiB of names; a window of 64 KiB and some 250 bytes an initializer are
// taken. What lies between is passed over, not read.
package onnx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"ckptfs/formats"
	"ckptfs/formats/protowire"
)

// Elsewhere is said of tensors in other files (Layout.Left).
const Elsewhere = "tensors are in other files, as external data"

const (
	maxTensors = 1 << 18
	maxNames   = 64 << 20
	maxName    = 1 << 15
	maxRank    = 64
	maxVersion = 64
	window     = 64 << 10
)

// types has the numbers of TensorProto.DataType.
var types = map[uint64]formats.DType{
	1: formats.F32, 2: formats.U8, 3: formats.I8, 4: formats.U16, 5: formats.I16, 6: formats.I32,
	7: formats.I64, 9: formats.Bool, 10: formats.F16, 11: formats.F64, 12: formats.U32, 13: formats.U64,
	14: formats.C64, 15: formats.C128, 16: formats.BF16, 17: formats.F8E4M3, 18: formats.F8E4M3FZ,
	19: formats.F8E5M2, 20: formats.F8E5M2FZ, 23: formats.F4, 24: formats.F8E8M0, 27: formats.F6E2M3,
	28: formats.F6E3M2,
}

const (
	// Name is the format's name.
	Name = "onnx"
	// Ending ends the names of models.
	Ending = ".onnx"

	nameData = "onnx-data" // the name of files of external data
)

// Format is ONNX's entry in the table of formats.
var Format = formats.Format{
	Parser:  Parser{},
	Sniff:   Sniff,
	Names:   []formats.Name{{Name: Name}, {Name: nameData}},
	Endings: []string{Ending},
	Views:   []string{Ending},
	Sidecar: Sidecar{},
}

// Parser is the parser of ONNX models.
type Parser struct{}

// Name returns "onnx".
func (Parser) Name() string { return Name }

func reject(format string, args ...any) error {
	return fmt.Errorf("onnx: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Sniff reports whether a file that starts with p may be one: ir_version, and the tag of a field of the
// model.
func Sniff(p []byte, _ int64) bool {
	if len(p) < 3 || p[0] != 0x08 || p[1] == 0 || p[1] > maxVersion {
		return false
	}
	switch p[2] {
	case 0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42, 0x72:
		return true
	}
	return false
}

// model is what has been read.
type model struct {
	*protowire.Reader
	layout *formats.Layout
	data   []formats.Range // of each tensor, and of those without a name
	names  int
	seen   map[string]bool
	far    []external
}

// Parse returns the layout of a model.
func (p Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	m, err := read(r, size)
	if err != nil {
		return nil, err
	}
	l := m.layout
	return l, place(l, m.data, size)
}

// place covers a file of size bytes, in which data are those that the tensors' Regions number.
func place(l *formats.Layout, data []formats.Range, size int64) error {
	if err := l.Cover(size, data); err != nil {
		return reject("%v", err)
	}
	return nil
}

// read reads a model; its layout has no regions yet.
func read(r io.ReaderAt, size int64) (*model, error) {
	m := &model{
		Reader: protowire.New(r, size, window, math.MaxInt64),
		layout: &formats.Layout{Format: Name},
		seen:   make(map[string]bool),
	}
	head, err := m.Bytes(protowire.Span{End: min(size, 3)})
	if err != nil {
		return nil, err
	}
	if !Sniff(head, size) {
		return nil, reject("no ir_version")
	}
	graphs, opsets := 0, 0
	err = m.Fields(m.All(), func(f protowire.Field) error {
		switch f.Number {
		case 7:
			graphs++
			return m.Message(f, m.graph)
		case 8:
			opsets++
		case 20: // training_info has graphs of its own
			m.layout.Leave("graphs are for training")
		case 1, 2, 3, 4, 5, 6, 14, 25, 26:
		default:
			return reject("field %d", f.Number)
		}
		return nil
	})
	switch {
	case errors.Is(err, protowire.ErrInvalid):
		return nil, reject("%v", err)
	case err != nil:
		return nil, err
	case graphs != 1 || opsets == 0:
		return nil, reject("%d graphs, %d opsets", graphs, opsets)
	}
	return m, nil
}

// graph looks at a field of the graph.
func (m *model) graph(f protowire.Field) error {
	switch f.Number {
	case 1:
		return m.Message(f, func(f protowire.Field) error {
			if f.Number != 5 {
				return nil
			}
			return m.Message(f, func(f protowire.Field) error {
				switch f.Number {
				case 5, 10:
					m.layout.Leave("tensors are attributes of nodes")
				case 6, 11:
					m.layout.Leave("graphs are attributes of nodes")
				}
				return nil
			})
		})
	case 5:
		return m.initializer(f)
	case 15:
		m.layout.Leave("tensors are sparse")
	}
	return nil
}

// initializer notes a tensor.
func (m *model) initializer(whole protowire.Field) error {
	t := formats.Tensor{Shape: []int64{}, Region: -1}
	var typ uint64
	var raw formats.Range
	var has, elsewhere bool
	far := external{length: -1}
	packed := 0 // the field that has the elements, when it is not raw_data
	err := m.Message(whole, func(f protowire.Field) error {
		switch {
		case f.Number == 1 && f.Type == protowire.Varint:
			t.Shape = append(t.Shape, int64(f.Value))
		case f.Number == 1 && f.Type == protowire.Bytes:
			return m.dims(&t, f)
		case f.Number == 2 && f.Type == protowire.Varint:
			typ = f.Value
		case f.Number == 8 && f.Type == protowire.Bytes:
			if f.Span.Len() > maxName {
				return reject("a name of %d bytes", f.Span.Len())
			}
			p, err := m.Bytes(f.Span)
			if err != nil {
				return err
			}
			t.Name = string(p)
		case (f.Number == 9 || f.Number == 4 || f.Number == 10) && f.Type == protowire.Bytes:
			if has {
				return reject("tensor %.64q: data twice", t.Name)
			}
			has, raw, packed = true, formats.Range{Off: f.Span.Off, Len: f.Span.Len()}, f.Number
		case f.Number == 13:
			elsewhere = true
			return m.externalData(f, &far)
		case f.Number == 14 && f.Type == protowire.Varint && f.Value != 0:
			elsewhere = true
		}
		if len(t.Shape) > maxRank {
			return reject("tensor %.64q: more than %d dimensions", t.Name, maxRank)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if m.names += len(t.Name); m.names > maxNames || len(m.data)+len(m.far) >= maxTensors {
		return reject("more than %d tensors, or %d bytes of names", maxTensors, maxNames)
	}
	t.DType = types[typ]
	n := t.NumBytes()
	floats := packed == 4 && (t.DType == formats.F32 || t.DType == formats.C64) ||
		packed == 10 && (t.DType == formats.F64 || t.DType == formats.C128)
	if elsewhere {
		far.tensor = t
		m.far = append(m.far, far)
	}
	switch {
	case elsewhere:
		m.layout.Leave(Elsewhere)
		return nil
	case t.DType == "":
		m.layout.Leave("tensors are of types that are not known")
		if packed != 9 {
			return nil
		}
	case !has && n != 0, has && packed != 9 && !floats, n < 0:
		m.layout.Leave("tensors are stored as lists of numbers, or not at all")
		return nil
	case m.seen[t.Name] || !utf8.ValidString(t.Name):
		m.layout.Leave("tensors have the name of another, or one that is no text")
	case n != raw.Len:
		return reject("tensor %.64q: %v of %s in %d bytes", t.Name, t.Shape, t.DType, raw.Len)
	default:
		m.seen[t.Name] = true
		if n > 0 {
			t.Region = len(m.data)
		}
		m.layout.Tensors = append(m.layout.Tensors, t)
	}
	if raw.Len > 0 {
		m.data = append(m.data, raw)
	}
	return nil
}

// dims reads packed dimensions.
func (m *model) dims(t *formats.Tensor, f protowire.Field) error {
	if f.Span.Len() > maxRank*binary.MaxVarintLen64 {
		return reject("more than %d dimensions", maxRank)
	}
	return m.Numbers(f, protowire.Varint, func(v uint64) { t.Shape = append(t.Shape, int64(v)) })
}
