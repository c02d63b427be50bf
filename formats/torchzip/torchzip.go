// Package torchzip lays out the zip files of today's torch.save.
//
//	PK\3\4  <stem>/data.pkl              pickle: what is what
//	PK\3\4  <stem>/.format_version       "1"      (absent before torch 2.7)
//	PK\3\4  <stem>/.storage_alignment    "64"     (absent before torch 2.7)
//	PK\3\4  <stem>/byteorder             "little" (absent before torch 2.1)
//	PK\3\4  <stem>/data/0                raw bytes of storage 0, stored, on a 64-byte boundary
//	…
//	PK\3\4  <stem>/version               "3\n"
//	PK\3\4  <stem>/.data/serialization_id
//	PK\1\2  …                            central directory
//	PK\6\6, PK\6\7, PK\5\6               zip64 end, its locator, end
//
// Each record data/<key> that has bytes is one Data region, whether or not a tensor lies in it; all else (headers, their
// 'Z' padding, descriptors, the other records, the directory) is Blob. The zip alone says where the regions are. The
// pickle only says which tensors lie in them: when it can't be understood, the file has its regions and no tensors.
//
// # The container
//
// The zip is one that package zipdir knows, and besides:
//
//  1. All names are <stem>/…, with one stem, and differ, also when case is ignored (torch's reader ignores it).
//  2. <stem>/data.pkl, byteorder and data/… are stored (method 0). byteorder, when there, is "little".
//  3. It is no TorchScript archive: no constants.pkl, no code/.
//
// # The pickle
//
// A tensor is a call of one of torch's _rebuild functions, found below nested dicts, lists, tuples, OrderedDicts and
// other objects' items and state. Its name is the keys and indices on the way, joined by dots: in a flat state dict
// exactly the key. What can't be named with certainty has no name, and its bytes are still in a Data region:
//
//   - A key that is neither text nor an integer ends the way. Of equal keys the last one counts, as in Python.
//   - Of several tensors that would have one name, the first with the shortest way has it; the next is name#2.
//   - A tensor must lie inside its record, whose length must be what its persistent id says.
//   - Conjugated and negated views, meta tensors, 4-bit quantised, complex32, bits and unknown types have no name.
//   - The wrappers _rebuild_parameter, …_with_state and _rebuild_from_type_v2 are looked through.
//   - A quantised tensor is one of its integer type. Sparse and nested tensors are their parts: name.indices,
//     name.values, name.crow_indices, name.buffer …
package torchzip

import (
	"fmt"
	"io"

	"ckptfs/formats"
	"ckptfs/formats/zipdir"
)

// maxPickle bounds data.pkl, in bytes; what is longer is not looked into.
const maxPickle = 64 << 20

// Parser is the parser of torch.save's zip files.
type Parser struct{}

// Name returns "torch-zip".
func (Parser) Name() string { return "torch-zip" }

var _ formats.Parser = Parser{}

func reject(format string, args ...any) error {
	return fmt.Errorf("torch-zip: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Parse returns the layout of a torch-zip file. It reads the directory, the local headers and data.pkl.
func (p Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	records, err := zipdir.Read(r, size)
	if err != nil {
		return nil, err
	}
	a, err := newArchive(records)
	if err != nil {
		return nil, err
	}
	if err := a.checkByteOrder(r); err != nil {
		return nil, err
	}
	l := &formats.Layout{Format: p.Name()}
	a.addRegions(l, size)
	all := false
	l.Tensors, all, err = a.readTensors(r)
	l.Partial = !all
	return l, err
}
