// Package plans computes safetensors files that nobody saved from files that are stored.
//
// A Plan is a header and, for each tensor, an operation on tensors of its sources. The header is made at once,
// by the sources' headers. Data is computed when it is read: any range, in any order, in slabs. Nothing is
// kept of it. A plan takes memory for its header and some 100 bytes a tensor.
//
//	0        8                    8+n
//	| u64 n  | JSON, then spaces  | tensor | tensor | …   as save_file orders them (safetensors.SortSaved)
//
// Every source is a safetensors file, or reads like one (package view). The metadata is the first source's, in
// the order of its header. save_file writes metadata of several strings in an order that changes from process
// to process; of one, or none, there is one order.
//
// # What is computed
//
// Each function that makes a plan states the program whose bytes it gives, in Python. All of them end with
//
//	save_file(out, path, metadata=metadata)
//
// where metadata is safe_open(source, "pt").metadata(). The bytes are those of torch 2.15 on processors with
// AVX2 or AVX-512 and of safetensors 0.8. What torch computes otherwise from one such processor to another, or
// from one number of threads to another, is refused (ErrNone). Only the bits of some NaNs are left to it
// (convertible).
package plans

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"
	"unsafe"

	"ckptfs/formats"
	"ckptfs/formats/deepspeed"
	"ckptfs/formats/safetensors"
)

// Version is that of the bytes that plans make. It changes where a plan of the same sources makes others.
const Version = 2

// ErrNone: there is no such file. The error that wraps it says why, for people.
var ErrNone = errors.New("cannot be made")

func none(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNone, fmt.Sprintf(format, args...))
}

// Source is what a plan has to know of a file.
type Source struct {
	Layout   *formats.Layout    // as safetensors.Parser has it
	Metadata []safetensors.Pair // nil: the file has none

	DeepSpeed *deepspeed.File // of a file of a step of ZeRO: what it says
}

// Open reads the header of a safetensors file of size bytes, for which memory bytes may be taken. The error is
// ErrNone when it is no such file.
func Open(r io.ReaderAt, size, memory int64) (*Source, error) {
	l, err := safetensors.Parser{}.Bound(memory).Parse(r, size)
	if err == nil {
		var s Source
		s.Layout = l
		s.Metadata, err = safetensors.Metadata(r, size)
		if err == nil {
			return &s, nil
		}
	}
	if errors.Is(err, formats.ErrNotFormat) {
		return nil, none("%v", err)
	}
	return nil, err
}

// OpenZero reads what a file of a step of DeepSpeed's ZeRO says. The error is ErrNone when it is no such file.
func OpenZero(r io.ReaderAt, size int64) (*Source, error) {
	f, err := deepspeed.Parse(r, size)
	if errors.Is(err, formats.ErrNotFormat) {
		return nil, none("%v", err)
	}
	if err != nil {
		return nil, err
	}
	return &Source{Layout: f.Layout, DeepSpeed: f}, nil
}

// Memory is about how many bytes it takes.
func (s *Source) Memory() int64 {
	n := int64(len(s.Layout.Regions)) * int64(unsafe.Sizeof(formats.Region{}))
	for i := range s.Layout.Tensors {
		t := &s.Layout.Tensors[i]
		n += int64(unsafe.Sizeof(*t)) + int64(len(t.Name)) + 8*int64(cap(t.Shape))
	}
	for _, p := range s.Metadata {
		n += int64(unsafe.Sizeof(p)) + int64(len(p.Key)+len(p.Value))
	}
	return n
}

// byName are the tensors of a file by their names.
func (s *Source) byName() map[string]*formats.Tensor {
	out := make(map[string]*formats.Tensor, len(s.Layout.Tensors))
	for i := range s.Layout.Tensors {
		out[s.Layout.Tensors[i].Name] = &s.Layout.Tensors[i]
	}
	return out
}

// base is the offset of a tensor's bytes in its file.
func (s *Source) base(t *formats.Tensor) int64 {
	if t.Region < 0 {
		return 0
	}
	return s.Layout.Regions[t.Region].Off + t.Offset
}

// Plan is a computed file. It is safe for concurrent use.
type Plan struct {
	header  []byte
	size    int64
	tensors []tensor // without the empty ones; ascending by start
	memory  int64
	drop    func() // of what reads leave behind; nil: they leave nothing
	// Parts is of how many files this is one; 0: it is not known to be.
	Parts int
}

