package onnx

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ckptfs/formats"
	"ckptfs/formats/protowire"
)

// external is an initializer whose bytes are in another file.
//
//	TensorProto   13 external_data { 1 key, 2 value }, once for each of: location, offset, length, checksum
type external struct {
	tensor   formats.Tensor
	location string // of the file, from the model's folder
	offset   int64
	length   int64 // -1: not stated, what the tensor takes
	bad      bool
}

// maxText bounds a key or value, in bytes.
const maxText = 4 << 10

// externalData reads one pair of where an initializer's bytes are.
func (m *model) externalData(whole protowire.Field, e *external) error {
	var pair [2]string
	err := m.Message(whole, func(f protowire.Field) error {
		if f.Number < 1 || f.Number > 2 || f.Type != protowire.Bytes {
			return nil
		}
		if f.Span.Len() > maxText {
			return reject("external data in %d bytes", f.Span.Len())
		}
		p, err := m.Bytes(f.Span)
		if err != nil {
			return err
		}
		pair[f.Number-1] = string(p)
		return nil
	})
	if err != nil {
		return err
	}
	m.names += len(pair[1])
	switch pair[0] {
	case "location":
		e.location = pair[1]
	case "offset":
		e.offset, err = strconv.ParseInt(pair[1], 10, 64)
	case "length":
		e.length, err = strconv.ParseInt(pair[1], 10, 64)
	}
	e.bad = e.bad || err != nil || e.offset < 0
	return nil
}

// External is where the external data of a model are.
type External struct {
	at map[string][]external
}

// ReadExternal reads the model in r. Errors are as Parse's.
func ReadExternal(r io.ReaderAt, size int64) (*External, error) {
	m, err := read(r, size)
	if err != nil {
		return nil, err
	}
	x := &External{at: map[string][]external{}}
	for _, e := range m.far {
		x.at[e.location] = append(x.at[e.location], e)
	}
	return x, nil
}

// Files lists the files as the model calls them, from its folder, ascending.
func (x *External) Files() []string { return slices.Sorted(maps.Keys(x.at)) }

// Count is how many tensors are in a file.
func (x *External) Count(file string) int { return len(x.at[file]) }

// Layout is that of one of the files, which has size bytes.
func (x *External) Layout(file string, size int64) (*formats.Layout, error) {
	l := &formats.Layout{Format: nameData, Partial: true}
	var data []formats.Range
	seen := map[string]bool{}
	for _, e := range x.at[file] {
		t, n := e.tensor, e.tensor.NumBytes()
		if e.length < 0 {
			e.length = n
		}
		if e.bad || e.length < 0 || e.offset > size || e.length > size-e.offset {
			return nil, reject("tensor %.64q: bytes %d+%d of %d", t.Name, e.offset, e.length, size)
		}
		if e.length > 0 {
			t.Region = len(data)
			data = append(data, formats.Range{Off: e.offset, Len: e.length})
		}
		if t.DType != "" && n == e.length && !seen[t.Name] && utf8.ValidString(t.Name) {
			seen[t.Name] = true
			l.Tensors = append(l.Tensors, t)
		}
	}
	if len(data) == 0 {
		return nil, reject("nothing is in %.64q", file)
	}
	if err := place(l, data, size); err != nil {
		return nil, err
	}
	if err := l.Check(size); err != nil {
		return nil, reject("%v", err)
	}
	return l, nil
}

// Sidecar lays out the files of a model's external data, by the names that torch and optimum give them:
//
//	NAME.onnx.data, NAME.onnx_data         NAME.onnx
//	NAME.bin, NAME.data, NAME.weights      NAME.onnx       other files are called so, too
type Sidecar struct{}

// Of returns the name of the model whose data a file of this name may be.
func (Sidecar) Of(name string) (model string, sure bool) {
	for _, suffix := range []string{".onnx.data", ".onnx_data"} {
		if stem, ok := strings.CutSuffix(name, suffix); ok {
			return stem + Ending, true
		}
	}
	for _, suffix := range []string{".bin", ".data", ".weights"} {
		if stem, ok := strings.CutSuffix(name, suffix); ok {
			return stem + Ending, false
		}
	}
	return "", false
}

// Layout is the layout of the file name by the model.
func (Sidecar) Layout(name string, size int64, model io.ReaderAt, modelSize int64) (*formats.Layout, error) {
	x, err := ReadExternal(model, modelSize)
	if err != nil {
		return nil, err
	}
	return x.Layout(name, size)
}
