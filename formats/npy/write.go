package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"

	"ckptfs/formats"
)

// headerAlign is what NumPy pads a header to, so that the elements can be mapped.
const headerAlign = 64

// ErrNoArray: the tensor has more dimensions than NumPy allows, or a type that cannot be stated.
var ErrNoArray = errors.New("no NumPy array")

// written has the descr of each type. Those that NumPy lacks are the unsigned integers of their bits, which
// array.view(ml_dtypes.bfloat16) and torch's view(torch.bfloat16) take back.
var written = map[formats.DType]string{
	formats.Bool: "|b1", formats.U8: "|u1", formats.I8: "|i1", formats.I16: "<i2", formats.U16: "<u2",
	formats.F16: "<f2", formats.I32: "<i4", formats.U32: "<u4", formats.F32: "<f4", formats.C64: "<c8",
	formats.F64: "<f8", formats.I64: "<i8", formats.U64: "<u8", formats.C128: "<c16", formats.BF16: "<u2",
	formats.F8E5M2: "|u1", formats.F8E4M3: "|u1", formats.F8E8M0: "|u1", formats.F8E4M3FZ: "|u1",
	formats.F8E5M2FZ: "|u1",
}

// AppendHeader appends the header of a file of t's elements, which are to follow row-major and without gaps:
// version 1.0, padded with spaces to a multiple of 64 when dst is empty. Equal tensors have equal headers.
//
//	type of t               descr   shape
//	in the table of Parser  itself  t's
//	BF16                    <u2     t's
//	F8 of any kind          |u1     t's
//	F4                      |u1     the last dimension halved: two elements a byte; [bytes] when that is odd
//	F6 of any kind          |u1     [bytes]
//	quantised (Q4_K, …)     |u1     the last dimension in bytes: its blocks
func AppendHeader(dst []byte, t *formats.Tensor) ([]byte, error) {
	n := t.NumBytes()
	if n < 0 || len(t.Shape) > maxRank {
		return nil, ErrNoArray
	}
	descr, shape := written[t.DType], t.Shape
	if descr == "" {
		descr, shape = "|u1", packedShape(t, n)
	}
	at := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, 1, 0, 0, 0)
	dst = append(dst, "{'descr': '"+descr+"', 'fortran_order': False, 'shape': ("...)
	for i, d := range shape {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = append(strconv.AppendInt(dst, d, 10), ',')
	}
	if len(shape) > 1 {
		dst = dst[:len(dst)-1]
	}
	dst = append(dst, "), }"...)
	if pad := (len(dst) - at + 1) % headerAlign; pad > 0 {
		dst = append(dst, bytes.Repeat([]byte{' '}, headerAlign-pad)...)
	}
	dst = append(dst, '\n')
	binary.LittleEndian.PutUint16(dst[at+8:], uint16(len(dst)-at-10))
	return dst, nil
}

// packedShape is the shape in bytes of a tensor of n bytes whose elements have no whole number of bytes.
func packedShape(t *formats.Tensor, n int64) []int64 {
	last := len(t.Shape) - 1
	per, size := t.DType.Block()
	if t.DType == formats.F4 {
		per, size = 2, 1
	}
	if per == 0 || last < 0 || t.Shape[last]%per != 0 {
		return []int64{n}
	}
	shape := append([]int64{}, t.Shape...)
	shape[last] = shape[last] / per * size
	return shape
}
