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

// NumBytes is the size of the entry's data, or -1 as formats.Tensor has it.
func (e *Entry) NumBytes() int64 {
	t := formats.Tensor{DType: e.DType, Shape: e.Shape}
	return t.NumBytes()
}

// Pad is n rounded up to the alignment of files that do not state one.
func Pad(n int64) int64 { return pad(n, defaultAlignment) }

// AppendHeader appends what a file of version 3 begins with: pairs, tensor infos, and zeros to a multiple of
// 32. The tensors' bytes follow in the same order, each with zeros to a multiple of 32.
func AppendHeader(dst []byte, pairs []Pair, tensors []Entry) ([]byte, error) {
	from := len(dst)
	le := binary.LittleEndian
	word := func(v uint32) { dst = le.AppendUint32(dst, v) }
	text := func(s string) {
		dst = le.AppendUint64(dst, uint64(len(s)))
		dst = append(dst, s...)
	}
	array := func(typ uint32, n int) {
		word(typeArray)
		word(typ)
		dst = le.AppendUint64(dst, uint64(n))
	}
	dst = append(dst, magic...)
	word(3)
	dst = le.AppendUint64(dst, uint64(len(tensors)))
	dst = le.AppendUint64(dst, uint64(len(pairs)))
	for _, p := range pairs {
		text(p.Key)
		switch v := p.Value.(type) {
		case uint32:
			word(typeU32)
			word(v)
		case int32:
			word(typeI32)
			word(uint32(v))
		case float32:
			word(typeF32)
			word(math.Float32bits(v))
		case bool:
			word(typeBool)
			dst = append(dst, 0)
			if v {
				dst[len(dst)-1] = 1
			}
		case string:
			word(typeString)
			text(v)
		case []string:
			array(typeString, len(v))
			for _, s := range v {
				text(s)
			}
		case []float32:
			array(typeF32, len(v))
			for _, x := range v {
				word(math.Float32bits(x))
			}
		case []int32:
			array(typeI32, len(v))
			for _, x := range v {
				word(uint32(x))
			}
		default:
			return nil, fmt.Errorf("gguf: %s: a value of type %T", p.Key, v)
		}
	}
	offset := int64(0)
	for i := range tensors {
		t := &tensors[i]
		typ, ok := number(t.DType)
		n := t.NumBytes()
		if !ok || n < 0 || len(t.Shape) > maxRank || offset > math.MaxInt64-n-defaultAlignment {
			return nil, fmt.Errorf("gguf: tensor %.64q: %v of %s", t.Name, t.Shape, t.DType)
		}
		text(t.Name)
		word(uint32(len(t.Shape)))
		for d := len(t.Shape) - 1; d >= 0; d-- {
			dst = le.AppendUint64(dst, uint64(t.Shape[d]))
		}
		word(typ)
		dst = le.AppendUint64(dst, uint64(offset))
		offset += Pad(n)
	}
	n := int64(len(dst) - from)
	return append(dst, make([]byte, Pad(n)-n)...), nil
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
