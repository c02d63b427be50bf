// Package recipes finds out from which stored tensors a tensor may be computed, and by which program (package
// cas/recipe): quantised from one of more precision, widened, rounded, or with its rows in another order.
//
// Candidates are found by name (Of): equal ends of names, and what llama.cpp's converter calls the tensors of
// others (names.go). Of a candidate samples are read, three places of a tensor, and put through the programs
// that may explain the tensor; what explains less than Fits of the samples is none. Where floats do not all
// come out, what they differ by is stored: the last step is a combination of one then.
//
//	target        from                 program
//	GGUF blocks   F32, BF16, F16       take, (widen, round,) widen, quantise
//	F8_E4M3, …    the same             the same, with the scales that lie beside it
//	I8, U8, I32   the same             the same, where they are codes (coded.go); and so their scales
//	F32           BF16, F16            take, widen
//	BF16, F16     F32, the other       take, widen, round
//	F32, BF16,    GGUF blocks          take, dequantise, (round, widen,) round
//	F16           F8_E4M3, …           the same; scales are taken from the tensor beside
//	any           the same type        take, where rows are in another order
//	any           of floats            take, transpose (once or twice), and then as above (reversed.go)
//
// Of candidates that are found otherwise, by what they have in common with it (Among), several may have a part
// in a tensor: as its rows or some of them, in whatever order, as parts of all of its rows, or as stretches of
// it, with zeros between and behind them.
//
// # Orders of rows
//
// Rotary embeddings pair element i of a head with element i + h/2 as Hugging Face stores Q and K, and with
// i + 1 as GGUF does. So within each head of h rows row 2i+b of the one is row b*h/2 + i of the other. Which h
// it is, is told by the rows that fit.
//
// A wrong guess costs a look, never a byte: what is stored has been computed and compared (recipe.Encode).
package recipes

