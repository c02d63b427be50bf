package source

import (
	"fmt"
	"math"
	"strconv"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/protowire"
	"ckptfs/index/graph"
)

// maxConstant bounds the bytes of an initializer that is a constant, not a parameter.
const maxConstant = 1 << 10

// onnxTypes are the element types by TensorProto.DataType.
var onnxTypes = map[uint64]formats.DType{1: formats.F32, 2: formats.U8, 3: formats.I8, 4: formats.U16,
	5: formats.I16, 6: formats.I32, 7: formats.I64,
	9: formats.Bool, 10: formats.F16, 11: formats.F64, 12: formats.U32, 13: formats.U64, 14: formats.C64,
	15: formats.C128, 16: formats.BF16,
	17: formats.F8E4M3, 19: formats.F8E5M2}

// onnxTensor is a TensorProto.
type onnxTensor struct {
	name  string
	dtype uint64
	dims  []int64
	data  []protowire.Field // where the elements are
	size  int64             // bytes of those
}

func (t *onnxTensor) integer() bool {
	return t.dtype >= 2 && t.dtype <= 9 && t.dtype != 8 || t.dtype == 12 || t.dtype == 13
}

func (o *onnxParser) tensor(s protowire.Span) (t onnxTensor, err error) {
	err = o.Fields(s, func(f protowire.Field) (err error) {
		switch f.Number {
		case 1:
			return o.Numbers(f, protowire.Varint, func(v uint64) { t.dims = append(t.dims, int64(v)) })
		case 2:
			t.dtype = f.Value
		case 4, 5, 6, 7, 9, 10, 11:
			t.data = append(t.data, f)
			t.size += 8
			if f.Type == protowire.Bytes {
				t.size += f.Span.Len()
			}
		case 8:
			t.name, err = o.string(f.Span)
		case 13, 14: // elements in another file
			if f.Number == 14 && f.Value == 0 {
				return nil
			}
			t.size = math.MaxInt32
		}
		return err
	})
	for _, d := range t.dims {
		if d < 0 && err == nil {
			err = fmt.Errorf("tensor %q: shape %d: %w", t.name, t.dims, graph.ErrInvalid)
		}
	}
	return t, err
}

// constant is a tensor's type, shape and hash, as JSON.
func (o *onnxParser) constant(t *onnxTensor) (string, error) {
	if t.size == math.MaxInt32 {
		return "", fmt.Errorf("constant %q: its elements are in another file: %w", t.name, graph.ErrInvalid)
	}
	var all []byte
	for _, f := range t.data {
		all = strconv.AppendUint(all, uint64(f.Number), 10)
		if f.Type != protowire.Bytes {
			all = append(strconv.AppendUint(append(all, '='), f.Value, 10), ';')
			continue
		}
		p, err := o.Bytes(f.Span)
		if err != nil {
			return "", err
		}
		all = append(strconv.AppendInt(append(all, ':'), int64(len(p)), 10), ':')
		all = append(all, p...)
	}
	h := cas.Sum(all)
	dims := []byte{}
	for i, d := range t.dims {
		if i > 0 {
			dims = append(dims, ',')
		}
		dims = strconv.AppendInt(dims, d, 10)
	}
	return fmt.Sprintf(`{"dtype":%d,"hash":"%x","shape":[%s]}`, t.dtype, h[:16], dims), nil
}
