package torchzip

import (
	"io"
	"slices"
	"strconv"

	"ckptfs/formats"
	"ckptfs/formats/zipdir"
)

// SequenceFormat is the entry of .distcp files in the table of formats.
var SequenceFormat = formats.Format{
	Parser: Sequence{},
	Sniff:  zipdir.Sniff,
	Names: []formats.Name{{
		Name: Sequence{}.Name(),
		Note: "tensors are called by their numbers: no .metadata beside the file names them",
	}},
}

// Sequence is the parser of the .distcp files of torch.distributed.checkpoint: torch's zips, one for each
// tensor or object, one right after the other. Which they are is said by the .metadata beside them; here the
// tensors are called by their number: 0, 1, and within objects 2.key; the layout is partial.
//
//	| zip | zip | … | zip |        each found by its end, from the end of the file
//
// A file of one zip is Parser's. At most 65,536 zips; what is said of Parser holds for each.
type Sequence struct{}

// Name returns "distcp".
func (Sequence) Name() string { return "distcp" }

const maxZips = 1 << 16

// Parse returns the layout of a file of two zips or more.
func (s Sequence) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	var head [4]byte
	if size < int64(len(head)) {
		return nil, reject("%d bytes", size)
	}
	if err := formats.ReadFull(r, head[:], 0); err != nil {
		return nil, err
	}
	if string(head[:]) != "PK\x03\x04" {
		return nil, reject("no local header at the start")
	}
	ends := []int64{size}
	for ends[len(ends)-1] > 0 {
		if len(ends) > maxZips {
			return nil, reject("more than %d zips", maxZips)
		}
		start, err := zipdir.StartOf(r, ends[len(ends)-1])
		if err != nil {
			return nil, err
		}
		ends = append(ends, start)
	}
	if len(ends) < 3 {
		return nil, reject("one zip")
	}
	slices.Reverse(ends)
	l := &formats.Layout{Format: s.Name(), Partial: true} // a number is no name
	for i, start := range ends[:len(ends)-1] {
		n := ends[i+1] - start
		inner, err := Parser{}.Parse(io.NewSectionReader(r, start, n), n)
		if err != nil {
			return nil, err
		}
		name := strconv.Itoa(i)
		for k := range inner.Tensors {
			if t := &inner.Tensors[k]; t.Name != "" {
				t.Name = "." + t.Name
			}
		}
		l.Place(inner, name)
	}
	return l, nil
}
