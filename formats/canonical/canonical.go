// Package canonical gives the tensors of a file an identity that does not depend on the file: the canonical
// index, version 2, the byte stream that it describes, and their hashes.
//
// # Index
//
// One JSON object in UTF-8, without spaces, keys ascending by their bytes:
//
//	{"fc.bias":[0,40,[10],[1],"torch.float32",0],"fc.weight":[40,20480,[10,512],[512,1],"torch.float32",0]}
//	            │ │  │    │   │               └ storage offset: bytes from the storage's start to element 0
//	            │ │  │    │   └ dtype, as torch names it
//	            │ │  │    └ strides, in elements
//	            │ │  └ shape
//	            │ └ size: bytes of the whole storage
//	            └ offset: where the storage begins in the stream
//
// Numbers are unsigned decimal. Strings are raw UTF-8, but for \" \\ \b \f \n \r \t and \u00xx below 0x20.
//
// Tensors are laid out by ascending name. The first name of a storage places it at the next multiple of 8;
// its other names share offset and size. Storages are the Data regions of a layout: a safetensors file has
// one for each tensor, a torch file one for all the views of a tensor. So the order of the file's bytes has
// no part in the identity, and neither have headers, other objects and padding.
//
// # Stream
//
//	DATA  the storages, by offset
//	PAD   zeros: the gaps between them, whatever the source holds there
//
// The stream ends with the last storage.
//
// # Hashes
//
// Leaves of the stream have 4 MiB, halved while that is more than 512 KiB and there are fewer than 4096
// leaves. A leaf's hash is its SHA-256, a node's the SHA-256 of its two children's hashes; an odd node is
// promoted. The root of one leaf is the leaf, that of none the SHA-256 of nothing.
//
//	multihash     0x12 0x20, the 32 bytes of the hash; written as 'b' and lower-case base32 without padding,
//	              56 characters
//	index hash    the SHA-256 of the index's bytes
//	data hash     the root
//	artifact id   "mi2:" index multihash ":" data multihash, 117 characters
//
// # Where others differ
//
// The format is TensorCast's, whose builders disagree with each other in places. Here:
//
//   - A tensor without elements takes the cursor as it is, unaligned, with size 0, and moves nothing. Its
//     strides are torch's: the product of max(d, 1) over the later dimensions. A stream of no bytes has an
//     id.
//   - Non-ASCII text and 0x7f are written raw. Duplicate names are an error, as is an index with a duplicate
//     key.
//   - BOOL is torch.bool. Types that torch lacks are written by their code (F6_E2M3, Q4_K). Torch counts F4
//     in pairs, so the last dimension is halved; when it is odd there is no id.
//   - The storage offset is in bytes, and every element must lie in its storage.
//   - Contiguous tensors have row-major strides, whatever a dimension of size one says.
//   - safetensors clones tensors that share memory: a model with tied weights has another id there than in a
//     torch file.
package canonical

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ckptfs/formats"
)

// ErrNoID says that a file's tensors have no identity: the file has none, or some that no name stands for.
var ErrNoID = errors.New("no artifact id")

// ErrIndex says that bytes are no canonical index, or one that lies.
var ErrIndex = errors.New("not a canonical index")

// Entry is one tensor of an index.
type Entry struct {
	Name          string
	Offset, Size  int64 // of the storage, bytes; Offset in the stream
	Shape, Stride []int64
	DType         string
	StorageOffset int64 // bytes
}

// Index is the canonical index of a set of tensors.
type Index struct {
	Entries []Entry // by ascending name

	// Source has, for each entry, the region that its storage is, -1 for none. It is empty after Decode.
	Source []int
}

const align = 8

