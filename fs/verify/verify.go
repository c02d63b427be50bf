// Package verify tells which share of files' tensors follows from those of stored files: by the recipes that a
// store would make of them (package recipes), each of which is run, and compared with the bytes. Nothing is
// stored. That a tensor does not follow says that no recipe was found, and no more.
package verify

import (
	"cmp"
	"context"
	"io"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
	"ckptfs/fs/control"
	"ckptfs/fs/derived"
	"ckptfs/fs/recipes"
	"ckptfs/index/manifest"
)

const (
	maxAmong  = 64 // sources that one tensor is looked for in though no name tells
	maxBeside = 16 << 20
	maxOthers = 16
	most      = 0.15 // of a chunk, that may be stored all the same
	mostOf    = 0.9  // of a tensor that follows, from which on it does
)

// Store is what is read of packed files.
type Store interface {
	recipes.Store
	derived.Store
}

// File is a file whose tensors may follow.
type File struct {
	Path    string
	Layout  *formats.Layout
	Digests []cas.Hash // of the tensors' storage; nil where they are not known
	Reader  io.ReaderAt
}

// Verifier says what follows from its sources.
type Verifier struct {
	st     Store
	finder *recipes.Finder
	held   map[cas.Hash]bool // objects of the sources
	all    []source
	chunks map[cas.Hash][]byte // that were read last
}

type source struct {
	recipes.Source
	t    *formats.Tensor
	grid func() []manifest.Span
}

// New is a Verifier by packed files.
func New(st Store, from []*derived.File) *Verifier {
	v := &Verifier{st: st, finder: recipes.New(st), held: map[cas.Hash]bool{}, chunks: map[cas.Hash][]byte{}}
	for _, f := range from {
		for i := range f.Doc.Objects {
			v.held[f.Doc.Objects[i].Digest] = true
		}
		derived.Grids(st, f, func(t *formats.Tensor, grid func() []manifest.Span) {
			v.finder.Add(t, grid)
			if recipes.MayBeSource(t) {
				v.all = append(v.all, source{v.finder.Source(t, grid), t, grid})
			}
		})
	}
	return v
}

// Add adds what follows of f to out.
func (v *Verifier) Add(ctx context.Context, f *File, out *control.Verified, progress func(int64)) error {
	seen := map[int]bool{}
	for i := range f.Layout.Tensors {
		t := &f.Layout.Tensors[i]
		out.Tensors++
		if t.Region < 0 || seen[t.Region] {
			continue
		}
		seen[t.Region] = true
		n := f.Layout.Regions[t.Region].Len
		out.TensorBytes += n
		follow, stored := n, int64(0)
		if f.Digests == nil || !v.held[f.Digests[i]] || f.Digests[i].IsZero() {
			var err error
			if follow, stored, err = v.tensor(ctx, f, t); err != nil {
				return err
			}
		}
		out.Bytes, out.StoredBytes = out.Bytes+follow, out.StoredBytes+stored
		if n >= recipes.MinLen && float64(follow) < mostOf*float64(n) {
			out.Others = append(out.Others, control.TensorRef{File: f.Path, Name: t.Name, DType: string(t.DType),
				Shape: t.Shape, Bytes: n})
		}
		progress(n)
	}
	return nil
}

// End sets what follows from the sums.
func End(out *control.Verified) {
	slices.SortStableFunc(out.Others, func(a, b control.TensorRef) int { return cmp.Compare(b.Bytes, a.Bytes) })
	if n := len(out.Others); n > maxOthers {
		out.Others, out.More = out.Others[:maxOthers], n-maxOthers
	}
	out.Follows = derived.Enough(out.TensorBytes, out.Bytes, out.StoredBytes)
	out.FreeBits = 8 * out.StoredBytes
	if out.TensorBytes > 0 {
		out.Share = float64(out.Bytes) / float64(out.TensorBytes)
	}
}

