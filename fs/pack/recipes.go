package pack

import (
	"errors"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/fs/recipes"
	"ckptfs/index/manifest"
)

// addSources notes the tensors that others may be computed from.
func (j *job) addSources(files []*manifest.Manifest) {
	if len(files) == 0 {
		return
	}
	if j.recipes == nil {
		j.recipes = recipes.New(j.store)
	}
	for _, m := range files {
		e := newEarlier(j.store, m)
		e.lists = j.lists
		j.recipes.Next()
		for i := range m.Tensors {
			t := &m.Tensors[i]
			if t.Region < 0 || !fills(t, &m.Regions[t.Region]) {
				continue
			}
			r := &m.Regions[t.Region]
			j.recipes.Add(t, func() []manifest.Span { return e.grid(r) })
		}
	}
}

// areBases reports whether chunks may be bases of what is computed, as far as the first one tells: it is
// there, and not computed itself.
func (j *job) areBases(chunks []manifest.Span) bool {
	by, there := j.codecOf(chunks)
	return there && by != codec.Recipe
}

// hold reports whether others may be stored as differences from chunks, as far as the first one tells.
func (j *job) hold(chunks []manifest.Span) bool {
	by, there := j.codecOf(chunks)
	return there && by != codec.Recipe && by != codec.Rounded
}

// baseless reports whether chunks need no base, as far as the first one tells.
func (j *job) baseless(chunks []manifest.Span) bool {
	by, there := j.codecOf(chunks)
	return there && !codec.NeedsBase(by)
}

// codecOf is the codec of the first of chunks, if that is in the store.
func (j *job) codecOf(chunks []manifest.Span) (by uint8, there bool) {
	var at [1]cas.Location
	if len(chunks) == 0 || j.store.Locate([]cas.Hash{chunks[0].Hash}, at[:]) != nil {
		return 0, false
	}
	return at[0].Codec, at[0].Segment != 0
}

// reader reads a file by its layout.
type reader struct {
	tensors []formats.Tensor
	regions []formats.Region
	read    func(r *formats.Region, off int64, n int) ([]byte, error)
	names   map[string]int // nil until one is asked for
}

// reader reads the file that is packed.
func (j *job) reader(l *formats.Layout) *reader {
	read := func(r *formats.Region, off int64, n int) ([]byte, error) {
		p := make([]byte, n)
		return p, readFull(j.r, p, r.Off+off)
	}
	return &reader{tensors: l.Tensors, regions: l.Regions, read: read}
}

var errGone = errors.New("it cannot be read")

// reader reads a packed file.
func (e *earlier) reader() *reader {
	read := func(r *formats.Region, off int64, n int) ([]byte, error) {
		if p := e.at(r.Off+off, n); p != nil {
			return p, nil
		}
		return nil, errGone
	}
	return &reader{tensors: e.m.Tensors, regions: e.m.Regions, read: read}
}

// maxBeside bounds what is read of a tensor beside another, in bytes.
const maxBeside = 16 << 20

// beside is a tensor of the file, and its bytes.
func (f *reader) beside(name string) (*formats.Tensor, []byte, error) {
	if f.names == nil {
		f.names = make(map[string]int, len(f.tensors))
		for i := range f.tensors {
			f.names[f.tensors[i].Name] = i
		}
	}
	i, ok := f.names[name]
	if !ok {
		return nil, nil, nil
	}
	t := &f.tensors[i]
	n := t.NumBytes()
	if t.Region < 0 || n > maxBeside || !t.Contiguous() || t.Offset+n > f.regions[t.Region].Len {
		return nil, nil, nil
	}
	p, err := f.read(&f.regions[t.Region], t.Offset, int(n))
	return t, p, err
}

// recipeOf is how t, all of r, may be computed from stored tensors; nil: it cannot be. The error is of
// reading the file.
func (j *job) recipeOf(t *formats.Tensor, r *formats.Region, f *reader) (*recipes.Plan, error) {
	if j.recipes.Empty() || t == nil || !fills(t, r) {
		return nil, nil
	}
	return j.recipes.Of(f.target(t, r))
}

// first is the first region that is cut at once and has one of some tensors of f; nil: there is none.
func (p *plan) first(f *reader, names []string) *region {
	for _, name := range names {
		if i, ok := f.names[name]; ok && f.tensors[i].Region >= 0 {
			if r := &p.regions[f.tensors[i].Region]; !r.small && r.master == nil {
				return r
			}
		}
	}
	return nil
}

// computed reports whether a region is computed of tensors that are stored, its own file's among them.
func (r *region) computed() bool {
	_, ok := r.relatives().recipe.(*recipes.Plan)
	return ok
}

// target is t, all of r, as what may be computed.
func (f *reader) target(t *formats.Tensor, r *formats.Region) *recipes.Target {
	return &recipes.Target{Tensor: t, Len: r.Len,
		Read:   func(off int64, n int) ([]byte, error) { return f.read(r, off, n) },
		Beside: f.beside}
}
