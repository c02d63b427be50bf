package npy

import (
	"bytes"
	"slices"
	"testing"

	"ckptfs/formats"
)

// TestAppendHeader: the parser finds what was written, and the elements begin where they can be mapped.
func TestAppendHeader(t *testing.T) {
	for _, c := range []struct {
		of, as formats.DType
		shape  []int64
		want   []int64
	}{
		{formats.F32, formats.F32, []int64{3, 4}, []int64{3, 4}},
		{formats.F64, formats.F64, nil, nil},
		{formats.Bool, formats.Bool, []int64{7}, []int64{7}},
		{formats.C128, formats.C128, []int64{1, 1, 2}, []int64{1, 1, 2}},
		{formats.I64, formats.I64, []int64{0, 5}, []int64{0, 5}},
		{formats.BF16, formats.U16, []int64{5, 2}, []int64{5, 2}},
		{formats.F8E4M3, formats.U8, []int64{9}, []int64{9}},
		{formats.F4, formats.U8, []int64{3, 4}, []int64{3, 2}},
		{formats.F4, formats.U8, []int64{2, 3}, []int64{3}},
		{formats.F6E2M3, formats.U8, []int64{2, 4}, []int64{6}},
		{"Q4_K", formats.U8, []int64{3, 512}, []int64{3, 288}},
		{formats.U8, formats.U8, slices.Repeat([]int64{1}, 64), slices.Repeat([]int64{1}, 64)},
	} {
		x := &formats.Tensor{DType: c.of, Shape: c.shape}
		p, err := AppendHeader(nil, x)
		if err != nil || len(p)%64 != 0 {
			t.Errorf("%s %v: %d bytes, %v", c.of, c.shape, len(p), err)
			continue
		}
		file := append(p, make([]byte, x.NumBytes())...)
		l, err := (Parser{}).Parse(bytes.NewReader(file), int64(len(file)))
		if err != nil || len(l.Tensors) != 1 {
			t.Errorf("%s %v: %v", c.of, c.shape, err)
			continue
		}
		if got := l.Tensors[0]; got.DType != c.as || !slices.Equal(got.Shape, c.want) ||
			got.NumBytes() != x.NumBytes() {
			t.Errorf("%s %v is %s %v", c.of, c.shape, got.DType, got.Shape)
		}
	}
	for _, x := range []formats.Tensor{{DType: "Q4_K", Shape: []int64{100}}, {DType: "no"},
		{DType: formats.U8, Shape: slices.Repeat([]int64{1}, 65)}} {
		if _, err := AppendHeader(nil, &x); err == nil {
			t.Errorf("%+v has a header", x)
		}
	}
}
