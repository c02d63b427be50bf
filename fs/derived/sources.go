package derived

import (
	"cmp"
	"iter"
	"path"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/formats"
	"ckptfs/fs/recipes"
	"ckptfs/index/manifest"
)

const (
	maxLists   = 1 << 13 // that are read
	maxSamples = 8       // tensors by which files are told apart
	maxWhole   = 16      // files all of whose tensors are looked at
	maxUnsure  = 256     // files that are looked at though others are known that explain all samples
	maxFurther = 1 << 12 // bases of which it is asked what they are functions of
	maxLike    = 8       // tensors of a file that one is looked for in, that have its number of elements only
)

// source is where a base lies: at a byte of the region of a tensor.
type source struct {
	file *File
	n    int // in its tensors
	at   int64
}

func (s *source) tensor() *formats.Tensor { return &s.file.Doc.Tensors[s.n] }

// wanted is a base that is looked for.
type wanted struct {
	weight int64 // bytes of tensors that need it
	in     []source

	further     []cas.Hash // what it is a function of itself, which may be in files that it is not in
	raw, stored int64      // of its record, if it has further ones
	aside       bool       // it is a further one only: it is not missed
}

// all are the bases, and those of other chunks.
func (w *Way) all() []cas.Hash { return slices.Concat(w.bases, w.rest) }

// search looks for bases among files.
type search struct {
	st    Store
	of    *File
	want  map[cas.Hash]*wanted
	keys  map[string]bool // names of the tensors that need them, and what these are known as
	elems map[int64]bool
	any   bool          // tensor is looked at, whatever it is called
	lists int           // that may still be read
	age   map[*File]int // the place at which a file came
}

// Name finds which tensors the bases of ways are of: ways of tensors of f, and files, from which they may be,
// in the order in which they are preferred. What is in none of them remains without a name.
func Name(st Store, f *File, ways []*Way, files iter.Seq[*File]) { name(st, f, ways, files, false) }

// name is Name; further says that it is looked for, too, what the bases are functions of themselves.
func name(st Store, f *File, ways []*Way, files iter.Seq[*File], further bool) *search {
	s := &search{st: st, of: f, want: map[cas.Hash]*wanted{}, lists: maxLists, age: map[*File]int{}}
	var heavy []*Way
	for _, w := range ways {
		if w == nil || w.at != nil {
			continue
		}
		w.at = make([]*source, len(w.bases)+len(w.rest))
		heavy = append(heavy, w)
		for _, h := range w.all() {
			if s.want[h] == nil {
				s.want[h] = &wanted{}
			}
			s.want[h].weight += w.so
		}
	}
	if len(heavy) == 0 {
		return s
	}
	slices.SortStableFunc(heavy, func(a, b *Way) int { return cmp.Compare(b.so, a.so) })
	if further {
		s.further(heavy)
	}
	s.look(heavy, files)
	s.assign(heavy)
	return s
}

// further reads, of the bases of ways, what they are functions of themselves. What cannot be read is of
// nothing.
func (s *search) further(ways []*Way) {
	var bases []cas.Hash
	for _, w := range ways {
		for _, h := range w.all() {
			if len(bases) < maxFurther && !slices.Contains(bases[max(0, len(bases)-maxLooks):], h) {
				bases = append(bases, h)
			}
		}
	}
	locs := make([]cas.Location, len(bases))
	if s.st.Locate(bases, locs) != nil {
		return
	}
	for i, h := range bases {
		w := s.want[h]
		if c := locs[i].Codec; locs[i].Segment == 0 || c != codec.Recipe && c != codec.Rounded || w.further != nil {
			continue
		}
		base, err := readBase(s.st, h, locs[i])
		if err != nil {
			continue
		}
		w.further, w.raw, w.stored = base.Hashes(), int64(locs[i].Raw), locs[i].RecordSize()
		for _, h := range w.further {
			if s.want[h] == nil {
				s.want[h] = &wanted{aside: true}
			}
		}
	}
}

// look looks through files.
func (s *search) look(heavy []*Way, files iter.Seq[*File]) {
	samples, all := heavy[:min(len(heavy), maxSamples)], s.want
	var others, whole, near []*File
	s.focus(samples)
	looked := 0
	for f := range files {
		s.age[f] = looked
		if looked++; looked > maxUnsure && s.explained() {
			break
		}
		if path.Dir(f.Path) == path.Dir(s.of.Path) {
			near = append(near, f)
		}
		switch {
		case f.Manifest == s.of.Manifest:
		case len(whole) == maxWhole:
			others = append(others, f)
		case f.doc(s.st) == nil:
		case s.in(f, maxLike):
			whole = append(whole, f)
		default:
			f.Doc = nil // there may be very many
			others = append(others, f)
		}
	}
	s.want = all
	s.focus(heavy)
	for _, f := range whole {
		s.in(f, len(f.Doc.Tensors))
	}
	for _, f := range append(others, s.of) {
		if s.explained() || s.lists <= 0 {
			break
		}
		if f.doc(s.st) != nil && !s.in(f, len(f.Doc.Tensors)) && f != s.of {
			f.Doc = nil
		}
	}
	s.any = true // a flat buffer has no tensor's name, and the elements of many
	for _, f := range near {
		if s.explained() || s.lists <= 0 {
			return
		}
		if f.doc(s.st) != nil {
			s.in(f, len(f.Doc.Tensors))
		}
	}
}

