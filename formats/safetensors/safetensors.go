// Package safetensors reads and writes the safetensors container.
//
//	offset  bytes
//	0       8      n, little-endian: length of the header
//	8       n      header: one JSON object in UTF-8, usually padded with spaces
//	8+n     …      the tensors' bytes, without gaps
//
//	{"__metadata__": {"format": "pt"},
//	 "fc.weight": {"dtype": "F32", "shape": [10, 512], "data_offsets": [0, 20480]}}
//
// Offsets count from 8+n. The layout is one Blob region of 8+n bytes, then one Data region for each tensor
// that has bytes, in the order of the data. Tensors without elements have no region.
//
// # Validation
//
// Parser accepts what the Rust crate (0.8, SafeTensors::read_metadata, serde_json) accepts:
//
//  1. The file has at least 8 bytes, n <= 100,000,000 and 8+n <= size.
//  2. The header is UTF-8 and one JSON object, nested less than 128 deep, with JSON white space at most
//     around it.
//  3. "__metadata__" is absent, null, or an object of strings; it occurs once at most.
//  4. Every other value is an object with dtype, shape and data_offsets, each once, and whatever else; or an
//     array of just these three in this order. dtype is a known code, shape an array of u64, data_offsets two
//     u64. Of entries with one name the last counts, but all must be well formed.
//  5. Sorted by data_offsets, the tensors start at 0 and each begins where the one before it ends.
//  6. The product of the shape times the type's bits does not overflow 64 bits, is a multiple of 8, and is
//     the length.
//  7. The last tensor ends with the file.
//
// Nothing is asked of the order of the entries, of the padding, or of alignment. A name may be empty.
//
// Three kinds of headers are refused that the crate accepts. Two because a hostile one must not take memory
// without bound: more than 1,048,576 entries, and more than 4,194,304 dimensions in all. One because
// formats.Tensor can't state it: a tensor without elements whose other dimensions multiply to more than 2^62.
// The parser takes the header's n bytes and, when these are read, some 200 bytes a tensor with a name of 20.
package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"ckptfs/formats"
)

// MaxHeader is the greatest header length, in bytes, that the crate accepts.
const MaxHeader = 100_000_000

const (
	maxTensors = 1 << 20
	maxDims    = 1 << 22
	lenBytes   = 8

	metadataKey = "__metadata__"
)

// dtypes has the types of the specification; formats.C128 is not one of them.
var dtypes = []formats.DType{
	formats.Bool, formats.F4, formats.F6E2M3, formats.F6E3M2, formats.U8, formats.I8, formats.F8E5M2,
	formats.F8E4M3, formats.F8E8M0, formats.F8E4M3FZ, formats.F8E5M2FZ, formats.I16, formats.U16, formats.F16,
	formats.BF16, formats.I32, formats.U32, formats.F32, formats.C64, formats.F64, formats.I64, formats.U64,
}

// HasType reports whether the format can hold elements of type d.
func HasType(d formats.DType) bool { return slices.Contains(dtypes, d) }

// Name is the format's name.
const Name = "safetensors"

// Format is safetensors' entry in the table of formats.
var Format = formats.Format{
	Parser:  Parser{},
	Sniff:   Sniff,
	Names:   []formats.Name{{Name: Name}},
	Endings: []string{".safetensors"},
}

// Parser is the parser of safetensors files.
type Parser struct{ memory int64 }

// perTensor is what the parser takes for a tensor beside the header's bytes, and maxShare over which part of
// its memory those may take.
const (
	perTensor = 250
	maxShare  = 2
)

// Bound is a formats.Bounded's: it is a longer header, or more tensors, that are refused.
func (Parser) Bound(memory int64) formats.Parser { return Parser{memory} }

// limits are the longest header, and how many tensors one of n bytes may have.
func (p Parser) limits(n int) (header uint64, tensors int) {
	if p.memory <= 0 {
		return MaxHeader, maxTensors
	}
	left := max(0, p.memory-int64(n))
	return min(MaxHeader, uint64(p.memory/maxShare)), int(min(maxTensors, left/perTensor))
}

// Name returns "safetensors".
func (Parser) Name() string { return Name }

