package pack

import (
	"cmp"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
	"ckptfs/fs/recipes"
	"ckptfs/index/manifest"
)

// mixer finds out of which earlier files the tensors of one are combined: what was merged of several,
// averaged or interpolated. A nil mixer finds nothing.
//
// It is told from one or two of the larger tensors that several files have. If these are none, no other is
// looked at. How one tensor is combined is tried first for the next.
type mixer struct {
	o      *origins
	usable func(chunks []manifest.Span) bool
	files  []int // sources of different files, the one of most bytes first
	last   []mixed
	misses int // fits in vain that are left
	asked  bool
}

// mixed is how a tensor is combined of sources.
type mixed struct {
	mix recipes.Mix // of the sources at its places
	of  []int
}

const (
	maxMisses = 64    // tensors of a file that coefficients are fitted to in vain
	maxMixed  = 4     // ways that are remembered
	mixedAs   = 0.9   // the share of a tensor's first chunk that must come out
	wholly    = 0.999 // and that says that there is no better way
	minMixed  = 64 << 10
	asked     = 2  // tensors that tell whether a file is combined of others
	copied    = 16 // copies of one parent's that tell nothing of it
)

// newMixer is nil where fewer than two files have tensors of it.
// usable says of a region's chunks whether they can be bases.
func newMixer(o *origins, usable func(chunks []manifest.Span) bool) *mixer {
	m := &mixer{o: o, usable: usable, misses: maxMisses}
	bytes := map[int]int64{}
	var seen []*earlier
	for s := range o.sources {
		src := &o.sources[s]
		if slices.Contains(seen, src.of) {
			continue
		}
		var largest origin
		for i := range o.regions {
			if o.regions[i].Kind != formats.Data || o.first[i] < 0 {
				continue
			}
			if at, ok := o.origin(s, i); ok {
				bytes[s] += o.regions[i].Len
				if largest.r == nil || at.r.Len > largest.r.Len {
					largest = at
				}
			}
		}
		if largest.r != nil && largest.r.Len >= minMixed && usable(largest.chunks()) {
			seen = append(seen, src.of)
			m.files = append(m.files, s)
		}
	}
	if len(m.files) < 2 {
		return nil
	}
	slices.SortStableFunc(m.files, func(a, b int) int { return cmp.Compare(bytes[b], bytes[a]) })
	m.files = m.files[:min(len(m.files), recipe.MaxVectors)]
	return m
}

// of is how region i is combined; nil: it is not, as far as is known.
func (m *mixer) of(i int) (*recipes.Mixed, error) {
	if m == nil || !m.may(i) {
		return nil, nil
	}
	if !m.asked {
		m.asked = true
		if err := m.ask(); err != nil {
			return nil, err
		}
	}
	if len(m.last) == 0 {
		return nil, nil
	}
	t, err := m.read(i)
	if err != nil || t == nil {
		return nil, err
	}
	return m.find(t), nil
}

// may reports whether region i is numbers that several files have.
func (m *mixer) may(i int) bool {
	k := m.o.first[i]
	return k >= 0 && m.o.regions[i].Len >= minMixed && fills(&m.o.tensors[k], &m.o.regions[i]) &&
		recipes.TypeOf(m.o.tensors[k].DType) != 0 && len(m.having(i)) > 1
}

// having are the sources that have region i.
func (m *mixer) having(i int) (all []int) {
	for _, s := range m.files {
		if _, ok := m.o.origin(s, i); ok {
			all = append(all, s)
		}
	}
	return all
}

// ask looks at the largest tensors that are no copies.
func (m *mixer) ask() error {
	var larger []int
	for i := range m.o.regions {
		if m.o.regions[i].Kind == formats.Data && m.may(i) {
			larger = append(larger, i)
		}
	}
	slices.SortStableFunc(larger, func(i, k int) int {
		return cmp.Compare(m.o.regions[k].Len, m.o.regions[i].Len)
	})
	looked := 0
	for _, i := range larger[:min(len(larger), asked+copied)] {
		t, err := m.read(i)
		switch {
		case err != nil:
			return err
		case t == nil || t.copied():
			continue
		}
		if m.find(t); len(m.last) > 0 {
			return nil
		}
		if looked++; looked == asked {
			return nil
		}
	}
	return nil
}

// mixing is the first chunk of a tensor, and what sources have there.
type mixing struct {
	i    int // its region
	typ  formats.DType
	want []float32
	of   []int // sources
	x    [][]float32
}

// read reads a tensor; nil: it has too few parents.
func (m *mixer) read(i int) (*mixing, error) {
	r := &m.o.regions[i]
	head, err := m.o.head(r, int(min(r.Len, cas.ChunkSize)))
	if err != nil || head == nil {
		return nil, err
	}
	t := &mixing{i: i, typ: m.o.tensors[m.o.first[i]].DType}
	t.want = recipes.Floats(head, t.typ)
	for _, s := range m.having(i) {
		at, _ := m.o.origin(s, i)
		if p := at.of.begin(at.r, len(head)); p != nil && m.usable(at.chunks()) {
			t.of, t.x = append(t.of, s), append(t.x, recipes.Floats(p, t.typ))
		}
	}
	if len(t.of) < 2 {
		return nil, nil
	}
	return t, nil
}

// copied reports whether it is what one of the sources has.
func (t *mixing) copied() bool {
	return slices.ContainsFunc(t.x, func(x []float32) bool { return slices.Equal(x, t.want) })
}

// find is how a tensor is combined; nil: it is not, as far as is known.
func (m *mixer) find(t *mixing) *recipes.Mixed {
	best, share, at := (*recipes.Mix)(nil), 0.0, -1
	for n, was := range m.last {
		if mix, ok := was.in(t.of); ok {
			if s := mix.Share(t.want, t.x); s >= mixedAs && s > share {
				best, share, at = mix, s, n
			}
		}
	}
	if share < wholly && m.misses > 0 {
		m.misses-- // unless it helps
		if mix := recipes.Fit(t.want, t.x, recipes.TypeOf(t.typ)); mix != nil {
			if s := mix.Share(t.want, t.x); s >= mixedAs && s > share {
				best, at = mix, -1
				m.misses++
			}
		}
	}
	if best == nil {
		return nil
	}
	if at >= 0 {
		was := m.last[at]
		m.last = slices.Insert(slices.Delete(m.last, at, at+1), 0, was)
	} else {
		as := mixed{mix: *best}
		for _, k := range best.Of {
			as.of = append(as.of, t.of[k])
		}
		m.last = slices.Insert(m.last, 0, as)
		m.last = m.last[:min(len(m.last), maxMixed)]
	}
	return m.plan(t, best)
}

// in is how it is combined of some sources; false: they lack one.
func (d *mixed) in(of []int) (*recipes.Mix, bool) {
	mix := d.mix
	mix.Of = nil
	for _, s := range d.of {
		k := slices.Index(of, s)
		if k < 0 {
			return nil, false
		}
		mix.Of = append(mix.Of, k)
	}
	return &mix, true
}

// plan is how the chunks of a tensor are combined.
func (m *mixer) plan(t *mixing, mix *recipes.Mix) *recipes.Mixed {
	var grids [][]manifest.Span
	for _, k := range mix.Of {
		at, _ := m.o.origin(t.of[k], t.i)
		grids = append(grids, at.chunks())
	}
	return recipes.NewMixed(t.typ, mix, grids)
}
