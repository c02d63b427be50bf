package hdf5

import (
	"bytes"
	"math"

	"ckptfs/formats"
)

// dataset notes the data of a dataset, and its tensor.
func (f *file) dataset(o *object, name string) error {
	t := formats.Tensor{Name: name, Region: -1}
	shape, shaped := readSpace(o.space)
	t.Shape = shape
	dtype, width := readType(o.typ)
	t.DType = dtype
	n := t.NumElements()
	switch {
	case !shaped || n < 0 || width > 0 && n > math.MaxInt64/width:
		f.leave(unknownType)
		return nil
	case o.external || len(o.layout) < 2 || o.layout[0] < 3 || o.layout[0] > 5:
		f.leave(elsewhere)
		return nil
	}
	const contiguous, chunked = 1, 2
	switch p := o.layout; {
	case width == 0: // of no fixed size, or shared
		f.leave(unknownType)
	case n == 0:
		f.tensor(t)
	case p[1] == contiguous && p[0] < 5:
		if len(p) < 18 {
			return reject("a layout of %d bytes", len(p))
		}
		at, size := le.Uint64(p[2:]), le.Uint64(p[10:])
		if at == undefined || size != uint64(n*width) || o.filters { // nothing written, or not what was said
			f.leave(notWritten)
			return nil
		}
		return f.place(t, at, n*width)
	case p[1] == chunked && p[0] == 3:
		return f.chunked(o, t, width)
	case p[1] == chunked: // versions 4 and 5
		return f.chunked4(o, t, width)
	default:
		f.leave(elsewhere)
	}
	return nil
}

// tensor adds t, unless it has no type.
func (f *file) tensor(t formats.Tensor) {
	if t.DType == "" {
		f.leave(unknownType)
		return
	}
	f.layout.Tensors = append(f.layout.Tensors, t)
}

// place adds a tensor whose n bytes are at address at.
func (f *file) place(t formats.Tensor, at uint64, n int64) error {
	if at > uint64(f.size) || n > f.size-int64(at) {
		return reject("dataset %.64q: past the file", t.Name)
	}
	t.Region = len(f.data)
	f.data = append(f.data, formats.Range{Off: int64(at), Len: n})
	f.tensor(t)
	return nil
}

// chunk is where a chunk of a dataset lies.
type chunk struct {
	formats.Range
	origin []int64 // elements; nil: not known
}

// chunked adds the chunks of a dataset of layout version 3: dimensions and one more, the B-tree, the chunks'
// dimensions, the element's size.
func (f *file) chunked(o *object, t formats.Tensor, width int64) error {
	p := o.layout
	rank := len(t.Shape)
	if len(p) < 3+8+4*(rank+1) || int(p[2]) != rank+1 {
		return reject("dataset %.64q: a layout of %d bytes", t.Name, len(p))
	}
	tree := le.Uint64(p[3:])
	dims := make([]int64, rank)
	for i := range dims {
		dims[i] = int64(le.Uint32(p[11+4*i:]))
	}
	if tree == undefined {
		f.leave(notWritten)
		return nil
	}
	var found []chunk
	err := f.chunks(tree, rank, 0, func(at uint64, n int64, place []byte) error {
		if at > uint64(f.size) || n > f.size-int64(at) {
			return reject("dataset %.64q: a chunk past the file", t.Name)
		}
		c := chunk{Range: formats.Range{Off: int64(at), Len: n}}
		if !o.filters {
			c.origin = make([]int64, rank)
			for i := range c.origin {
				c.origin[i] = int64(le.Uint64(place[8*i:]))
			}
		}
		found = append(found, c)
		return nil
	})
	if err != nil {
		return err
	}
	return f.tile(o, t, dims, width, found)
}

// tile adds a dataset of chunks: a tensor where one chunk has all of it; a tensor for each where they are all
// there, as they are; else they have none.
func (f *file) tile(o *object, t formats.Tensor, dims []int64, width int64, found []chunk) error {
	pieces, why := f.pieces(o, &t, dims, width, found)
	switch {
	case why != "":
		f.leave(why)
	case len(pieces) == 1:
		pieces[0].Name = t.Name
		return f.place(pieces[0], uint64(found[0].Off), found[0].Len)
	default:
		f.layout.Partial = true // it is shown by its parts
	}
	for i, c := range found {
		if c.Len < f.smallest {
			continue
		}
		if why == "" {
			pieces[i].Region = len(f.data)
			f.layout.Tensors = append(f.layout.Tensors, pieces[i])
		}
		f.data = append(f.data, c.Range)
	}
	return nil
}

