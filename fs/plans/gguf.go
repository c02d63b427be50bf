package plans

import (
	"bytes"
	"io"
	"math"
	"unsafe"

	"ckptfs/cas/half"
	"ckptfs/formats"
	"ckptfs/formats/gguf"
	"ckptfs/fs/plans/llamacpp"
)

// GGUF plans the file that llama.cpp makes of the folder of a model (package llamacpp has the version):
//
//	convert_hf_to_gguf.py FOLDER --outtype f32|f16|bf16 --outfile NAME.gguf
//
// The sources are the folder's files of weights, by their names, and of is what else it has.
//
// NaNs are as gguf-py and NumPy 2.4 make them: in BF16 quiet, with the upper bits of the payload; in F16 and
// F32 with those that fit.
func GGUF(sources []*Source, names []string, of *llamacpp.Folder, to formats.DType) (*Plan, error) {
	for i, s := range sources {
		of.Parts = append(of.Parts, llamacpp.Part{Name: names[i], Tensors: s.Layout.Tensors})
	}
	m, err := llamacpp.Convert(of, to)
	if err != nil {
		return nil, refusedGGUF(err)
	}
	entries := make([]gguf.Entry, len(m.Tensors))
	for i := range m.Tensors {
		entries[i] = m.Tensors[i].Entry
	}
	header, err := gguf.AppendHeader(nil, m.Pairs, entries)
	if err != nil {
		return nil, none("%v", err)
	}
	p := begin(header, 2*len(entries)) // and what lies between them
	for i := range m.Tensors {
		t := &m.Tensors[i]
		o, err := converted(sources, t)
		if err != nil {
			return nil, err
		}
		n := t.NumBytes() // AppendHeader has summed them
		p.add(n, o)
		p.add(gguf.Pad(n)-n, zeros{})
	}
	return p, nil
}

func refusedGGUF(err error) error {
	return none("%v. llama.cpp's convert_hf_to_gguf.py may know more", err)
}

// GGUFRefused is why GGUF makes no plan of a folder whose config.json says this; nil: the rest decides.
func GGUFRefused(path string, config []byte) error {
	if err := llamacpp.Refusal(path, config); err != nil {
		return refusedGGUF(err)
	}
	return nil
}

