// Package pyobject lays out Python objects saved by pickle and by joblib: scikit-learn's estimators and
// whatever else holds NumPy arrays. Nothing is executed; see package pickle.
//
// A pickle has an array's bytes in one piece, as the operand of an opcode:
//
//	protocols 3 to 5
//	    … 'numpy._core.multiarray' '_reconstruct' … (1, (1000, 64), dtype('f8'), False, B n bytes ) BUILD
//	protocol 5
//	    … 'numpy._core.numeric' '_frombuffer' ( BYTEARRAY8 n bytes, dtype('f8'), (1000, 64), 'C' ) REDUCE
//
// joblib writes the array itself behind the opcodes of an object that describes it, and goes on with the
// opcodes after it:
//
//	… 'joblib.numpy_pickle' 'NumpyArrayWrapper' {shape, order, dtype, numpy_array_alignment_bytes} BUILD
//	| pad | pad times 0xff | the array's bytes |   with numpy_array_alignment_bytes; else the bytes at once
//	| a pickle of its own |                        an array of objects
//
// An array of at least 4 KiB is a Data region, unless it has one dimension, plain numbers and less than 256
// KiB: such are often a history (train_score_) that grows by some values with each save, and belong into the
// Blob, where content cuts. A region has a tensor, called by the keys, attributes and indices on the way to
// it, joined by dots (estimators_.3.tree_.values), when the walk from the root meets it and its type is one
// that there is; a structured array (the nodes of a tree) has none. All else is Blob, and the layout is Fine
// and always partial: an estimator of many small trees (GradientBoostingClassifier) is cut by content, and a
// later save finds what it has of an earlier one.
//
// # What is recognised
//
//	pickle  protocols 2 to 5, one pickle or several, one after the other, to the file's end
//	joblib  as joblib 0.10 and later write it, not compressed
//	arrays  of bool, integers, floats and complex numbers, little-endian: tensors; of other types of a fixed
//	        size: Data alone
//
// Arrays in protocol 2 (which has no byte strings) and those inside of joblib's arrays of objects are text or
// lie in the blobs. Pickles of protocols 0 and 1 are none for this package. torch.save's are package
// torchlegacy's.
//
// # Bounds
//
// A first pass over the opcodes takes 64 KiB. Only when it finds that a 16th of the file or more is long byte
// strings, or can't be finished (joblib), a second pass builds the graph: at most 524,288 values, 32 MiB of
// opcodes and 262,144 arrays, some 128 MiB in all. A pickle that is larger is one Blob. Blobs of more than
// 256 MiB together are not cut finely.
package pyobject

import (
	"errors"
	"fmt"
	"io"

	"ckptfs/formats"
	"ckptfs/formats/pickle"
)

const (
	smallest  = 4 << 10   // bytes of an array that is a region
	history   = 256 << 10 // bytes of a vector that is one
	maxArrays = 1 << 18
	maxBuffer = 32 << 20
	maxFine   = 256 << 20 // bytes of blobs that are cut finely

	worthwhile = 16

	formatPickle = "pickle"
	formatJoblib = "joblib"
)

var limits = pickle.Limits{Nodes: 1 << 19, Pushes: 1 << 22, Marks: 1 << 14, Memo: 1 << 14}

const listed = "of their arrays those that have a name and at least 4 KiB are listed; trees have no names"

// Format is the entry of pickles in the table of formats.
var Format = formats.Format{
	Parser:  Parser{},
	Sniff:   Sniff,
	Presume: Presume,
	Names: []formats.Name{
		{Name: formatPickle, Note: "pickled objects: " + listed},
		{Name: formatJoblib, Note: "objects pickled by joblib: " + listed},
	},
}

// Parser is the parser of pickles.
type Parser struct{}

// Name returns "pickle". Layouts of joblib's files have the name "joblib".
func (Parser) Name() string { return formatPickle }

func reject(format string, args ...any) error {
	return fmt.Errorf("pickle: %w: %s", formats.ErrNotFormat, fmt.Sprintf(format, args...))
}

// Sniff reports whether a file that starts with p may be one.
func Sniff(p []byte, _ int64) bool { return len(p) >= 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5 }

// Parse returns the layout of a file of pickles.
func (Parser) Parse(r io.ReaderAt, size int64) (*formats.Layout, error) {
	head := make([]byte, min(size, 2))
	if err := formats.ReadFull(r, head, 0); err != nil {
		return nil, err
	}
	if !Sniff(head, size) {
		return nil, reject("no protocol")
	}
	large := int64(0)
	plain, err := scan(r, size, &large)
	if err != nil {
		return nil, err
	}
	b := &builder{r: r, size: size, byID: make(map[int]int)}
	if !plain || large > size/worthwhile {
		err := b.parse()
		if err != nil && !pickle.IsParse(err) && !errors.Is(err, formats.ErrNotFormat) {
			return nil, err
		}
		if err != nil {
			if !plain {
				return nil, reject("%v", err)
			}
			b.arrays, b.tensors = nil, nil // it is a pickle, if one that is too large to be known
		}
	}
	return b.layout()
}

