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
// without bound: more than 1,048,576 tensors, and more than 4,194,304 dimensions in all. One because
// formats.Tensor can't state it: a tensor without elements whose other dimensions multiply to more than 2^62.
// The parser takes the header's n bytes, and about 200 bytes a tensor.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
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
type Parser struct{}

// Name returns "safetensors".
func (Parser) Name() string { return Name }

func reject(format string, args ...any) error {
	return fmt.Errorf("safetensors: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Parse returns the layout of a safetensors file.
func (p Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	header, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(header) {
		return nil, reject("header: not UTF-8")
	}
	entries, err := parseHeader(header)
	if err != nil {
		return nil, reject("header: %v", err)
	}
	return layOut(entries, lenBytes+int64(len(header)), size)
}

// readHeader returns the header's bytes. It looks at the first of them before it takes memory for all.
func readHeader(r io.ReaderAt, size int64) ([]byte, error) {
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

// entry is one tensor as the header states it.
type entry struct {
	name       string
	dtype      formats.DType
	shape      []uint64
	start, end uint64
}

// numBytes is the tensor's size by rule 6.
func (e *entry) numBytes() (uint64, error) {
	n := uint64(1)
	for _, d := range append(e.shape[:len(e.shape):len(e.shape)], uint64(e.dtype.Bits())) {
		hi, lo := bits.Mul64(n, d)
		if hi != 0 {
			return 0, fmt.Errorf("validation overflow: shape %v of %s", e.shape, e.dtype)
		}
		n = lo
	}
	if n%8 != 0 {
		return 0, fmt.Errorf("misaligned slice: %d bits", n)
	}
	return n / 8, nil
}

// layOut checks rules 5 to 7 and makes the layout of a file whose data starts at base.
func layOut(entries []entry, base, size int64) (*formats.Layout, error) {
	order := make([]int, len(entries)) // by offset
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &entries[i], &entries[j]
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	l := &formats.Layout{
		Format:  Name,
		Regions: []formats.Region{{Off: 0, Len: base, Kind: formats.Blob}},
		Tensors: make([]formats.Tensor, len(entries)),
	}
	var end uint64
	for _, i := range order {
		e := &entries[i]
		if e.start != end || e.end < e.start {
			return nil, reject("invalid offset: tensor %.64q has bytes [%d, %d), want a start of %d", e.name,
				e.start, e.end, end)
		}
		n, err := e.numBytes()
		if err != nil {
			return nil, reject("tensor %.64q: %v", e.name, err)
		}
		if e.end-e.start != n {
			return nil, reject("invalid info: tensor %.64q has %d bytes, its shape %d", e.name,
				e.end-e.start, n)
		}
		end = e.end
		if end > uint64(size-base) {
			return nil, reject("incomplete buffer: tensor %.64q ends at %d, the file has %d", e.name, end,
				size-base)
		}
		t := formats.Tensor{Name: e.name, DType: e.dtype, Shape: make([]int64, len(e.shape)), Region: -1}
		for k, d := range e.shape {
			if d > math.MaxInt64 {
				return nil, reject("tensor %.64q: dimension %d", e.name, d)
			}
			t.Shape[k] = int64(d)
		}
		if t.NumBytes() != int64(n) {
			return nil, reject("tensor %.64q: shape %v", e.name, e.shape)
		}
		if n > 0 {
			t.Region = len(l.Regions)
			l.Regions = append(l.Regions, formats.Region{Off: base + int64(e.start), Len: int64(n),
				Kind: formats.Data})
		}
		l.Tensors[i] = t
	}
	if end != uint64(size-base) {
		return nil, reject("incomplete buffer: tensors end at %d, the file has %d", end, size-base)
	}
	return l, nil
}
