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
// Each record data/<key> that has bytes is one Data region, whether or not a tensor lies in it; all else
// (headers, their 'Z' padding, descriptors, the other records, the directory) is Blob. The zip alone says
// where the regions are. The pickle only says which tensors lie in them: when it can't be understood, the
// file has its regions and no tensors.
//
// # The container
//
// The zip is one that package zipdir knows, and besides:
//
//  1. All names are <stem>/…, with one stem, and differ, also when case is ignored (torch's reader ignores
//     it).
//  2. <stem>/data.pkl, byteorder and data/… are stored (method 0). byteorder, when there, is "little".
//
// # TorchScript and torch.export
//
// A file with <stem>/constants.pkl is TorchScript's (Format "torchscript"): data.pkl is the module, whose
// attributes are found as any other object's, and data/… are its storages. What constants/… hold is Data
// without tensors.
//
// A file with <stem>/archive_format is torch.export's (Format "pt2"). It has no data.pkl; data/weights/… and
// data/constants/… are storages, which two JSON records describe:
//
//	data/weights/model_weights_config.json
//	{"config": {"fc.weight": {"path_name": "weight_0", "use_pickle": false, "tensor_meta": {"dtype": 7,
//	    "sizes": [{"as_int": 3}, …], "strides": [{"as_int": 2}, …], "storage_offset": {"as_int": 0},
//	    "layout": 7, …}}}}
//
// The tensors are called as the configurations call them; one of the same name in both, one that is pickled,
// of an unknown type, not strided, or outside of its record has no name, and the layout is then partial.
//
// # The pickle
//
// What is said of tensors in package torch holds; the storages are the records data/<key>.
package torchzip

import (
	"fmt"
	"io"

	"ckptfs/formats"
	"ckptfs/formats/torch"
	"ckptfs/formats/zipdir"
)

// maxPickle bounds data.pkl, in bytes; what is longer is not looked into.
const maxPickle = 64 << 20

// Format is the entry of torch.save's zip files in the table of formats.
var Format = formats.Format{
	Parser:  Parser{},
	Sniff:   zipdir.Sniff,
	Names:   []formats.Name{{Name: saved, Ordered: true}, {Name: scripted}, {Name: exported}},
	Endings: torch.Endings,
	Views:   torch.Endings,
}

// Parser is the parser of torch.save's zip files.
type Parser struct{}

// Name returns "torch-zip".
func (Parser) Name() string { return saved }

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
	l := &formats.Layout{Format: a.format}
	if err := a.addRegions(l, size); err != nil {
		return nil, err
	}
	if a.format == exported {
		err = a.readExported(r, l)
	} else {
		err = a.readTensors(r, l)
	}
	return l, err
}
