package gguf

import (
	"encoding/binary"
	"fmt"
	"math"

	"ckptfs/formats"
)

// Pair is a key and its value: a uint32, int32, float32, bool, string, []string, []float32 or []int32.
type Pair struct {
	Key   string
	Value any
}

// Entry is a tensor that is about to be written. Its shape is as the other formats have it, outermost first.
type Entry struct {
	Name  string
	DType formats.DType
	Shape []int64
}

// Pad is n rounded up to the alignment of files that do not state one.
func Pad(n int64) int64 { return (n + defaultAlignment - 1) / defaultAlignment * defaultAlignment }

// AppendHeader appends what a file of version 3 begins with: pairs, tensor infos, and zeros to a multiple of
// 32. The tensors' bytes follow in the same order, each with zeros to a multiple of 32.
func AppendHeader(dst []byte, pairs []Pair, tensors []Entry) ([]byte, error) {
	from := len(dst)
	le := binary.LittleEndian
	text := func(s string) {
		dst = le.AppendUint64(dst, uint64(len(s)))
		dst = append(dst, s...)
	}
	dst = append(dst, magic...)
	dst = le.AppendUint32(dst, 3)
	dst = le.AppendUint64(dst, uint64(len(tensors)))
	dst = le.AppendUint64(dst, uint64(len(pairs)))
	for _, p := range pairs {
		text(p.Key)
		typ, n := kindOf(p.Value)
		if n >= 0 {
			dst = le.AppendUint32(dst, typeArray)
			dst = le.AppendUint32(dst, typ)
			dst = le.AppendUint64(dst, uint64(n))
		} else {
			dst = le.AppendUint32(dst, typ)
		}
		switch v := p.Value.(type) {
		case uint32:
			dst = le.AppendUint32(dst, v)
		case int32:
			dst = le.AppendUint32(dst, uint32(v))
		case float32:
			dst = le.AppendUint32(dst, math.Float32bits(v))
		case bool:
			dst = append(dst, 0)
			if v {
				dst[len(dst)-1] = 1
			}
		case string:
			text(v)
		case []string:
			for _, s := range v {
				text(s)
			}
		case []float32:
			for _, x := range v {
				dst = le.AppendUint32(dst, math.Float32bits(x))
			}
		case []int32:
			for _, x := range v {
				dst = le.AppendUint32(dst, uint32(x))
			}
		default:
			return nil, fmt.Errorf("gguf: %s: a value of type %T", p.Key, v)
		}
	}
	offset := int64(0)
	for i := range tensors {
		t := &tensors[i]
		typ, ok := number(t.DType)
		x := formats.Tensor{DType: t.DType, Shape: t.Shape}
		n := x.NumBytes()
		if !ok || n < 0 || len(t.Shape) > maxRank || offset > math.MaxInt64-n-defaultAlignment {
			return nil, fmt.Errorf("gguf: tensor %.64q: %v of %s", t.Name, t.Shape, t.DType)
		}
		text(t.Name)
		dst = le.AppendUint32(dst, uint32(len(t.Shape)))
		for d := len(t.Shape) - 1; d >= 0; d-- {
			dst = le.AppendUint64(dst, uint64(t.Shape[d]))
		}
		dst = le.AppendUint32(dst, typ)
		dst = le.AppendUint64(dst, uint64(offset))
		offset += Pad(n)
	}
	n := int64(len(dst) - from)
	return append(dst, make([]byte, Pad(n)-n)...), nil
}

// kindOf is the number of a value's type, and how many there are; -1 of what is no array.
func kindOf(v any) (typ uint32, n int) {
	switch v := v.(type) {
	case uint32:
		return typeU32, -1
	case int32:
		return typeI32, -1
	case float32:
		return typeF32, -1
	case bool:
		return typeBool, -1
	case []string:
		return typeString, len(v)
	case []float32:
		return typeF32, len(v)
	case []int32:
		return typeI32, len(v)
	}
	return typeString, -1
}

// number is ggml's number of a type.
func number(d formats.DType) (uint32, bool) {
	for n, t := range types {
		if t == d {
			return n, true
		}
	}
	return 0, false
}
