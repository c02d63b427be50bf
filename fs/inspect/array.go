package inspect

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/zarr"
)

// array is a tensor as show, diff and cat-tensor know it by its name: one that a file has, or that several
// tensors are the pieces of.
type array struct {
	formats.Tensor // of one in pieces its name, type and shape; Region and Offset mean nothing
	pieces         []piece
	grid           [][]int64 // of one in pieces: where they begin, by dimension; nil: pieces[0] is all of it
	sealed         []sealed  // of one that is stored as zarr has it, instead of pieces
	zarr           *zarr.Array
}

// piece is a tensor of a file, and where its first element is in the array.
type piece struct {
	f      *file
	i      int     // in f.layout.Tensors
	origin []int64 // nil: the beginning
}

func (p *piece) tensor() *formats.Tensor { return &p.f.layout.Tensors[p.i] }

// sameStorage reports whether two pieces are known to have equal elements without a look at them.
func (p *piece) sameStorage(q *piece) bool {
	s, t := p.tensor(), q.tensor()
	if s.DType != t.DType || s.NumBytes() != t.NumBytes() {
		return false
	}
	x, y := p.f.digest(p.i), q.f.digest(q.i)
	if x.IsZero() || x != y || s.Offset != t.Offset {
		return false
	}
	return s.Contiguous() && t.Contiguous() || slices.Equal(s.Shape, t.Shape) &&
		slices.Equal(s.Stride, t.Stride)
}

// sameStorage reports whether the elements of two arrays are known to be the same row-major bytes.
func (a *array) sameStorage(b *array) bool {
	if len(a.pieces) == 0 || len(a.pieces) != len(b.pieces) {
		return false
	}
	for i := range a.pieces {
		p, q := &a.pieces[i], &b.pieces[i]
		if !p.sameStorage(q) || a.grid != nil &&
			(!slices.Equal(p.origin, q.origin) || !slices.Equal(p.tensor().Shape, q.tensor().Shape)) {
			return false
		}
	}
	return a.grid == nil || slices.Equal(a.Shape, b.Shape)
}

// digest is that of the storage of an array that is one tensor; zero when there is none.
func (a *array) digest() cas.Hash {
	if len(a.pieces) != 1 || a.Region < 0 {
		return cas.Hash{}
	}
	return a.pieces[0].f.digest(a.pieces[0].i)
}

// offset is where the first element lies in its file; 0 for an array without bytes.
func (a *array) offset() int64 {
	if len(a.pieces) == 0 {
		return 0
	}
	return a.pieces[0].f.offset(a.pieces[0].i)
}

// one is an array that is a tensor of a file.
func one(f *file, i int, name string) array {
	t := f.layout.Tensors[i]
	t.Name = name
	return array{Tensor: t, pieces: []piece{{f: f, i: i}}}
}

// tile makes one array of pieces that cover it without gaps or overlaps, in a grid; false when they don't.
func tile(whole formats.Tensor, pieces []piece) (array, bool) {
	rank := len(whole.Shape)
	if rank == 0 || whole.DType.Bits()%8 != 0 || whole.NumBytes() <= 0 {
		return array{}, false
	}
	grid := make([][]int64, rank)
	for i := range pieces {
		p := &pieces[i]
		if t := p.tensor(); len(p.origin) != rank || len(t.Shape) != rank || t.DType != whole.DType {
			return array{}, false
		}
		for d, o := range p.origin {
			grid[d] = append(grid[d], o)
		}
	}
	cells := 1
	for d := range grid {
		slices.Sort(grid[d])
		grid[d] = slices.Compact(grid[d])
		if cells *= len(grid[d]); cells == 0 || cells > len(pieces) || grid[d][0] != 0 {
			return array{}, false
		}
	}
	if cells != len(pieces) {
		return array{}, false
	}
	whole.Stride, whole.Region, whole.Offset = nil, -1, 0
	a := array{Tensor: whole, pieces: make([]piece, cells), grid: grid}
	for _, p := range pieces {
		cell, at := 0, p.tensor().Shape
		for d, o := range p.origin {
			k, _ := slices.BinarySearch(grid[d], o)
			end := whole.Shape[d]
			if k+1 < len(grid[d]) {
				end = grid[d][k+1]
			}
			if at[d] <= 0 || at[d] != end-o {
				return array{}, false
			}
			cell = cell*len(grid[d]) + k
		}
		if a.pieces[cell].f != nil {
			return array{}, false
		}
		a.pieces[cell] = p
	}
	return a, true
}

