package gguf

import (
	"bytes"
	"testing"

	"ckptfs/formats"
)

// What is written is read: pairs of all types, and tensors at their offsets.
func TestAppendHeader(t *testing.T) {
	tensors := []Entry{{"a", formats.F32, []int64{3}}, {"b", formats.BF16, []int64{5, 7}},
		{"c", formats.F16, []int64{1}}}
	p, err := AppendHeader(nil, []Pair{{"u", uint32(1)}, {"i", int32(-1)}, {"f", float32(1.5)}, {"t", true},
		{"s", "text"}, {"ss", []string{"x", ""}}, {"fs", []float32{1, 2}}, {"is", []int32{3}}}, tensors)
	if err != nil {
		t.Fatal(err)
	}
	header := int64(len(p))
	if header%32 != 0 {
		t.Errorf("the header has %d bytes", header)
	}
	p = append(p, make([]byte, 32+96+32)...)
	l, err := Parser{}.Parse(bytes.NewReader(p), int64(len(p)))
	if err != nil {
		t.Fatal(err)
	}
	for i, off := range []int64{0, 32, 32 + 96} {
		x := &l.Tensors[i]
		at := l.Regions[x.Region].Off
		if x.Name != tensors[i].Name || x.DType != tensors[i].DType || at != header+off {
			t.Errorf("tensor %d: %v at %d, after %d", i, x, at, header)
		}
	}
	if _, err := AppendHeader(nil, nil, []Entry{{"a", formats.Bool, []int64{1}}}); err == nil {
		t.Error("a tensor of a type that the format lacks is written")
	}
	if _, err := AppendHeader(nil, []Pair{{"a", 1}}, nil); err == nil {
		t.Error("a value of a type that the format lacks is written")
	}
}