import (
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/quant"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

const (
	// MinLen is the length of a tensor, in bytes, below which it is not computed from others.
	MinLen = 4 << 10
	// Fits is the share of a sample's codes that a program must explain.
	Fits = 0.9
	// chosen is that share where codes may have been chosen otherwise than each by itself.
	chosen = 0.5

	maxBases      = 16 // of a chunk
	maxSources    = 64 // tensors under one name
	maxCandidates = 24 // that are looked at for a tensor

	// A look costs a chunk, or a few. A file in which so many tensors of a type in a row were looked at in vain
	// is asked for every so manieth of these only.
	maxVain   = 16
	vainEvery = 16
)

// Store is what a Finder asks of a store.
type Store interface {
	Locate(hashes []cas.Hash, locs []cas.Location) error
	Get(h cas.Hash, dst []byte) ([]byte, error)
}

// Finder finds what tensors may be computed from. It is not safe for concurrent use; the Plans that it makes
// are.
type Finder struct {
	store  Store
	byName map[string][]*source
	lately [8]struct { // chunks that were read
		h cas.Hash
		p []byte
	}
	reads int
	file  *file // that is being added
	won   *file // that explained a tensor last
}

// source is a stored tensor.
type source struct {
	t      *formats.Tensor
	file   *file
	typ    recipe.Type
	codes  *codes // nil: it is not quantised
	grid   func() []manifest.Span
	chunks []manifest.Span // once they were asked for
	asked  bool
	usable bool
}

// New is a Finder of nothing yet.
func New(st Store) *Finder {
	f := &Finder{store: st, byName: map[string][]*source{}}
	f.Next()
	return f
}

var types = map[formats.DType]recipe.Type{formats.F32: recipe.F32, formats.BF16: recipe.BF16,
	formats.F16: recipe.F16}

// MayBeSource reports whether others may be computed from a tensor of such numbers.
func MayBeSource(t *formats.Tensor) bool {
	_, ok := types[t.DType]
	return ok && t.Region >= 0
}

// MayBeTarget reports whether a tensor of such numbers may be computed from others.
func MayBeTarget(t *formats.Tensor) bool {
	if t.Region < 0 {
		return false
	}
	_, ok := types[t.DType]
	return ok || isQuantised(t) || mayBeScales(t)
}

func isQuantised(t *formats.Tensor) bool {
	_, ok := formatOf(t)
	return ok || mayBeCodes(t)
}

// Quantised reports whether a tensor has fewer bits than what it may have been computed from.
func Quantised(t *formats.Tensor) bool {
	return isQuantised(t) && t.Region >= 0
}

// Add adds a stored tensor, which fills its region; grid is the region's chunks, nil unless they lie on the
// grid of cas.ChunkSize.
func (f *Finder) Add(t *formats.Tensor, grid func() []manifest.Span) {
	s := &source{t: t, file: f.file, typ: types[t.DType], grid: grid}
	if s.typ == 0 && !s.addCodes() || !t.Contiguous() {
		return
	}
	if s.codes == nil && isScales(t.Name) {
		f.file.scales[t.Name] = s
	}
	for _, key := range keys(t.Name) {
		if l := f.byName[key]; len(l) < maxSources {
			f.byName[key] = append(l, s)
		}
	}
}

// Empty reports whether nothing was added.
func (f *Finder) Empty() bool { return f == nil || len(f.byName) == 0 }

// Target is a tensor that may be computed.
type Target struct {
	Tensor *formats.Tensor
	Len    int64 // bytes, all of a region
	// Read reads n bytes of it from off on.
	Read func(off int64, n int) ([]byte, error)
	// Beside is another tensor of its file, and its bytes; nil when there is none, or it is long.
	Beside func(name string) (t *formats.Tensor, content []byte, err error)

	asked bool // for coded
	coded *coding
}

// may reports whether t may be computed, as far as its file tells. The error is of reading that.
func (t *Target) may() (bool, error) {
	if t.Len < minScales || !t.Tensor.Contiguous() || !MayBeTarget(t.Tensor) {
		return false, nil
	}
	c, err := t.coding()
	if err != nil || c == nil && mayBeCodes(t.Tensor) {
		return false, err
	}
	return t.Len >= MinLen || c != nil && c.quantiser.Format == quant.ScalesOf, nil
}

// Of is how a tensor may be computed: of the first that explains the samples wholly, else of the one that
// explains most of them, since what the one of several versions was made of the others explain, too, but for
// some codes. nil: it cannot be, as far as is known. The error is of reading the target.
func (f *Finder) Of(t *Target) (*Plan, error) {
	if f.Empty() {
		return nil, nil
	}
	if ok, err := t.may(); !ok || err != nil {
		return nil, err
	}
	return f.nearest(t)
}

// nearest is Of for a tensor that is looked at.
func (f *Finder) nearest(t *Target) (best *Plan, err error) {
	name, may := t.sources()
	var all []*source
	for _, key := range keys(name) {
		for _, s := range slices.Backward(f.byName[key]) {
			if !slices.Contains(all, s) && may(s) {
				all = append(all, s)
			}
		}
	}
	// What explained the tensor before mostly explains this one.
	slices.SortStableFunc(all, func(a, b *source) int {
		switch {
		case a.file == b.file || a.file != f.won && b.file != f.won:
			return 0
		case a.file == f.won:
			return -1
		}
		return 1
	})
	tries := 0
	for _, s := range all {
		if !s.file.worth(t) || !f.use(s) {
			continue
		}
		if tries++; tries > maxCandidates {
			break
		}
		p, err := f.probe(t, s)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		s.file.vain[t.Tensor.DType] = 0
		if best == nil || p.right > best.right {
			best, f.won = p, s.file
		}
		if best.right == 1 {
			break
		}
	}
	return best, nil
}

// worth reports whether a file is asked for a tensor, which is in vain until it is said otherwise.
func (f *file) worth(t *Target) bool {
	n := f.vain[t.Tensor.DType] + 1
	f.vain[t.Tensor.DType] = n
	return n <= maxVain || n%vainEvery == 0
}

// sources are those that t may be computed from: of which name, and which of these. A tensor of the same type
// is another version of it, which has its own ways of being stored, unless a converter gave it another name.
func (t *Target) sources() (name string, may func(*source) bool) {
	if c := t.coded; c != nil {
		return c.name, func(s *source) bool { return c.of(s) != nil }
	}
	x, n := t.Tensor, t.Tensor.NumElements()
	return x.Name, func(s *source) bool {
		return s.t.NumElements() == n && !(s.codes != nil && Quantised(x)) && (x.DType != s.t.DType ||
			strings.HasPrefix(x.Name, layerOf) != strings.HasPrefix(s.t.Name, layerOf) ||
			!slices.Equal(x.Shape, s.t.Shape) && len(turnsOf(x, s.t)) > 0)
	}
}

// use reports whether s can be computed from: it is there, and no recipe itself.
func (f *Finder) use(s *source) bool {
	if !s.asked {
		s.asked = true
		s.chunks = s.grid()
		var at [1]cas.Location
		if len(s.chunks) > 0 && f.store.Locate([]cas.Hash{s.chunks[0].Hash}, at[:]) == nil {
			s.usable = at[0].Segment != 0 && at[0].Codec != codec.Recipe && f.resolve(s)
		}
	}
	return s.usable
}

// read reads n elements from first on of s; nil when they cannot be read.
func (f *Finder) read(s *source, first, n int64) []byte {
	w := int64(s.typ.Size())
	return ReadGrid(s.chunks, f.chunk, first*w, int(n*w))
}

// ReadGrid reads n bytes from off on of what lies in chunks on the grid of cas.ChunkSize; nil when they cannot
// be read. chunk is a chunk's content, nil when that cannot be read.
func ReadGrid(chunks []manifest.Span, chunk func(cas.Hash) []byte, off int64, n int) []byte {
	out := make([]byte, 0, n)
	for n > 0 {
		k := off / cas.ChunkSize
		if k >= int64(len(chunks)) {
			return nil
		}
		p := chunk(chunks[k].Hash)
		at := int(off - k*cas.ChunkSize)
		if at >= len(p) {
			return nil
		}
		m := min(n, len(p)-at)
		out = append(out, p[at:at+m]...)
		off, n = off+int64(m), n-m
	}
	return out
}

// chunk is a chunk's content; nil when it cannot be read.
func (f *Finder) chunk(h cas.Hash) []byte {
	for i := range f.lately {
		if l := &f.lately[i]; l.h == h && l.p != nil {
			return l.p
		}
	}
	l := &f.lately[f.reads%len(f.lately)]
	f.reads++
	p, err := f.store.Get(h, l.p[:0])
	if err != nil {
		l.p = nil
		return nil
	}
	l.h, l.p = h, p
	return p
}