// converted is the tensor of a GGUF file.
func converted(sources []*Source, t *llamacpp.Tensor) (op, error) {
	if t.Index < 0 {
		var b []byte
		for _, x := range t.Data {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
		return literal(b), nil
	}
	if t.Experts != nil {
		return stacked(sources, t)
	}
	s := sources[t.Part]
	from := s.Layout.Tensors[t.Index]
	if t.Half > 0 { // of the rows of each expert
		rows, columns := t.Shape[1], t.Shape[2]
		from.Shape, from.Stride = t.Shape, []int64{2 * rows * columns, columns, 1}
		from.Offset += int64(t.Half-1) * rows * columns * int64(from.DType.Bits()/8)
	}
	if t.Heads > 0 { // rows 0 and d/2 of a head, then 1 and d/2+1, …
		d := from.Shape[0] / t.Heads
		columns := int64(1)
		if len(from.Shape) > 1 {
			columns = from.Shape[1]
		}
		from.Shape = []int64{t.Heads, d / 2, 2, columns}
		from.Stride = []int64{d * columns, columns, d / 2 * columns, 1}
	}
	o, err := taken(t.Part, s, from)
	if err != nil {
		return nil, err
	}
	return inType(o, from.DType, t.DType), nil
}

// inType is what gguf-py makes of numbers of a type, in another or the same.
func inType(o op, from, to formats.DType) op {
	switch {
	case from != to:
		return &cast{o, from, to, asNumPy}
	case to == formats.BF16:
		return quiet{o}
	}
	return o
}

// stacked are the weights of experts, one behind the other. They are of one type and shape.
func stacked(sources []*Source, t *llamacpp.Tensor) (op, error) {
	all := &chain{links: make([]link, 0, len(t.Experts))}
	var from formats.DType
	for _, at := range t.Experts {
		s := sources[at.Part]
		x := s.Layout.Tensors[at.Index]
		o, err := taken(at.Part, s, x)
		if err != nil {
			return nil, err
		}
		from = x.DType
		all.links = append(all.links, link{o, x.NumBytes()})
	}
	return inType(all, from, t.DType), nil
}

// zeros are bytes between tensors.
type zeros struct{}

func (zeros) read(_ []io.ReaderAt, p []byte, _ int64) error {
	clear(p)
	return nil
}

func (zeros) memory() int64 { return 0 }

// literal is a tensor's bytes.
type literal []byte

func (l literal) read(_ []io.ReaderAt, p []byte, off int64) error {
	copy(p, l[off:])
	return nil
}

func (l literal) memory() int64 { return int64(cap(l)) }

// asNumPy converts numbers of F32, F16 or BF16 to another of these types as gguf-py does.
func asNumPy(dst, wide, src []byte, from, to formats.DType) {
	if to == formats.F32 {
		wide = dst
	}
	switch from {
	case formats.F32:
		wide = src
	case formats.F16:
		widenExactly(wide, src)
	case formats.BF16:
		widen(wide, src, formats.BF16)
	}
	switch to {
	case formats.F16:
		half.Round(dst, wide, half.F16)
		if !finite(dst, 0x7c00) {
			eachNaN(dst, wide, 0x7c00, f16NaN)
		}
	case formats.BF16:
		half.Round(dst, wide, half.BF16)
		if bytes.Contains(dst, []byte{0xc0, 0x7f}) { // what a NaN is rounded to
			eachNaN(dst, wide, 0x7f80, bf16NaN)
		}
	}
}

// quiet are numbers of bfloat16 that another operation gives, their NaNs quiet.
type quiet struct{ of op }

func (q quiet) read(src []io.ReaderAt, p []byte, off int64) error {
	return inSlabs(p, off, 2, func(dst []byte, first int64) error {
		if err := q.of.read(src, dst, 2*first); err != nil {
			return err
		}
		quieten(dst)
		return nil
	})
}

func (q quiet) memory() int64 { return int64(unsafe.Sizeof(q)) + q.of.memory() }

// quieten makes the NaNs of numbers of bfloat16 quiet.
func quieten(p []byte) {
	if finite(p, 0x7f80) {
		return
	}
	for ; len(p) >= 2; p = p[2:] {
		if x := le.Uint16(p); x&0x7fff > 0x7f80 {
			le.PutUint16(p, x|0x40)
		}
	}
}

// finite reports that no number of 2 bytes has all the bits of its exponent.
func finite(p []byte, exponent uint16) bool {
	const ones = 0x0001000100010001
	all := uint64(exponent) * ones
	for ; len(p) >= 8; p = p[8:] {
		x := ^le.Uint64(p) & all // zero where a number has them
		if (x-ones)&^x&(0x8000*ones) != 0 {
			return false
		}
	}
	for ; len(p) >= 2; p = p[2:] {
		if le.Uint16(p)&exponent == exponent {
			return false
		}
	}
	return true
}

// eachNaN sets the NaNs of dst to what as makes of those of src, in single precision.
func eachNaN(dst, src []byte, exponent uint16, as func(uint32) uint16) {
	for ; len(dst) >= 2; dst, src = dst[2:], src[4:] {
		if le.Uint16(dst)&0x7fff > exponent {
			le.PutUint16(dst, as(le.Uint32(src)))
		}
	}
}

func bf16NaN(x uint32) uint16 { return uint16(x>>16) | 0x40 }

func f16NaN(x uint32) uint16 {
	payload := uint16(x >> 13 & 0x3ff)
	return uint16(x>>16)&0x8000 | 0x7c00 | max(payload, 1)
}

// widenExactly is widen of F16, with a NaN's bits as they are.
func widenExactly(dst, src []byte) {
	table := fromF16()
	for ; len(src) >= 2; src, dst = src[2:], dst[4:] {
		h := le.Uint16(src)
		x := table[h]
		if h&0x7fff > 0x7c00 {
			x = uint32(h&0x8000)<<16 | 0x7f800000 | uint32(h&0x3ff)<<13
		}
		le.PutUint32(dst, x)
	}
}
