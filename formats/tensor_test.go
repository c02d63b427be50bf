package formats

import (
	"math"
	"testing"
)

func TestNumBytes(t *testing.T) {
	for _, c := range []struct {
		dtype    DType
		shape    []int64
		elements int64
		bytes    int64
	}{
		{F32, nil, 1, 4},
		{F32, []int64{2, 3}, 6, 24},
		{C128, []int64{2}, 2, 32},
		{Bool, []int64{0}, 0, 0},
		{F64, []int64{1 << 40, 0, 1 << 20}, 0, 0},
		{F4, []int64{6}, 6, 3},
		{F4, []int64{5}, 5, -1},
		{F6E2M3, []int64{4}, 4, 3},
		{F6E3M2, []int64{3}, 3, -1},
		{U8, []int64{1 << 62}, 1 << 62, -1},
		{U8, []int64{1 << 58}, 1 << 58, 1 << 58},
		{U8, []int64{math.MaxInt64, 2}, -1, -1},
		{U8, []int64{3, -1}, -1, -1},
		{"", []int64{3}, 3, -1},
	} {
		x := Tensor{DType: c.dtype, Shape: c.shape}
		if n := x.NumElements(); n != c.elements {
			t.Errorf("%s %v: %d elements, want %d", c.dtype, c.shape, n, c.elements)
		}
		if n := x.NumBytes(); n != c.bytes {
			t.Errorf("%s %v: %d bytes, want %d", c.dtype, c.shape, n, c.bytes)
		}
	}
}

func TestContiguous(t *testing.T) {
	for _, c := range []struct {
		shape, stride []int64
		want          bool
	}{
		{nil, nil, true},
		{[]int64{2, 3}, nil, true},
		{nil, []int64{}, true},
		{[]int64{2, 3}, []int64{3, 1}, true},
		{[]int64{3, 2}, []int64{1, 3}, false},
		{[]int64{2, 3}, []int64{4, 1}, false},
		{[]int64{2, 3}, []int64{0, 1}, false},
		{[]int64{1, 3}, []int64{99, 1}, true}, // the stride of a single element doesn't matter
		{[]int64{0, 3}, []int64{7, 7}, true},  // nor do those of none
		{[]int64{3, 0}, []int64{7, 7}, true},
	} {
		x := Tensor{DType: F32, Shape: c.shape, Stride: c.stride}
		if got := x.Contiguous(); got != c.want {
			t.Errorf("shape %v stride %v: %v", c.shape, c.stride, got)
		}
	}
}
