// Package hdf5 lays out HDF5 files: Keras's .h5, .weights.h5 (also inside of a .keras, which is a zip),
// h5py's.
//
//	superblock        "\x89HDF\r\n\x1a\n", versions 0 to 3: sizes of addresses and lengths, the root group's
//	                  address
//	object header     version 1, or 2 ("OHDR"), with its continuations: the messages of one group or dataset
//	group             a symbol table (B-tree "TREE" of nodes "SNOD", names in a local heap "HEAP"), or link
//	                  messages
//	dataset           messages: dataspace (shape), datatype, layout (where the bytes are), filters
//
// A dataset in one piece (contiguous), and each chunk of a chunked one, is a Data region when it has bytes; a
// chunk only from 4 KiB on, whether or not it is compressed. A tensor is called by its path:
// model_weights/dense/kernel:0.
//
// A dataset whose chunks are all there, as they are, is a tensor for each of them, called as Python slices
// it, and the layout is partial:
//
//	w[0:32,0:32] w[0:32,32:64] … w[64:70,96:100]     formats.PieceName; those at the edges have the strides
//	                                                 of a whole chunk
//
// # What is recognised
//
//	layout      contiguous: a tensor. Chunked, by a B-tree of version 1 or (libver="latest") a single
//	            address, a fixed array, none at all or, of dimensions that grow, an extensible array or a
//	            B-tree of version 2: a tensor if one chunk has all of it, and else one for each, unless they
//	            are filtered, not all written, too small or too many: then Data alone. Compact, virtual,
//	            external: Blob.
//	type        integers and floats of 1 to 8 bytes, little-endian, in their full width; bfloat16; h5py's
//	            bool (an enum of FALSE and TRUE). Others, compounds (h5py's complex) among them: Data alone,
//	            if their size is fixed.
//	groups      old (symbol tables) and new: with few links in the object header, or many in a fractal heap
//
// The places of chunks are those that a B-tree says. In the other indexes they follow one another: row-major,
// counted by how far the dimensions may grow, the one without a bound first.
//
// What is not a tensor makes the layout partial. Attributes, and links that are not hard, do not matter.
// Addresses and lengths have 8 bytes, and the superblock is at the file's start; else the file is a Blob, as
// is one that is shorter than its superblock says, whose structures don't hold together, or in which datasets
// overlap.
//
// # Bounds
//
// Groups nest at most 64 deep; at most 1,048,576 objects, chunks and nodes are visited, each once on a way;
// an object header has at most 1 MiB; structures of at most four times the file's size, and 1 GiB, are read.
// A dataset takes some 300 bytes, a chunk 40, and 250 more where it is a tensor, of which there is at most
// one for 4 KiB of the file.
package hdf5

import (
	"encoding/binary"
	"fmt"
	"io"

	"ckptfs/formats"
)

const (
	magic     = "\x89HDF\r\n\x1a\n"
	maxDepth  = 64
	maxVisits = 1 << 20
	maxHeader = 1 << 20
	maxRead   = 1 << 30
	maxNames  = 64 << 20
	maxRank   = 32
	smallest  = 4 << 10 // bytes of a chunk that is a region

	undefined = ^uint64(0)
)

// Name is the format's name.
const Name = "hdf5"

// Format is HDF5's entry in the table of formats. A .keras file is a zip with one of HDF5 in it.
var Format = formats.Format{
	Parser:  Parser{},
	Sniff:   Sniff,
	Names:   []formats.Name{{Name: Name}},
	Endings: []string{".h5", ".hdf5"},
	Views:   []string{".h5", ".hdf5", ".keras"},
}

// Parser is the parser of HDF5 files.
type Parser struct{}

// Name returns "hdf5".
func (Parser) Name() string { return Name }

