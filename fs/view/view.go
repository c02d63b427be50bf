// Package view synthesises files that no program wrote: the safetensors file beside a checkpoint in another
// format, and the .npy of one tensor.
//
// A View is a header and a plan. The header is built once; the data is gathered from the source file's bytes
// when it is read, so opening costs nothing and holds no data.
//
//	0        8                    8+n
//	| u64 n  | JSON, then spaces  | tensor | tensor | …   by name
//
// Tensors come in ascending order of their names' bytes, without gaps. 8+n is a multiple of 8.
//
//	0             64 m
//	| .npy header | the one tensor, row-major |      see npy.AppendHeader
//
// Most tensors lie in the source as they must lie here, and a read of them is one read of the source. The
// others (strided, transposed, expanded) are gathered element by element, or run by run where the innermost
// elements are adjacent: see gather.
package view

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"unsafe"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// ErrNoView: the tensors cannot be expressed in a safetensors file.
var ErrNoView = errors.New("no safetensors view")

// View is a synthesised file. It is safe for concurrent use.
type View struct {
	header  []byte
	size    int64
	tensors []tensor // without the empty ones; ascending by start
	blocks  blocks
}

// tensor is where a tensor lies in the view and what it is gathered from.
type tensor struct {
	start, end int64 // bytes in the view
	base       int64 // byte of element 0 in the source
	strided    *shape
}

// Safetensors plans the view of a file with these regions and tensors (which must pass formats.Layout.Check).
// The error is ErrNoView, with the reason, when there are no tensors, two of one name, or one of a type that
// safetensors lacks.
func Safetensors(regions []formats.Region, tensors []formats.Tensor) (*View, error) {
	if len(tensors) == 0 {
		return nil, fmt.Errorf("%w: no tensors", ErrNoView)
	}
	order := make([]*formats.Tensor, len(tensors))
	for i := range tensors {
		order[i] = &tensors[i]
	}
	slices.SortStableFunc(order, func(a, b *formats.Tensor) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(order); i++ {
		if order[i].Name == order[i-1].Name {
			return nil, fmt.Errorf("%w: two tensors called %q", ErrNoView, order[i].Name)
		}
	}
	entries := make([]safetensors.Entry, len(order))
	for i, t := range order {
		entries[i] = safetensors.Entry{Name: t.Name, DType: t.DType, Shape: t.Shape}
	}
	header, err := safetensors.AppendHeader(nil, entries, map[string]string{"format": "pt"})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoView, err)
	}
	v := &View{header: header, size: int64(len(header))}
	for _, t := range order {
		if err := v.add(regions, t); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Of plans what begins with header and then has the elements of the tensors, in this order, without gaps.
func Of(header []byte, regions []formats.Region, tensors ...formats.Tensor) (*View, error) {
	v := &View{header: header, size: int64(len(header))}
	for i := range tensors {
		if err := v.add(regions, &tensors[i]); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// add appends a tensor's elements.
func (v *View) add(regions []formats.Region, t *formats.Tensor) error {
	n := t.NumBytes()
	if n == 0 {
		return nil
	}
	if t.Region < 0 || t.Region >= len(regions) {
		return fmt.Errorf("%w: tensor %q names no region", ErrNoView, t.Name)
	}
	if n < 0 || n > 1<<62-v.size {
		return fmt.Errorf("%w: too large", ErrNoView)
	}
	p := tensor{start: v.size, end: v.size + n, base: regions[t.Region].Off + t.Offset}
	if !t.Contiguous() {
		p.strided = newShape(t)
	}
	v.tensors = append(v.tensors, p)
	v.size += n
	return nil
}

// Size is the length of the file in bytes.
func (v *View) Size() int64 { return v.size }

// Memory is about how many bytes the plan takes, without those that reads leave behind.
func (v *View) Memory() int64 {
	n := int64(unsafe.Sizeof(*v)) + int64(cap(v.header))
	n += int64(cap(v.tensors)) * int64(unsafe.Sizeof(tensor{}))
	for i := range v.tensors {
		if s := v.tensors[i].strided; s != nil {
			n += int64(unsafe.Sizeof(*s)) + 8*int64(cap(s.dims)+cap(s.step)+cap(s.inner))
		}
	}
	return n
}

// ReadAt reads as io.ReaderAt does, with src the bytes of the source file: always the same file's for one
// View. Errors of src's come back as they are.
func (v *View) ReadAt(src io.ReaderAt, p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("view: negative offset")
	}
	if off < int64(len(v.header)) {
		n = copy(p, v.header[off:])
	}
	i := sort.Search(len(v.tensors), func(i int) bool { return v.tensors[i].end > off+int64(n) })
	for ; n < len(p) && i < len(v.tensors); i++ {
		t := &v.tensors[i]
		from := off + int64(n) - t.start
		q := p[n:min(int64(len(p)), int64(n)+t.end-t.start-from)]
		var m int
		if t.strided == nil {
			m, err = readFull(src, q, t.base+from)
		} else {
			m, err = v.blocks.read(src, t, q, from)
		}
		if n += m; err != nil {
			return n, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Drop lets go of the memory that reads of strided tensors left behind. The View stays usable.
func (v *View) Drop() { v.blocks.drop() }

// readFull fills p. The source ending early is an error: the layout said that it does not.
func readFull(src io.ReaderAt, p []byte, off int64) (int, error) {
	n, err := src.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	if err == nil || err == io.EOF {
		err = fmt.Errorf("view: source ends at %d: %w", off+int64(n), io.ErrUnexpectedEOF)
	}
	return n, err
}