func reject(format string, args ...any) error {
	return fmt.Errorf("safetensors: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Parse returns the layout of a safetensors file.
func (p Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	longest, _ := p.limits(0)
	header, err := readHeader(r, size, longest)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(header) {
		return nil, reject("header: not UTF-8")
	}
	_, most := p.limits(len(header))
	t, err := parseHeader(header, most)
	if err != nil {
		return nil, reject("header: %v", err)
	}
	return layOut(t, lenBytes+int64(len(header)), size)
}

// readHeader returns the header's bytes. It looks at the first of them before it takes memory for all.
func readHeader(r io.ReaderAt, size int64, longest uint64) ([]byte, error) {
	if size < lenBytes {
		return nil, reject("header too small: file of %d bytes", size)
	}
	var b [lenBytes]byte
	if err := formats.ReadFull(r, b[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(b[:])
	if n > MaxHeader {
		return nil, reject("header too large: %d bytes", n)
	}
	if n > longest {
		return nil, reject("a header of %d bytes, more than --memory has room for", n)
	}
	if int64(n) > size-lenBytes {
		return nil, reject("invalid header length: %d bytes in a file of %d", n, size)
	}
	prefix := make([]byte, min(n, 4096))
	if err := formats.ReadFull(r, prefix, lenBytes); err != nil {
		return nil, err
	}
	if !startsObject(prefix) {
		return nil, reject("header: no JSON object")
	}
	if uint64(len(prefix)) == n {
		return prefix, nil
	}
	header := make([]byte, n)
	copy(header, prefix)
	return header, formats.ReadFull(r, header[len(prefix):], lenBytes+int64(len(prefix)))
}

// Sniff reports whether a file of size bytes that starts with p may be one.
func Sniff(p []byte, size int64) bool {
	if len(p) < 8 || size < 8 {
		return false
	}
	n := binary.LittleEndian.Uint64(p)
	return n <= MaxHeader && int64(n) <= size-8 && startsObject(p[8:])
}

// startsObject reports whether a JSON text that starts with p may be an object.
func startsObject(p []byte) bool {
	p = bytes.TrimLeft(p, " \t\r\n")
	return len(p) == 0 || p[0] == '{'
}

// layOut checks rules 5 to 7 and makes the layout of a file whose data starts at base.
func layOut(t *table, base, size int64) (*formats.Layout, error) {
	l := &formats.Layout{
		Format:  Name,
		Regions: make([]formats.Region, 1, 1+len(t.rows)),
		Tensors: make([]formats.Tensor, len(t.rows)),
	}
	l.Regions[0] = formats.Region{Off: 0, Len: base, Kind: formats.Blob}
	data := uint64(size - base)
	var end uint64
	for _, i := range t.byOffset() {
		r := &t.rows[i]
		n, err := t.check(r, end, data)
		if err != nil {
			return nil, err
		}
		end = r.end
		x := &l.Tensors[i]
		*x = formats.Tensor{Name: t.name(r), DType: dtypes[r.dtype], Shape: t.shape(r), Region: -1}
		if x.NumBytes() != int64(n) { // a dimension that int64 has not
			return nil, reject("tensor %.64q: shape of %d dimensions", x.Name, len(x.Shape))
		}
		if n > 0 {
			x.Region = len(l.Regions)
			l.Regions = append(l.Regions, formats.Region{Off: base + int64(r.start), Len: int64(n),
				Kind: formats.Data})
		}
	}
	if end != data {
		return nil, reject("incomplete buffer: tensors end at %d, the file has %d", end, data)
	}
	return l, nil
}

// check returns the bytes of a tensor that has to start where the one before it ends, in a file with so many
// bytes of data.
func (t *table) check(r *row, start, data uint64) (uint64, error) {
	if r.start != start || r.end < r.start {
		return 0, reject("invalid offset: tensor %.64q has bytes [%d, %d), want a start of %d", t.name(r),
			r.start, r.end, start)
	}
	n, err := numBytes(t.shape(r), dtypes[r.dtype])
	if err != nil {
		return 0, reject("tensor %.64q: %v", t.name(r), err)
	}
	if r.end-r.start != n {
		return 0, reject("invalid info: tensor %.64q has %d bytes, its shape %d", t.name(r), r.end-r.start, n)
	}
	if r.end > data {
		return 0, reject("incomplete buffer: tensor %.64q ends at %d, the file has %d", t.name(r), r.end, data)
	}
	return n, nil
}