// tensor is where a tensor lies in the file, and what it is.
type tensor struct {
	start, end int64
	op         op
}

// op computes a tensor.
type op interface {
	// read fills p with the tensor's bytes from off on. The sources are those of the plan.
	read(src []io.ReaderAt, p []byte, off int64) error
	// memory is about how many bytes it takes.
	memory() int64
}

// output is a tensor that is about to be planned.
type output struct {
	safetensors.Entry
	op op
}

// plan makes a file of tensors with distinct names.
func plan(out []output, metadata []safetensors.Pair) (*Plan, error) {
	entries := make([]safetensors.Entry, len(out))
	ops := make(map[string]op, len(out))
	for i := range out {
		entries[i] = out[i].Entry
		ops[out[i].Name] = out[i].op
	}
	if len(ops) != len(out) {
		return nil, none("two tensors have one name")
	}
	safetensors.SortSaved(entries)
	header, err := safetensors.AppendSaved(nil, entries, metadata)
	if err != nil {
		return nil, none("%v", err)
	}
	p := begin(header, len(entries))
	for i := range entries {
		p.add(entries[i].NumBytes(), ops[entries[i].Name]) // AppendSaved has summed them
	}
	return p, nil
}

// begin is the plan of a header, with room for so many tensors.
func begin(header []byte, tensors int) *Plan {
	p := &Plan{header: header, size: int64(len(header)), tensors: make([]tensor, 0, tensors)}
	p.memory = int64(unsafe.Sizeof(*p)) + int64(cap(header)) + int64(tensors)*int64(unsafe.Sizeof(tensor{}))
	return p
}

// add adds a tensor of n bytes behind the others.
func (p *Plan) add(n int64, o op) {
	if n == 0 {
		return
	}
	p.tensors = append(p.tensors, tensor{p.size, p.size + n, o})
	p.size += n
	p.memory += o.memory()
}

// Size is the length of the file in bytes.
func (p *Plan) Size() int64 { return p.size }

// Memory is about how many bytes the plan takes.
func (p *Plan) Memory() int64 { return p.memory }

// Drop lets go of the memory that reads left behind. The plan stays usable.
func (p *Plan) Drop() {
	if p.drop != nil {
		p.drop()
	}
}

// ReadAt reads as io.ReaderAt does, with src the sources in the plan's order. Their errors come back as they
// are.
func (p *Plan) ReadAt(src []io.ReaderAt, b []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("plans: negative offset")
	}
	if off < int64(len(p.header)) {
		n = copy(b, p.header[off:])
	}
	i := sort.Search(len(p.tensors), func(i int) bool { return p.tensors[i].end > off+int64(n) })
	for ; n < len(b) && i < len(p.tensors); i++ {
		t := &p.tensors[i]
		from := off + int64(n) - t.start
		q := b[n:min(int64(len(b)), int64(n)+t.end-t.start-from)]
		if err := t.op.read(src, q, from); err != nil {
			return n, err
		}
		n += len(q)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// readFull fills p. A source that ends early is an error: its header said that it does not.
func readFull(src io.ReaderAt, p []byte, off int64) error {
	n, err := src.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = fmt.Errorf("plans: a source ends at %d: %w", off+int64(n), io.ErrUnexpectedEOF)
	}
	return err
}

// slab is how many elements are computed at a time.
const slab = 32 << 10

var slabs = sync.Pool{New: func() any { return new([8 * slab]byte) }}

// inSlabs fills p, which begins at byte off of elements of so many bytes. one fills dst with whole elements,
// slab at most, from element first on.
func inSlabs(p []byte, off, width int64, one func(dst []byte, first int64) error) error {
	for len(p) > 0 {
		first, within := off/width, off%width
		if n := int64(len(p)) / width * width; within == 0 && n > 0 {
			n = min(n, slab*width)
			if err := one(p[:n], first); err != nil {
				return err
			}
			p, off = p[n:], off+n
			continue
		}
		var part [8]byte // of which p has a part
		if err := one(part[:width], first); err != nil {
			return err
		}
		n := copy(p, part[within:width])
		p, off = p[n:], off+int64(n)
	}
	return nil
}
