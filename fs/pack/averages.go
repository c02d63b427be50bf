package pack

import (
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
	"ckptfs/formats"
	"ckptfs/fs/recipes"
	"ckptfs/index/manifest"
)

// averages finds tensors that are averages of others over the steps: what they were at the step before, moved
// to what another one of their shape is now, in the same file or beside it, whose name ends alike. A nil
// averages finds nothing.
type averages struct {
	j      *job
	byName map[string][]master // by the ends of names
	asked  int                 // tensors that were looked at in vain
}

const (
	maxUnmoved  = 8        // tensors of a file that are looked at in vain
	minAveraged = 16 << 10 // bytes of one
	movedHead   = 16 << 10 // bytes of one that tell
	maxWith     = 4        // candidates for a tensor
)

// newAverages is nil where the file has no version before.
func (j *job) newAverages(p *plan, beside []*manifest.Manifest) *averages {
	if j.noRecipes || !slices.ContainsFunc(j.origins, func(o origin) bool { return o.of != nil }) {
		return nil
	}
	a := &averages{j: j, byName: map[string][]master{}}
	for i := range p.regions {
		if r := &p.regions[i]; r.tensor != nil && !r.small {
			a.add(master{t: r.tensor, r: &r.Region, own: r})
		}
	}
	for _, m := range beside {
		e := newEarlier(j.store, m)
		e.lists = j.lists
		for i := range m.Tensors {
			if t := &m.Tensors[i]; t.Region >= 0 {
				a.add(master{t: t, r: &m.Regions[t.Region], of: e})
			}
		}
	}
	return a
}

func (a *averages) add(c master) {
	if recipes.TypeOf(c.t.DType) == 0 || c.r.Len < minAveraged || !fills(c.t, c.r) {
		return
	}
	for _, name := range ends(c.t.Name) {
		if l := a.byName[name]; len(l) < maxAlike {
			a.byName[name] = append(l, c)
		}
	}
}

// ends are those of a name of two parts or more, or of one that is all of what a wrapper leaves.
func ends(name string) []string {
	name = plainName(name)
	all := endings(name, 2)
	for _, w := range wrappers {
		if rest, ok := strings.CutPrefix(name, w+"."); ok {
			all = append(all, rest)
		}
	}
	return all
}

// of is how r, which was another at the step before, goes on from that, and the region of the file that has
// to be cut before it, if there is one. nil: it does not, as far as is known.
func (a *averages) of(r *region, was origin) (*recipes.Averaged, *region, error) {
	if a == nil || was.of == nil || r.tensor == nil || r.Len < minAveraged || a.asked == maxUnmoved ||
		!fills(r.tensor, &r.Region) || recipes.TypeOf(r.tensor.DType) == 0 {
		return nil, nil, nil
	}
	var seen []*formats.Tensor
	var want, before []float32
	for _, name := range ends(r.tensor.Name) {
		for _, c := range a.byName[name] {
			if c.t == r.tensor || c.t.DType != r.tensor.DType || !slices.Equal(c.t.Shape, r.tensor.Shape) ||
				c.r.Len != r.Len || slices.Contains(seen, c.t) || len(seen) == maxWith {
				continue
			}
			seen = append(seen, c.t)
			n := int(min(r.Len, movedHead))
			if want == nil {
				head, err := a.j.read(&r.Region, n)
				if err != nil {
					return nil, nil, err
				}
				old := was.of.begin(was.r, n)
				if old == nil || string(old) == string(head) {
					return nil, nil, nil
				}
				want, before = recipes.Floats(head, r.tensor.DType), recipes.Floats(old, r.tensor.DType)
			}
			with, err := a.head(&c, n)
			if err != nil || with == nil {
				return nil, nil, err
			}
			x := recipes.Floats(with, r.tensor.DType)
			op, ok := recipes.Averaging(want, before, x, recipes.TypeOf(r.tensor.DType))
			if !ok {
				continue
			}
			as := recipes.NewAveraged(r.tensor.DType, op, was.chunks(), a.j.program)
			if c.own == nil {
				with := c.of.grid(c.r)
				as.With = func() []manifest.Span { return with }
			}
			a.asked = 0
			return as, c.own, nil
		}
	}
	if len(seen) > 0 {
		a.asked++
	}
	return nil, nil, nil
}

// head is the beginning of a candidate; nil when it cannot be read, or is no base.
func (a *averages) head(c *master, n int) ([]byte, error) {
	if c.own != nil {
		return a.j.read(c.r, n)
	}
	if !a.j.areBases(c.of.grid(c.r)) {
		return nil, nil
	}
	return c.of.begin(c.r, n), nil
}

// Programs is a Store that tells how chunks are computed.
type Programs interface {
	// Program is the bases of a chunk that is computed, and the program with what lies behind it.
	Program(h cas.Hash) (bases []cas.Hash, program []byte, ok bool)
}

// records is a store of segments.
type records interface {
	With(h cas.Hash, loc cas.Location, f func(*segment.Reader, cas.Location) error) error
}

// maxProgram bounds a record whose program goes on: it has little but its bases and its program.
const maxProgram = 64 << 10

// program is how a chunk is computed; ok is false when it is not, or that cannot be told.
func (j *job) program(h cas.Hash) (bases []cas.Hash, program []byte, ok bool) {
	if st, is := j.store.(Programs); is {
		return st.Program(h)
	}
	st, is := j.store.(records)
	var at [1]cas.Location
	if !is || j.store.Locate([]cas.Hash{h}, at[:]) != nil || at[0].Codec != codec.Recipe ||
		at[0].Segment == 0 || at[0].Stored > maxProgram {
		return nil, nil, false
	}
	err := st.With(h, at[0], func(r *segment.Reader, at cas.Location) error {
		if at.Stored > maxProgram {
			return cas.ErrTooLarge
		}
		var rec segment.Record
		p, err := r.ReadRecord(at, h, &rec, make([]byte, segment.RecordHeaderSize+int(at.Stored)))
		if err != nil {
			return err
		}
		b, err := segment.ParseBase(rec.Codec, p)
		if err == nil && rec.Codec == codec.Recipe {
			bases, program, ok = b.Hashes(), p[b.Size():], true
		}
		return err
	})
	return bases, program, ok && err == nil
}

// goesOn says what is moved to, once it is cut: late is a region that waits for another.
func (r *region) goesOn() bool {
	a, ok := r.relatives().recipe.(*recipes.Averaged)
	if !ok {
		return false
	}
	var with []manifest.Span
	if r.master.master == nil { // else it is cut at the same time
		for _, o := range r.master.objects {
			with = append(with, o.list()...)
		}
	}
	a.With = func() []manifest.Span { return with }
	return true
}

var _ recipeOfChunks = (*recipes.Averaged)(nil)