// pieces makes a tensor of each chunk, or says why not.
func (f *file) pieces(
	o *object, t *formats.Tensor, dims []int64, width int64, found []chunk,
) (pieces []formats.Tensor, why string) {
	size, count := width, int64(1)
	for i, d := range dims {
		if d <= 0 || d > maxChunk/size || (t.Shape[i]-1)/d >= maxVisits/count {
			return nil, unknownChunks
		}
		size *= d
		count *= (t.Shape[i]-1)/d + 1
	}
	switch {
	case o.filters:
		return nil, filtered
	case t.DType == "":
		return nil, unknownType
	case int64(len(found)) != count:
		return nil, notWritten
	case count > 1 && (size < f.smallest || count > f.size/f.smallest):
		return nil, smallChunks
	}
	stride := make([]int64, len(dims))
	for i, n := len(dims)-1, int64(1); i >= 0; i-- {
		stride[i] = n
		n *= dims[i]
	}
	for _, c := range found {
		if c.Len != size || c.origin == nil {
			return nil, unknownChunks
		}
		x := formats.Tensor{DType: t.DType, Shape: make([]int64, len(dims)), Stride: stride}
		for i, at := range c.origin {
			if at < 0 || at >= t.Shape[i] || at%dims[i] != 0 {
				return nil, unknownChunks
			}
			x.Shape[i] = min(dims[i], t.Shape[i]-at) // chunks are whole, also at the edges
		}
		if x.Contiguous() {
			x.Stride = nil
		}
		x.Name = formats.PieceName(t.Name, c.origin, x.Shape)
		if f.names += len(x.Name); f.names > maxNames {
			return nil, smallChunks
		}
		pieces = append(pieces, x)
	}
	return pieces, ""
}

// Why a dataset is not among the tensors.
const (
	filtered      = "datasets are compressed"
	unknownType   = "datasets are of types that tensors don't have"
	notWritten    = "datasets are not written, or not all of them"
	smallChunks   = "datasets are in chunks of less than 4 KiB, or in too many"
	unknownChunks = "datasets are in chunks whose places are not known"
	elsewhere     = "datasets are in object headers, other files or other datasets"
)

func (f *file) leave(why string) { f.layout.Leave(why) }

// readSpace reads a dataspace.
func readSpace(p []byte) (shape []int64, ok bool) {
	if len(p) < 4 {
		return nil, false
	}
	const simple, null = 1, 2
	rank, at := int(p[1]), 4
	switch {
	case p[0] == 1:
		at = 8
	case p[0] != 2 || p[3] == null || p[3] > null || p[3] != simple && rank > 0:
		return nil, false
	}
	if rank > maxRank || len(p) < at+8*rank {
		return nil, false
	}
	shape = make([]int64, rank)
	for i := range shape {
		if shape[i] = int64(le.Uint64(p[at+8*i:])); shape[i] < 0 {
			return nil, false
		}
	}
	return shape, true
}

// bounds is how far each dimension of a dataspace may grow; -1: without end.
func bounds(p []byte, shape []int64) []int64 {
	at := 4
	if len(p) > 0 && p[0] == 1 {
		at = 8
	}
	at += 8 * len(shape)
	if len(p) < at+8*len(shape) || p[2]&1 == 0 { // they are left out
		return shape
	}
	most := make([]int64, len(shape))
	for i, n := range shape {
		if most[i] = int64(le.Uint64(p[at+8*i:])); most[i] < n {
			most[i] = -1
		}
	}
	return most
}

// readType reads a datatype: version and class, bits, size, properties. width is 0 where the bytes are not
// the values.
func readType(p []byte) (d formats.DType, width int64) {
	const fixed, float, text, opaque, compound, enum, array = 0, 1, 3, 5, 6, 8, 10
	if len(p) < 8 {
		return "", 0
	}
	class, bits, size := p[0]&15, p[1], int64(le.Uint32(p[4:]))
	switch class {
	case fixed:
		if bits&1 != 0 || len(p) < 12 || le.Uint16(p[8:]) != 0 || int64(le.Uint16(p[10:])) != 8*size {
			return "", size
		}
		unsigned := map[int64]formats.DType{1: formats.U8, 2: formats.U16, 4: formats.U32, 8: formats.U64}
		signed := map[int64]formats.DType{1: formats.I8, 2: formats.I16, 4: formats.I32, 8: formats.I64}
		if bits&8 != 0 {
			return signed[size], size
		}
		return unsigned[size], size
	case float:
		if bits&1 != 0 || bits&0x40 != 0 || len(p) < 20 || le.Uint16(p[8:]) != 0 ||
			int64(le.Uint16(p[10:])) != 8*size {
			return "", size
		}
		known := map[string]formats.DType{ // exponent's place and width, mantissa's place and width
			"\x0a\x05\x00\x0a": formats.F16, "\x07\x08\x00\x07": formats.BF16,
			"\x17\x08\x00\x17": formats.F32,
			"\x34\x0b\x00\x34": formats.F64,
		}
		if d = known[string(p[12:16])]; int64(d.Bits()) != 8*size {
			d = ""
		}
		return d, size
	case enum:
		if size == 1 && bits == 2 && bytes.Contains(p, []byte("FALSE\x00")) &&
			bytes.Contains(p, []byte("TRUE\x00")) &&
			bytes.HasSuffix(bytes.TrimRight(p, "\x00"), []byte{1}) {
			return formats.Bool, 1
		}
		return "", size
	case text, opaque, array:
		return "", size
	case compound:
		// A member may be a reference to elsewhere; then its bytes are still bytes, and there is no tensor.
		return "", size
	}
	return "", 0
}
