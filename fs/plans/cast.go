package plans

import (
	"io"
	"unsafe"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// Cast plans a file in another type, F32, F16 or BF16:
//
//	out = {k: t.to(dtype) if t.is_floating_point() else t for k, t in load_file(source).items()}
//
// as module.to(dtype) has it. Complex numbers, and types that torch cannot convert, are refused.
func Cast(s *Source, to formats.DType) (*Plan, error) {
	out := make([]output, 0, len(s.Layout.Tensors))
	for i := range s.Layout.Tensors {
		t := &s.Layout.Tensors[i]
		e := safetensors.Entry{Name: t.Name, DType: t.DType, Shape: t.Shape}
		switch t.DType {
		case formats.Bool, formats.U8, formats.I8, formats.I16, formats.U16, formats.I32, formats.U32,
			formats.I64, formats.U64, to:
			out = append(out, output{e, &copied{0, s.base(t)}})
			continue
		}
		if !convertible(t.DType, to) {
			return nil, none("tensor %q is of type %s, which is not converted to %s", t.Name, t.DType, to)
		}
		e.DType = to
		out = append(out, output{e, &cast{&copied{0, s.base(t)}, t.DType, to, asTorch}})
	}
	return plan(out, s.Metadata)
}

// cast is what another operation gives, in another type.
type cast struct {
	of       op
	from, to formats.DType
	as       func(dst, wide, src []byte, from, to formats.DType) // wide is room for the numbers as float32
}

func (c *cast) read(src []io.ReaderAt, p []byte, off int64) error {
	in, mid := slabs.Get().(*[8 * slab]byte), slabs.Get().(*[8 * slab]byte)
	defer slabs.Put(in)
	defer slabs.Put(mid)
	from, to := int64(c.from.Bits()/8), int64(c.to.Bits()/8)
	return inSlabs(p, off, to, func(dst []byte, first int64) error {
		n := int64(len(dst)) / to
		if err := c.of.read(src, in[:n*from], first*from); err != nil {
			return err
		}
		c.as(dst, mid[:4*n], in[:n*from], c.from, c.to)
		return nil
	})
}

func (c *cast) memory() int64 { return int64(unsafe.Sizeof(*c)) + c.of.memory() }

// asTorch converts numbers as torch does.
func asTorch(dst, wide, src []byte, from, to formats.DType) {
	if to == formats.F32 {
		widen(dst, src, from)
		return
	}
	nan := uint16(0x7fc0)
	if from == formats.F32 || from == formats.F64 {
		nan = 0xffff
	}
	if from == formats.F32 {
		wide = src
	} else {
		widen(wide, src, from)
	}
	narrow(dst, wide, to, nan)
}