// Presume looks at the first and the last bytes of a file. as tells the layout that it has if most of it
// stood in an earlier file that was one Blob, and pickles or joblib's by its Format: one Blob again, whatever
// else has come. as is nil when it is none of them.
func Presume(r io.ReaderAt, size int64) (as func(format string) *formats.Layout, err error) {
	if size < 3 || size > maxFine {
		return nil, nil
	}
	var head [2]byte
	if err := formats.ReadFull(r, head[:], 0); err != nil || !Sniff(head[:], size) {
		return nil, err
	}
	var last [1]byte
	if err := formats.ReadFull(r, last[:], size-1); err != nil || last[0] != '.' { // STOP
		return nil, err
	}
	return func(format string) *formats.Layout {
		if format != formatPickle && format != formatJoblib {
			return nil
		}
		l := formats.BlobLayout(size)
		l.Format, l.Fine, l.Partial = format, true, true
		return l
	}, nil
}

// scan reports whether the file is pickles and nothing else. It adds up the long byte strings.
func scan(r io.ReaderAt, size int64, large *int64) (bool, error) {
	count := func(off, n int64) error { *large += n; return nil }
	for off := int64(0); off < size; {
		end, err := pickle.Scan(r, off, size, smallest, count)
		if err != nil {
			if pickle.IsParse(err) {
				err = nil
			}
			return false, err
		}
		off = end
	}
	return true, nil
}

// array is the bytes of one in the file.
type array struct {
	formats.Range
	typ   dtype
	shape []int64
	order byte // 'C' or 'F'
	objs  bool // of objects: a pickle
}

// isRegion reports whether the array is a region of its own.
func (a *array) isRegion() bool {
	if a.objs || a.Len < smallest {
		return false
	}
	return a.Len >= history || len(a.shape) != 1 || a.typ.code == ""
}

// builder gathers the arrays of a file's pickles.
type builder struct {
	r      io.ReaderAt
	size   int64
	joblib bool

	arrays  []array
	byID    map[int]int // of the pickle at hand: the node that is the array, and its index
	tensors []formats.Tensor
	of      []int // the array of each tensor
	depths  []int
}

// parse builds the graph of each pickle in turn.
func (b *builder) parse() error {
	for off, n := int64(0), 0; off < b.size; n++ {
		clear(b.byID)
		f := pickle.File{R: b.r, Off: off, Size: b.size, Large: smallest, Built: b.built, Buffer: maxBuffer}
		g, end, err := pickle.ParseFile(f, limits)
		if err != nil {
			return err
		}
		b.inBand(g)
		b.walk(g)
		off = end
		if n > 1<<10 {
			return reject("more than %d pickles", n)
		}
	}
	return nil
}

// inBand notes the arrays whose bytes the pickle itself has.
func (b *builder) inBand(g *pickle.Pickle) {
	g.Each(func(v pickle.Value) {
		a, ok := readArray(v)
		if !ok || len(b.arrays) >= maxArrays {
			return
		}
		b.byID[v.ID()] = len(b.arrays)
		b.arrays = append(b.arrays, a)
	})
}

// walk names the arrays.
func (b *builder) walk(g *pickle.Pickle) {
	var w pickle.Walker
	w.Steps, w.Names = 4*g.NumNodes()+1<<12, 1<<24
	w.Visit = func(v pickle.Value, depth int) bool {
		if i, ok := b.byID[v.ID()]; ok {
			a := &b.arrays[i]
			if a.typ.code != "" && a.isRegion() && len(b.tensors) < maxArrays {
				b.tensors = append(b.tensors, a.tensor(w.Keep()))
				b.of, b.depths = append(b.of, i), append(b.depths, depth)
			}
			return true
		}
		if list, ok := objects(v); ok {
			w.Elements(list, depth)
			return true
		}
		return false
	}
	w.Walk(g.Root(), 0)
}

// layout puts the regions together.
func (b *builder) layout() (*formats.Layout, error) {
	l := &formats.Layout{Format: formatPickle, Partial: true}
	if b.joblib {
		l.Format = formatJoblib
	}
	data := make([]formats.Range, len(b.arrays))
	blob := b.size
	for i := range b.arrays {
		if a := &b.arrays[i]; a.isRegion() {
			data[i] = a.Range
			blob -= a.Len
		}
	}
	var index []int
	var err error
	if l.Regions, index, err = formats.Cover(b.size, data); err != nil {
		return nil, reject("%v", err)
	}
	for i := range b.tensors {
		t := b.tensors[i]
		t.Region = index[b.of[i]]
		l.Tensors = append(l.Tensors, t)
	}
	formats.Distinguish(l.Tensors, b.depths)
	l.Fine = blob <= maxFine
	return l, nil
}
