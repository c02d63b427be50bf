package formats

import (
	"fmt"
	"math/bits"
)

// DType is an element type by its safetensors code, such as "F32" or "BF16".
type DType string

// The element types, with the codes of the safetensors specification. "C128" is not in it; torch has the
// type.
const (
	Bool     DType = "BOOL"
	F4       DType = "F4"
	F6E2M3   DType = "F6_E2M3"
	F6E3M2   DType = "F6_E3M2"
	U8       DType = "U8"
	I8       DType = "I8"
	F8E5M2   DType = "F8_E5M2"
	F8E4M3   DType = "F8_E4M3"
	F8E8M0   DType = "F8_E8M0"
	F8E4M3FZ DType = "F8_E4M3FNUZ"
	F8E5M2FZ DType = "F8_E5M2FNUZ"
	I16      DType = "I16"
	U16      DType = "U16"
	F16      DType = "F16"
	BF16     DType = "BF16"
	I32      DType = "I32"
	U32      DType = "U32"
	F32      DType = "F32"
	C64      DType = "C64"
	F64      DType = "F64"
	I64      DType = "I64"
	U64      DType = "U64"
	C128     DType = "C128"
)

var dtypeBits = map[DType]int{
	Bool: 8, F4: 4, F6E2M3: 6, F6E3M2: 6, U8: 8, I8: 8, F8E5M2: 8, F8E4M3: 8, F8E8M0: 8, F8E4M3FZ: 8,
	F8E5M2FZ: 8, I16: 16, U16: 16, F16: 16, BF16: 16, I32: 32, U32: 32, F32: 32, C64: 64, F64: 64, I64: 64,
	U64: 64, C128: 128,
}

// block is how a quantised type packs elements, by the names and sizes of ggml (ggml-common.h).
type block struct{ elements, bytes int64 }

var dtypeBlocks = map[DType]block{
	"Q4_0": {32, 18}, "Q4_1": {32, 20}, "Q5_0": {32, 22}, "Q5_1": {32, 24}, "Q8_0": {32, 34},
	"Q2_K": {256, 84}, "Q3_K": {256, 110}, "Q4_K": {256, 144}, "Q5_K": {256, 176}, "Q6_K": {256, 210},
	"IQ2_XXS": {256, 66}, "IQ2_XS": {256, 74}, "IQ3_XXS": {256, 98}, "IQ1_S": {256, 50}, "IQ4_NL": {32, 18},
	"IQ3_S": {256, 110}, "IQ2_S": {256, 82}, "IQ4_XS": {256, 136}, "IQ1_M": {256, 56}, "TQ1_0": {256, 54},
	"TQ2_0": {256, 66}, "MXFP4": {32, 17},
	"NVFP4": {64, 36},
	"Q1_0":  {128, 18},
}

// Block is how many elements of a row a quantised type packs into how many bytes; 0, 0 for other types.
func (d DType) Block() (elements, bytes int64) {
	b := dtypeBlocks[d]
	return b.elements, b.bytes
}

// Bits is the width of one element, or 0 for a type that is not known or packs its elements in blocks.
func (d DType) Bits() int { return dtypeBits[d] }

// Tensor is a named array in a file.
type Tensor struct {
	Name   string
	DType  DType
	Shape  []int64 // elements per dimension; empty for a scalar
	Stride []int64 // elements, as long as Shape; nil means row-major and contiguous
	Region int     // index into Layout.Regions of its storage; -1 when the tensor holds no bytes
	Offset int64   // bytes from the region's start to element 0
}

// NumElements is the product of the shape, or -1 when that overflows or a dimension is negative.
func (t *Tensor) NumElements() int64 {
	n := uint64(1)
	zero := false
	for _, d := range t.Shape {
		if d < 0 {
			return -1
		}
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > 1<<62 {
			return -1
		}
		n = lo
	}
	if zero {
		return 0
	}
	return int64(n)
}

// NumBytes is the size of the tensor's elements laid out contiguously, or -1 when that overflows, is no whole
// number of bytes or of blocks, or the type is unknown.
func (t *Tensor) NumBytes() int64 {
	n, b := t.NumElements(), int64(t.DType.Bits())
	if per, size := t.DType.Block(); per > 0 {
		if last := len(t.Shape) - 1; n < 0 || last < 0 || t.Shape[last]%per != 0 || n/per > (1<<62)/size {
			return -1
		}
		return n / per * size
	}
	if n < 0 || b == 0 || n > (1<<62)/b || n*b%8 != 0 {
		return -1
	}
	return n * b / 8
}

// Contiguous reports whether the elements lie row-major without gaps, so that [Offset, Offset+NumBytes) of
// the region is the tensor.
func (t *Tensor) Contiguous() bool {
	if t.Stride == nil || t.NumElements() == 0 {
		return true
	}
	want := int64(1)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		if t.Shape[i] != 1 && t.Stride[i] != want {
			return false
		}
		want *= t.Shape[i]
	}
	return true
}

// SetColumnMajor sets the strides of elements that lie column-major without gaps: none where that is
// row-major, too.
func (t *Tensor) SetColumnMajor() {
	t.Stride = make([]int64, len(t.Shape))
	step := int64(1)
	for i, n := range t.Shape {
		t.Stride[i] = step
		step *= n
	}
	if t.Contiguous() {
		t.Stride = nil
	}
}

// CheckBounds returns an error unless every element lies inside a storage of n bytes.
func (t *Tensor) CheckBounds(n int64) error {
	size := t.NumBytes()
	if size < 0 {
		return fmt.Errorf("layout: tensor %q: shape %v of %s has no size", t.Name, t.Shape, t.DType)
	}
	if t.Stride != nil && len(t.Stride) != len(t.Shape) {
		return fmt.Errorf("layout: tensor %q: %d strides for %d dimensions", t.Name, len(t.Stride),
			len(t.Shape))
	}
	if t.Offset < 0 || t.Offset > n {
		return fmt.Errorf("layout: tensor %q starts at byte %d of a storage of %d", t.Name, t.Offset, n)
	}
	if size == 0 {
		return nil
	}
	span := size
	if t.Stride != nil {
		b := int64(t.DType.Bits())
		if b%8 != 0 {
			return fmt.Errorf("layout: tensor %q: strides over %d-bit elements", t.Name, b)
		}
		last := int64(0) // index of the last element
		for i, d := range t.Shape {
			s := t.Stride[i]
			if s < 0 {
				return fmt.Errorf("layout: tensor %q: negative stride", t.Name)
			}
			hi, lo := bits.Mul64(uint64(d-1), uint64(s))
			if hi != 0 || lo > 1<<58 || last > 1<<58 {
				return fmt.Errorf("layout: tensor %q: strides overflow", t.Name)
			}
			last += int64(lo)
		}
		if last > (1<<62)/(b/8)-1 {
			return fmt.Errorf("layout: tensor %q: strides overflow", t.Name)
		}
		span = (last + 1) * (b / 8)
	}
	if span > n-t.Offset {
		return fmt.Errorf("layout: tensor %q: bytes [%d, %d) of a storage of %d", t.Name, t.Offset,
			t.Offset+span, n)
	}
	return nil
}