func reject(format string, args ...any) error {
	return fmt.Errorf("hdf5: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Sniff reports whether a file that starts with p may be one.
func Sniff(p []byte, _ int64) bool { return len(p) >= len(magic) && string(p[:len(magic)]) == magic }

// Parse returns the layout of an HDF5 file. It reads the groups and the object headers.
func (p Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	return parse(r, size, smallest)
}

// parse is Parse with another bound on the chunks that are regions.
func parse(r io.ReaderAt, size, smallest int64) (*formats.Layout, error) {
	f := &file{smallest: smallest, r: r, size: size, visits: maxVisits, budget: min(4*size+1<<20, maxRead),
		open: make(map[uint64]bool), layout: &formats.Layout{Format: Name}}
	root, err := f.superblock()
	if err != nil {
		return nil, err
	}
	if err := f.object(root, "", 0); err != nil {
		return nil, err
	}
	l := f.layout
	if err := l.Cover(size, f.data); err != nil {
		return nil, reject("%v", err)
	}
	formats.Distinguish(l.Tensors, make([]int, len(l.Tensors)))
	return l, nil
}

// file is what is known while the groups are walked.
type file struct {
	smallest   int64
	attributes bool // they are asked for

	r      io.ReaderAt
	size   int64
	visits int
	budget int64 // bytes that may still be read
	names  int
	open   map[uint64]bool // object headers on the way
	layout *formats.Layout
	data   []formats.Range // Region of a tensor is an index into it until the end
}

var le = binary.LittleEndian

// read returns the n bytes at address at.
func (f *file) read(at uint64, n int64) ([]byte, error) {
	if n < 0 || n > maxHeader || at > uint64(f.size) || n > f.size-int64(at) {
		return nil, reject("bytes [%d, +%d) of %d", at, n, f.size)
	}
	if f.budget -= n; f.budget < 0 {
		return nil, reject("structures that are read again and again")
	}
	p := make([]byte, n)
	return p, formats.ReadFull(f.r, p, int64(at))
}

// visit counts a node.
func (f *file) visit() error {
	if f.visits--; f.visits < 0 {
		return reject("more than %d objects and nodes", maxVisits)
	}
	return nil
}

// superblock returns the address of the root group's object header.
func (f *file) superblock() (uint64, error) {
	const longest = 96
	p, err := f.read(0, min(f.size, longest))
	if err != nil {
		return 0, err
	}
	if !Sniff(p, f.size) || len(p) < 48 {
		return 0, reject("no signature")
	}
	sizes, addresses := p[13:15], 24
	switch p[8] {
	case 0:
	case 1:
		addresses = 28
	case 2, 3:
		sizes, addresses = p[9:11], 12
	default:
		return 0, reject("superblock version %d", p[8])
	}
	if sizes[0] != 8 || sizes[1] != 8 {
		return 0, reject("addresses of %d bytes, lengths of %d", sizes[0], sizes[1])
	}
	root := addresses + 24 // base, extension, end, root
	if p[8] < 2 {
		root = addresses + 40 // base, free space, end, driver, then an entry: name, root
	}
	if root+8 > len(p) {
		return 0, reject("%d bytes", f.size)
	}
	if base, end := le.Uint64(p[addresses:]), le.Uint64(p[addresses+16:]); base != 0 || end > uint64(f.size) {
		return 0, reject("base %d, end %d of %d", base, end, f.size)
	}
	return le.Uint64(p[root:]), nil
}

// object walks the object whose header is at address at.
func (f *file) object(at uint64, path string, depth int) error {
	if f.open[at] { // a group that is in itself
		return nil
	}
	if depth > maxDepth {
		return reject("groups more than %d deep", maxDepth)
	}
	if err := f.visit(); err != nil {
		return err
	}
	f.open[at] = true
	defer delete(f.open, at)
	o, err := f.header(at)
	if err != nil {
		return err
	}
	if f.names += len(path); f.names > maxNames {
		return reject("more than %d bytes of names", maxNames)
	}
	join := func(name string) string {
		if path == "" {
			return name
		}
		return path + "/" + name
	}
	if o.layout != nil {
		return f.dataset(o, path)
	}
	for _, l := range o.links {
		if err := f.object(l.at, join(l.name), depth+1); err != nil {
			return err
		}
	}
	if o.tree != undefined {
		return f.symbols(o.tree, o.heap, 0, func(name string, at uint64) error {
			return f.object(at, join(name), depth+1)
		})
	}
	return nil
}