// explained reports whether all bases that are looked for were found.
func (s *search) explained() bool {
	for _, w := range s.want {
		if len(w.in) == 0 && !w.aside {
			return false
		}
	}
	return true
}

// focus has in look for the bases of some.
func (s *search) focus(some []*Way) {
	all := s.want
	s.want, s.keys, s.elems = map[cas.Hash]*wanted{}, map[string]bool{}, map[int64]bool{}
	for _, w := range some {
		for _, h := range w.all() {
			s.want[h] = all[h]
			for _, h := range all[h].further {
				s.want[h] = all[h]
			}
		}
		s.elems[w.tensor.NumElements()] = true
		s.keys[w.tensor.Name] = true
		for _, n := range recipes.Names(w.tensor.Name) {
			s.keys[n] = true
		}
		if n := recipes.MadeOf(w.tensor.Name); n != "" {
			s.keys[n] = true
		}
	}
}

// in looks for bases in f, and reports whether one is there. like bounds the tensors that are looked at though
// their names tell nothing.
func (s *search) in(f *File, like int) (found bool) {
	places := newPlaces(s.st, f)
	seen := map[int]bool{}
	for _, named := range []bool{true, false} {
		for n := range f.Doc.Tensors {
			t := &f.Doc.Tensors[n]
			if t.Region < 0 || seen[t.Region] || named != s.named(t.Name) {
				continue
			}
			if !named && !s.any {
				if found && like <= maxLike {
					return true
				}
				if !s.elems[t.NumElements()] || like == 0 {
					continue
				}
				like--
			}
			seen[t.Region] = true
			at := int64(0)
			for _, span := range places.spans(&f.Doc.Regions[t.Region], &s.lists) {
				if w := s.want[span.Hash]; w != nil {
					found = true
					if k := len(w.in); k == 0 || w.in[k-1].file != f {
						w.in = append(w.in, source{f, n, at})
					}
				}
				at += int64(span.Len)
			}
		}
	}
	return found
}

// named reports whether a tensor's name tells that it may be one that is looked for.
func (s *search) named(name string) bool {
	return s.keys[name] || slices.ContainsFunc(recipes.Names(name), func(n string) bool { return s.keys[n] })
}

// assign chooses, of the files that a base is in, the one that explains most bytes.
func (s *search) assign(ways []*Way) {
	weight := map[*File]int64{}
	for _, w := range s.want {
		for _, at := range w.in {
			weight[at.file] += w.weight
		}
	}
	for _, w := range ways {
		for i, h := range w.all() {
			var best *source
			for k := range s.want[h].in {
				if at := &s.want[h].in[k]; best == nil || weight[at.file] > weight[best.file] {
					best = at
				}
			}
			w.at[i] = best
		}
	}
}

// places says in which chunks the regions of a file are.
type places struct {
	st     Store
	f      *File
	starts []int64 // of the extents, in the file
}

func newPlaces(st Store, f *File) *places {
	p := &places{st: st, f: f, starts: make([]int64, len(f.Doc.Extents))}
	var off int64
	for i := range f.Doc.Extents {
		p.starts[i] = off
		off += f.Doc.Extents[i].Len
	}
	return p
}

// spans are the chunks of a region; nil unless they are whole objects, and can be read. lists, unless nil, is
// how many lists may still be read.
func (p *places) spans(r *formats.Region, lists *int) (spans []manifest.Span) {
	i, found := slices.BinarySearch(p.starts, r.Off)
	for end := r.Off + r.Len; found && i < len(p.starts) && p.starts[i] < end; i++ {
		x := p.f.Doc.Extents[i]
		if x.Object < 0 || x.ObjOff != 0 || p.f.Doc.Objects[x.Object].Len != x.Len {
			return nil
		}
		o := p.f.Doc.Objects[x.Object]
		if o.List && lists != nil {
			if *lists <= 0 {
				return nil
			}
			*lists--
		}
		part, err := o.Spans(func(h cas.Hash, buf []byte) ([]byte, error) {
			return p.st.List(p.f.Manifest, h, buf)
		})
		if err != nil {
			return nil
		}
		spans = append(spans, part...)
	}
	return spans
}

// Grids calls add with the tensors of a packed file that fill their regions, and where their chunks are: nil
// unless they lie on the grid of cas.ChunkSize.
func Grids(st Store, f *File, add func(t *formats.Tensor, grid func() []manifest.Span)) {
	if f.doc(st) == nil {
		return
	}
	p := newPlaces(st, f)
	for i := range f.Doc.Tensors {
		t := &f.Doc.Tensors[i]
		if t.Region < 0 || t.Offset != 0 || t.NumBytes() != f.Doc.Regions[t.Region].Len {
			continue
		}
		add(t, func() []manifest.Span {
			spans := p.spans(&f.Doc.Regions[t.Region], nil)
			for _, s := range spans[:max(len(spans)-1, 0)] {
				if s.Len != cas.ChunkSize {
					return nil
				}
			}
			return spans
		})
	}
}
