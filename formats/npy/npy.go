// Package npy lays out NumPy's array files, and zips of them.
//
//	offset  bytes
//	0       6      "\x93NUMPY"
//	6       2      version: 1.0, 2.0 or 3.0
//	8       2 (4)  n, little-endian: 2 bytes in version 1, 4 in 2 and 3
//	10 (12) n      header: a Python dict literal, spaces, a newline; the whole is mostly a multiple of 64
//	…       …      the elements, row-major, or column-major with fortran_order
//
//	{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//
// A file may hold several arrays one after the other, as np.save on one file object leaves them. They are
// called arr_0, arr_1 and so on, as np.savez calls arrays without a name: one array saved by either has one
// name. In an .npz, a zip whose entries are all called NAME.npy, an array is called NAME.
//
// The layout of an array is a Blob region (the header) and a Data region (the elements), when there are any.
//
// # What is recognised
//
//	descr                                 is
//	|b1                                   a tensor of BOOL
//	|i1 |u1 <i2 <u2 <i4 <u4 <i8 <u8       a tensor of the integer type
//	<f2 <f4 <f8 <c8 <c16                  a tensor of F16, F32, F64, C64, C128
//	>… of more than one byte              Data without a tensor (layout Partial): no type of ours is
//	                                      big-endian
//	<f16 <c32, V S U M m of n bytes       Data without a tensor; the extension types of ml_dtypes are
//	                                      written as V
//	|O                                    no .npy for us: a pickle of unknown length follows
//	a list (structured), a subarray       the rest of the file is Blob
//
// '=' is taken for '<', and '|' too where the size is one byte. fortran_order gives a tensor column-major
// strides. The header's three keys occur once each, in any order, and nothing else does; the header has at
// most 65,536 bytes, the shape at most 64 dimensions. A file that ends before its elements do is a Blob. The
// parser takes the header's bytes and some 200 bytes an array, of which there are at most 65,536 in a file.
//
// An .npz must be a zip of package zipdir, with names that differ. A compressed entry (np.savez_compressed)
// is Blob.
package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"ckptfs/formats"
)

const (
	magic     = "\x93NUMPY"
	maxHeader = 1 << 16
	maxRank   = 64
	maxArrays = 1 << 16
)

// Format is the entry of .npy files in the table of formats.
var Format = formats.Format{
	Parser:  Parser{},
	Sniff:   Sniff,
	Names:   []formats.Name{{Name: Parser{}.Name()}},
	Endings: []string{".npy"},
	Views:   []string{".npy"},
}

// Parser is the parser of .npy files.
type Parser struct{}

// Name returns "npy".
func (Parser) Name() string { return "npy" }

// pickled is why an array is not listed.
const pickled = "arrays are pickled objects"

func reject(format string, args ...any) error {
	return fmt.Errorf("npy: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Sniff reports whether a file that starts with p may be one.
func Sniff(p []byte, _ int64) bool { return len(p) >= len(magic) && string(p[:len(magic)]) == magic }

// Parse returns the layout of a file of one array or more.
func (p Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	l := &formats.Layout{Format: p.Name()}
	for off := int64(0); off < size || off == 0; {
		n := len(l.Tensors)
		if n >= maxArrays {
			return nil, reject("more than %d arrays", maxArrays)
		}
		h, err := readHeader(r, off, size)
		if err != nil {
			return nil, err
		}
		l.Fill(off + h.len)
		if h.opaque { // how long its elements are is not known
			l.Leave(pickled)
			l.Fill(size)
			return l, nil
		}
		end, err := h.add(l, "arr_"+strconv.Itoa(n), off, size)
		if err != nil {
			return nil, err
		}
		off = end
	}
	return l, nil
}

// header is what an array's header says.
type header struct {
	len     int64 // bytes before the elements
	opaque  bool  // structured
	dtype   formats.DType
	width   int64 // bytes of an element
	fortran bool
	shape   []int64
}

// readHeader reads the header at off.
func readHeader(r io.ReaderAt, off, size int64) (*header, error) {
	var b [12]byte
	head := b[:min(int64(len(b)), size-off)]
	if err := formats.ReadFull(r, head, off); err != nil {
		return nil, err
	}
	if !Sniff(head, size) || len(head) < len(b) {
		return nil, reject("no magic at %d", off)
	}
	h := &header{len: 10}
	n := int64(binary.LittleEndian.Uint16(b[8:]))
	switch {
	case b[7] != 0:
		return nil, reject("version %d.%d", b[6], b[7])
	case b[6] == 2 || b[6] == 3:
		h.len, n = 12, int64(binary.LittleEndian.Uint32(b[8:]))
	case b[6] != 1:
		return nil, reject("version %d.%d", b[6], b[7])
	}
	if n > maxHeader || n > size-off-h.len {
		return nil, reject("header of %d bytes", n)
	}
	p := make([]byte, n)
	if err := formats.ReadFull(r, p, off+h.len); err != nil {
		return nil, err
	}
	h.len += n
	return h, h.parse(p)
}

// add appends the elements, which start at off + h.len, and returns where they end.
func (h *header) add(l *formats.Layout, name string, off, size int64) (int64, error) {
	t := formats.Tensor{Name: name, DType: h.dtype, Shape: h.shape, Region: -1}
	count := t.NumElements()
	left := size - off - h.len
	if count < 0 || h.width > 0 && count > left/h.width {
		return 0, reject("array of %v elements of %d bytes, %d left", h.shape, h.width, left)
	}
	n := count * h.width
	if n > 0 {
		t.Region = len(l.Regions)
		l.Regions = append(l.Regions, formats.Region{Off: off + h.len, Len: n, Kind: formats.Data})
		if h.fortran {
			t.SetColumnMajor()
		}
	}
	if h.dtype == "" {
		l.Leave("arrays are of types that tensors don't have")
	} else {
		l.Tensors = append(l.Tensors, t)
	}
	return off + h.len + n, nil
}