// arraysOf is the tensors of a file. Those that are named as pieces of one (formats.PieceName), and tile it,
// are one.
func arraysOf(f *file) []array {
	out := make([]array, 0, len(f.layout.Tensors))
	if !f.layout.Partial { // a file that is shown by its parts is
		for i := range f.layout.Tensors {
			out = append(out, one(f, i, f.layout.Tensors[i].Name))
		}
		return out
	}
	names := make(map[string]bool, len(f.layout.Tensors))
	parts := map[string][]piece{}
	for i := range f.layout.Tensors {
		t := &f.layout.Tensors[i]
		names[t.Name] = true
		if name, origin, ok := formats.ParsePiece(t); ok {
			parts[name] = append(parts[name], piece{f, i, origin})
		}
	}
	done := map[string]bool{}
	for i := range f.layout.Tensors {
		t := &f.layout.Tensors[i]
		name, _, ok := formats.ParsePiece(t)
		if ok && done[name] {
			continue
		}
		if ok && !names[name] && len(parts[name]) > 1 {
			whole := formats.Tensor{Name: name, DType: t.DType, Shape: extent(parts[name])}
			if a, ok := tile(whole, parts[name]); ok {
				done[name] = true
				out = append(out, a)
				continue
			}
		}
		out = append(out, one(f, i, t.Name))
	}
	return out
}

// extent is the least shape that pieces of the first one's rank lie in.
func extent(pieces []piece) []int64 {
	shape := make([]int64, len(pieces[0].origin))
	for _, p := range pieces {
		for d := range min(len(shape), len(p.origin)) {
			shape[d] = max(shape[d], p.origin[d]+p.tensor().Shape[d])
		}
	}
	return shape
}

// arrayReader reads the elements of an array, row-major.
type arrayReader struct {
	ins   *Inspector
	a     *array
	whole *tensorReader   // of one that is a tensor
	parts []*tensorReader // of one in pieces; nil: not opened yet
	zarr  *zarrReader     // of one that is stored as zarr has it
}

// openArray makes an array readable until done is called. One reader is for one goroutine.
func (ins *Inspector) openArray(a *array) (*arrayReader, error) {
	r := &arrayReader{ins: ins, a: a}
	if a.zarr != nil {
		var err error
		r.zarr, err = ins.openZarr(a)
		return r, err
	}
	if a.grid != nil {
		r.parts = make([]*tensorReader, len(a.pieces))
		return r, nil
	}
	var err error
	r.whole, err = ins.openTensor(a.pieces[0].f, a.pieces[0].tensor())
	return r, err
}

func (r *arrayReader) done() {
	if r.whole != nil {
		r.whole.done()
	}
	if r.zarr != nil {
		r.zarr.Close()
	}
	for _, p := range r.parts {
		if p != nil {
			p.done()
		}
	}
}

// read reads elements from byte off of them on. Of an array in pieces both ends are those of elements. One
// that is stored as zarr has it is best read forwards.
func (r *arrayReader) read(p []byte, off int64) error {
	if r.zarr != nil {
		return r.zarr.read(p, off)
	}
	if r.whole != nil {
		return r.whole.read(p, off)
	}
	width := int64(r.a.DType.Bits() / 8)
	for e := off / width; len(p) > 0; {
		part, from, n := r.a.run(e)
		n = min(n, int64(len(p))/width)
		if r.parts[part] == nil {
			x := &r.a.pieces[part]
			t, err := r.ins.openTensor(x.f, x.tensor())
			if err != nil {
				return err
			}
			r.parts[part] = t
		}
		if err := r.parts[part].read(p[:n*width], from*width); err != nil {
			return err
		}
		p, e = p[n*width:], e+n
	}
	return nil
}

// run finds element e of an array in pieces: which piece has it, as which element, and how many follow one
// another in both.
func (a *array) run(e int64) (part int, from, n int64) {
	at := make([]int64, len(a.Shape))
	for d := len(at) - 1; d >= 0; d-- {
		at[d] = e % a.Shape[d]
		e /= a.Shape[d]
	}
	for d := range at {
		k, found := slices.BinarySearch(a.grid[d], at[d])
		if !found {
			k--
		}
		part = part*len(a.grid[d]) + k
	}
	p := &a.pieces[part]
	shape := p.tensor().Shape
	n = 1
	inner, full := int64(1), true // elements of the piece below dimension d; they are the array's
	for d := len(at) - 1; d >= 0; d-- {
		k := at[d] - p.origin[d]
		from += k * inner
		if full {
			n = shape[d]*inner - from
		}
		full = full && shape[d] == a.Shape[d]
		inner *= shape[d]
	}
	return part, from, n
}

// sealed is something of which only the bytes are known, in a file: a part of an array that is stored
// compressed.
type sealed struct {
	key    string // which part it is
	f      *file
	off, n int64
	inline []byte // where f is nil
}
