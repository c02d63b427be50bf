// Package formats turns a file into a Layout: regions that are sorted, gapless and cover every byte, and the
// tensors that lie in them.
//
// The invariant carries the project's first rule. A file is put back together by concatenating its regions,
// whatever the format was, so one check (Layout.Check) and one fuzz target hold for every parser. A byte that
// no parser understands is in a Blob region. A parser that has any doubt says ErrNotFormat, and the file is
// one Blob.
//
//	0                                                              size
//	| Blob: header | Data: fc.bias | Pad | Data: fc.weight | Blob     |
//
// Parsers read untrusted bytes. They never execute, unpickle or construct anything, and check each stated
// size against the file's before they take memory for it.
package formats

import (
	"errors"
	"fmt"
	"io"
)

// ErrNotFormat says that the file is not of the parser's format, or not with certainty. It is no failure: the
// next parser is asked, and in the end the file is stored as a blob.
var ErrNotFormat = errors.New("not of this format")

// Kind says what a region holds.
type Kind uint8

const (
	// Blob is bytes that no tensor covers: headers, pickles, JSON, unknown formats.
	Blob Kind = iota
	// Data is the bytes of one storage: one tensor, or several that share it.
	Data
	// Pad is bytes that the parser has read and found to be all zero.
	Pad
)

func (k Kind) String() string { return [...]string{"blob", "data", "pad"}[k] }

// Region is a byte range of a file. Len is never zero.
type Region struct {
	Off, Len int64 // bytes
	Kind     Kind
}

// Layout is one file's regions and tensors.
type Layout struct {
	Format  string // the parser's Name
	Regions []Region
	Tensors []Tensor // in the order of the file's own directory (header, pickle)

	// Partial: the file holds tensors that Tensors lacks, or shows only by their parts. What is made from
	// Tensors would then not be the file in another form.
	Partial bool

	// Left counts what the file holds and Tensors lacks, by why: "datasets are compressed". It is for people
	// to read, and no manifest keeps it.
	Left map[string]int

	// Fine: the file is a document that grows from save to save, or changes in a few places: its blobs are
	// worth being cut finely. It says how to store the file, not what it is, and no manifest keeps it.
	Fine bool
}

// Leave notes something that Tensors lacks.
func (l *Layout) Leave(why string) {
	if l.Left == nil {
		l.Left = map[string]int{}
	}
	l.Left[why]++
	l.Partial = true
}

// Parser recognises one format.
type Parser interface {
	// Name is the format's name as `ckptfs show` prints it.
	Name() string
	// Parse returns the layout of the size bytes of r. It returns ErrNotFormat (wrapped, with the reason)
	// unless it is certain, and an error of r's as it is.
	Parse(r io.ReaderAt, size int64) (*Layout, error)
}

// Check returns an error unless the regions are sorted, not empty, gapless, cover [0, size) exactly, and
// every tensor lies inside its region.
func (l *Layout) Check(size int64) error {
	var end int64
	for i, r := range l.Regions {
		switch {
		case r.Off != end:
			return fmt.Errorf("layout: region %d starts at %d, want %d", i, r.Off, end)
		case r.Len <= 0:
			return fmt.Errorf("layout: region %d has length %d", i, r.Len)
		case r.Kind > Pad:
			return fmt.Errorf("layout: region %d has kind %d", i, r.Kind)
		case r.Len > size-end:
			return fmt.Errorf("layout: region %d ends past the file's %d bytes", i, size)
		}
		end += r.Len
	}
	if end != size {
		return fmt.Errorf("layout: regions cover %d of %d bytes", end, size)
	}
	for i := range l.Tensors {
		t := &l.Tensors[i]
		if t.Region < 0 {
			if t.NumBytes() != 0 {
				return fmt.Errorf("layout: tensor %q has %d bytes and no region", t.Name, t.NumBytes())
			}
			continue
		}
		if t.Region >= len(l.Regions) || l.Regions[t.Region].Kind != Data {
			return fmt.Errorf("layout: tensor %q names region %d, which is no data region", t.Name, t.Region)
		}
		if err := t.CheckBounds(l.Regions[t.Region].Len); err != nil {
			return err
		}
	}
	return nil
}

// BlobLayout is the layout of a file that no parser understands.
func BlobLayout(size int64) *Layout {
	l := &Layout{Format: "blob"}
	if size > 0 {
		l.Regions = []Region{{Off: 0, Len: size, Kind: Blob}}
	}
	return l
}