// tensor is how many bytes of t follow, and what a store would store of these.
func (v *Verifier) tensor(ctx context.Context, f *File, t *formats.Tensor) (follow, stored int64, err error) {
	r := &f.Layout.Regions[t.Region]
	read := func(off int64, n int) ([]byte, error) {
		p := make([]byte, n)
		return p, formats.ReadFull(f.Reader, p, r.Off+off)
	}
	if t.Offset != 0 || t.NumBytes() != r.Len || !t.Contiguous() {
		return 0, 0, nil
	}
	of, err := v.plan(f, t, &recipes.Target{Tensor: t, Len: r.Len, Read: read, Beside: f.beside})
	if of == nil || err != nil {
		return 0, 0, err
	}
	step := recipes.Step(t)
	for k := int64(0); k*step < r.Len; k++ {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		how := of(k)
		if how == nil {
			continue
		}
		raw, err := read(k*step, int(min(step, r.Len-k*step)))
		if err != nil {
			return 0, 0, err
		}
		bases, err := v.bases(how.Bases)
		if err != nil {
			return 0, 0, err
		}
		if p, ok := recipe.Encode(nil, how.Program, raw, bases, int(most*float64(len(raw)))); ok {
			follow, stored = follow+int64(len(raw)), stored+int64(len(p))
		}
	}
	return follow, stored, nil
}

// plan is how the chunks of t are computed; nil: they are not.
func (v *Verifier) plan(f *File, t *formats.Tensor, target *recipes.Target) (
	func(k int64) *cas.Recipe, error) {
	p, err := v.finder.Of(target)
	if p == nil && err == nil {
		var likely []recipes.Source
		n := t.NumElements()
		for _, alike := range []bool{true, false} {
			for i := range v.all {
				if s := &v.all[i]; alike == (s.t.NumElements() == n) && len(likely) < maxAmong {
					likely = append(likely, s.Source)
				}
			}
		}
		p, err = v.finder.Among(target, likely)
	}
	if err != nil {
		return nil, err
	}
	if p != nil {
		return p.Chunk, nil
	}
	m, err := v.mixed(t, target)
	if m == nil || err != nil {
		return nil, err
	}
	return m.Chunk, nil
}

// mixed is how t is combined of tensors of its name, type and shape; nil: it is not.
func (v *Verifier) mixed(t *formats.Tensor, target *recipes.Target) (*recipes.Mixed, error) {
	if recipes.TypeOf(t.DType) == 0 {
		return nil, nil
	}
	head, err := target.Read(0, int(min(target.Len, cas.ChunkSize)))
	if err != nil {
		return nil, err
	}
	var x [][]float32
	var grids [][]manifest.Span
	for i := range v.all {
		s := &v.all[i]
		if s.t.Name != t.Name || s.t.DType != t.DType || !slices.Equal(s.t.Shape, t.Shape) ||
			len(x) == recipe.MaxVectors {
			continue
		}
		grid := s.grid()
		if len(grid) == 0 {
			continue
		}
		p, err := v.bases([]cas.Hash{grid[0].Hash})
		if err != nil {
			return nil, err
		}
		if len(p) == len(head) {
			x, grids = append(x, recipes.Floats(p, t.DType)), append(grids, grid)
		}
	}
	if len(x) < 2 {
		return nil, nil
	}
	want := recipes.Floats(head, t.DType)
	mix := recipes.Fit(want, x, recipes.TypeOf(t.DType))
	if mix == nil || mix.Share(want, x) < mostOf {
		return nil, nil
	}
	var of [][]manifest.Span
	for _, k := range mix.Of {
		of = append(of, grids[k])
	}
	return recipes.NewMixed(t.DType, mix, of), nil
}

// maxKept bounds the chunks that are kept.
const maxKept = 32

// bases are the contents of chunks, one behind the other.
func (v *Verifier) bases(hashes []cas.Hash) (all []byte, err error) {
	for _, h := range hashes {
		p, ok := v.chunks[h]
		if !ok {
			if p, err = v.st.Get(h, nil); err != nil {
				return nil, err
			}
			if len(v.chunks) == maxKept {
				clear(v.chunks)
			}
			v.chunks[h] = p
		}
		all = append(all, p...)
	}
	return all, nil
}

// beside is another tensor of the file, and its bytes.
func (f *File) beside(name string) (*formats.Tensor, []byte, error) {
	for i := range f.Layout.Tensors {
		t := &f.Layout.Tensors[i]
		if t.Name != name {
			continue
		}
		n := t.NumBytes()
		if t.Region < 0 || n > maxBeside || !t.Contiguous() || t.Offset+n > f.Layout.Regions[t.Region].Len {
			return nil, nil, nil
		}
		p := make([]byte, n)
		return t, p, formats.ReadFull(f.Reader, p, f.Layout.Regions[t.Region].Off+t.Offset)
	}
	return nil, nil, nil
}
