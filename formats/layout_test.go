package formats

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	data := []Region{{0, 8, Blob}, {8, 16, Data}, {24, 4, Pad}}
	on := func(x Tensor) []Tensor { return []Tensor{x} }
	f32 := func(region int, offset int64, shape, stride []int64) Tensor {
		return Tensor{Name: "x", DType: F32, Shape: shape, Stride: stride, Region: region, Offset: offset}
	}
	for _, c := range []struct {
		name    string
		size    int64
		regions []Region
		tensors []Tensor
		want    string // part of the error; "" for none
	}{
		{"empty file", 0, nil, nil, ""},
		{"three regions", 28, data, nil, ""},
		{"no regions", 1, nil, nil, "cover 0 of 1"},
		{"too short", 29, data, nil, "cover 28 of 29"},
		{"too long", 27, data, nil, "past the file"},
		{"late start", 8, []Region{{1, 7, Blob}}, nil, "starts at 1"},
		{"gap", 8, []Region{{0, 3, Blob}, {4, 4, Blob}}, nil, "starts at 4"},
		{"overlap", 8, []Region{{0, 5, Blob}, {4, 4, Blob}}, nil, "starts at 4"},
		{"empty region", 8, []Region{{0, 0, Blob}, {0, 8, Blob}}, nil, "length 0"},
		{"negative region", 8, []Region{{0, -1, Blob}}, nil, "length -1"},
		{"overflowing region", 8, []Region{{0, 1<<63 - 1, Blob}}, nil, "past the file"},
		{"unknown kind", 8, []Region{{0, 8, Pad + 1}}, nil, "kind 3"},

		{"whole region", 28, data, on(f32(1, 0, []int64{4}, nil)), ""},
		{"scalar at the end", 28, data, on(f32(1, 12, nil, nil)), ""},
		{"one too many", 28, data, on(f32(1, 4, []int64{4}, nil)), "bytes [4, 20) of a storage of 16"},
		{"in a blob", 28, data, on(f32(0, 0, []int64{1}, nil)), "no data region"},
		{"in a pad", 28, data, on(f32(2, 0, []int64{1}, nil)), "no data region"},
		{"in no region", 28, data, on(f32(3, 0, []int64{1}, nil)), "no data region"},
		{"no bytes, no region", 28, data, on(f32(-1, 0, []int64{0, 5}, nil)), ""},
		{"bytes, no region", 28, data, on(f32(-1, 0, []int64{5}, nil)), "no region"},
		{"negative offset", 28, data, on(f32(1, -4, []int64{1}, nil)), "starts at byte -4"},
		{"offset past the end", 28, data, on(f32(1, 17, []int64{0}, nil)), "starts at byte 17"},
		{"transposed", 28, data, on(f32(1, 0, []int64{2, 2}, []int64{1, 2})), ""},
		{"expanded", 28, data, on(f32(1, 12, []int64{1000}, []int64{0})), ""},
		{"stride past the end", 28, data, on(f32(1, 0, []int64{2}, []int64{4})), "of a storage of 16"},
		{"negative stride", 28, data, on(f32(1, 12, []int64{2}, []int64{-1})), "negative stride"},
		{"too few strides", 28, data, on(f32(1, 0, []int64{1, 1}, []int64{1})), "1 strides for 2"},
		{"huge stride", 28, data, on(f32(1, 0, []int64{3, 3}, []int64{1 << 62, 1 << 62})), "overflow"},
		{"huge shape", 28, data, on(f32(1, 0, []int64{1 << 32, 1 << 32}, nil)), "has no size"},
		{"negative shape", 28, data, on(f32(1, 0, []int64{-1}, nil)), "has no size"},
		{"unknown type", 28, data, on(Tensor{DType: "X", Region: 1}), "has no size"},
		{"half a byte", 28, data, on(Tensor{DType: F4, Shape: []int64{3}, Region: 1}), "has no size"},
		{"strided half bytes", 28, data, on(Tensor{DType: F4, Shape: []int64{2}, Stride: []int64{2},
			Region: 1}), "4-bit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := (&Layout{Regions: c.regions, Tensors: c.tensors}).Check(c.size)
			if c.want == "" && err != nil ||
				c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestBlobLayout(t *testing.T) {
	for _, size := range []int64{0, 1, 1 << 40} {
		if err := BlobLayout(size).Check(size); err != nil {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func TestReadFull(t *testing.T) {
	r := strings.NewReader("abcdef")
	p := make([]byte, 4)
	if err := ReadFull(r, p, 2); err != nil || string(p) != "cdef" {
		t.Errorf("%q, %v", p, err)
	}
	if err := ReadFull(r, p, 3); err != io.ErrUnexpectedEOF {
		t.Errorf("past the end: %v", err)
	}
	if err := ReadFull(r, nil, 100); err != nil {
		t.Errorf("nothing: %v", err)
	}
	disk := errors.New("disk")
	if err := ReadFull(failing{disk}, p, 0); err != disk {
		t.Errorf("failing: %v", err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt(p []byte, off int64) (int, error) { return 0, f.err }