// Build makes the index of a layout's tensors. The layout must pass Check.
func Build(l *formats.Layout) (*Index, error) {
	if l.Partial {
		return nil, fmt.Errorf("%w: the file holds tensors that have no name", ErrNoID)
	}
	if len(l.Tensors) == 0 {
		return nil, fmt.Errorf("%w: no tensors", ErrNoID)
	}
	order := make([]*formats.Tensor, len(l.Tensors))
	for i := range order {
		order[i] = &l.Tensors[i]
	}
	slices.SortFunc(order, func(a, b *formats.Tensor) int { return strings.Compare(a.Name, b.Name) })
	x := &Index{Entries: make([]Entry, len(order)), Source: make([]int, len(order))}
	placed := make([]int64, len(l.Regions)) // offsets of the regions' storages, and one; 0: it has none yet
	var cursor int64
	for i, t := range order {
		if i > 0 && t.Name == order[i-1].Name {
			return nil, fmt.Errorf("%w: two tensors called %q", ErrNoID, t.Name)
		}
		e := Entry{Name: t.Name, Offset: cursor, StorageOffset: t.Offset}
		if err := e.describe(t); err != nil {
			return nil, err
		}
		x.Source[i] = -1
		if t.NumElements() > 0 {
			n := l.Regions[t.Region].Len
			if placed[t.Region] == 0 {
				off := (cursor + align - 1) &^ (align - 1)
				if off > 1<<62-n {
					return nil, fmt.Errorf("%w: too large", ErrNoID)
				}
				placed[t.Region] = off + 1
				cursor = off + n
			}
			off := placed[t.Region] - 1
			e.Offset, e.Size, x.Source[i] = off, n, t.Region
		} else {
			e.StorageOffset = 0
		}
		x.Entries[i] = e
	}
	return x, nil
}

var torchNames = map[formats.DType]string{
	formats.Bool: "bool", formats.U8: "uint8", formats.I8: "int8", formats.I16: "int16",
	formats.U16: "uint16", formats.F16: "float16", formats.BF16: "bfloat16", formats.I32: "int32",
	formats.U32: "uint32", formats.F32: "float32", formats.C64: "complex64", formats.F64: "float64",
	formats.I64: "int64", formats.U64: "uint64", formats.C128: "complex128", formats.F8E5M2: "float8_e5m2",
	formats.F8E4M3: "float8_e4m3fn", formats.F8E8M0: "float8_e8m0fnu", formats.F8E4M3FZ: "float8_e4m3fnuz",
	formats.F8E5M2FZ: "float8_e5m2fnuz", formats.F4: "float4_e2m1fn_x2",
}

// describe sets e's shape, strides and type. It shares what it can with t: a file may have a million tensors.
func (e *Entry) describe(t *formats.Tensor) error {
	if e.Shape = t.Shape; e.Shape == nil {
		e.Shape = []int64{}
	}
	if t.DType == formats.F4 {
		e.Shape = slices.Clone(e.Shape)
		last := len(e.Shape) - 1
		if last < 0 || e.Shape[last]%2 != 0 {
			return fmt.Errorf("%w: tensor %q: an odd number of 4-bit elements", ErrNoID, t.Name)
		}
		e.Shape[last] /= 2
	}
	e.DType = string(t.DType)
	if name, ok := torchNames[t.DType]; ok {
		e.DType = "torch." + name
	}
	if e.Stride = t.Stride; t.Contiguous() {
		e.Stride = rowMajor(e.Shape)
	}
	return nil
}

// rowMajor is the strides that torch gives a new tensor.
func rowMajor(shape []int64) []int64 {
	out := make([]int64, len(shape))
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		out[i] = n
		n *= max(shape[i], 1)
	}
	return out
}

// Span is a part of the stream.
type Span struct {
	Off, Len int64
	Pad      bool
	Entry    int // for DATA: the first entry whose storage it is
}

// Map returns the stream's spans: gapless, from 0 to the stream's end. Storages that overlap and are not
// equal are ErrIndex.
func (x *Index) Map() ([]Span, error) {
	order := make([]int, 0, len(x.Entries))
	for i := range x.Entries {
		if x.Entries[i].Size > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &x.Entries[i], &x.Entries[j]
		switch {
		case a.Offset != b.Offset:
			return int(min(max(a.Offset-b.Offset, -1), 1))
		default:
			return int(min(max(a.Size-b.Size, -1), 1))
		}
	})
	order = slices.CompactFunc(order, func(i, j int) bool {
		a, b := &x.Entries[i], &x.Entries[j]
		return a.Offset == b.Offset && a.Size == b.Size
	})
	n := 0 // spans
	var end int64
	for _, i := range order {
		e := &x.Entries[i]
		if e.Offset < end {
			return nil, fmt.Errorf("%w: storages overlap: %q begins at %d, before %d", ErrIndex, e.Name,
				e.Offset, end)
		}
		if n++; e.Offset > end {
			n++
		}
		end = e.Offset + e.Size
	}
	spans := make([]Span, 0, n)
	end = 0
	for _, i := range order {
		e := &x.Entries[i]
		if e.Offset > end {
			spans = append(spans, Span{Off: end, Len: e.Offset - end, Pad: true})
		}
		spans = append(spans, Span{Off: e.Offset, Len: e.Size, Entry: i})
		end = e.Offset + e.Size
	}
	return spans, nil
}
