package recipes

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
)

// # Transposes
//
// A layer's weights are outputs by inputs in PyTorch, and inputs by outputs in TensorFlow, in Flax, and in
// GPT-2. Kernels of convolutions have their places first there, and last in PyTorch: of three groups of axes,
// outputs, inputs and places, the order is reversed, whichever of both is stored. A transpose is that with one
// axis between of a single element.
//
// A chunk of such a tensor has some elements of each row of its source, and so needs all of its chunks: so
// only tensors of at most maxWide are computed so, which is what a read may need.

// maxWide is how many chunks a source has at most that all chunks of a tensor need.
const maxWide = 40

// MaxTurned is how many elements a tensor has at most that may have been turned: as many as maxWide chunks
// have of half precision.
const MaxTurned = maxWide * cas.ChunkSize / 2

// Axes are the lengths of three groups of a tensor's axes. It may be another with these in reverse order.
type Axes struct{ Outer, Middle, Inner int64 }

// Turns are the ways in which a tensor may have been turned.
func Turns(t *formats.Tensor) (all []Axes) {
	dims := slices.DeleteFunc(slices.Clone(t.Shape), func(n int64) bool { return n == 1 })
	k := len(dims)
	if n := t.NumElements(); k < 2 || n > MaxTurned || slices.Contains(dims, 0) {
		return nil
	}
	product := func(dims []int64) int64 {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		return n
	}
	if k < 4 {
		for i := 1; i < k; i++ {
			all = append(all, Axes{product(dims[:i]), 1, product(dims[i:])})
		}
	}
	if k > 2 {
		all = append(all, Axes{dims[0], dims[1], product(dims[2:])})
	}
	if k > 3 {
		all = append(all, Axes{product(dims[:k-2]), dims[k-2], dims[k-1]})
	}
	return all
}

// reversed is the layout of a target with such axes, of a source that has them the other way around.
type reversed Axes

func (l reversed) runs(first, n int64, add func(source int, first, n int64)) {
	for at := first; at < first+n; at++ {
		k, j, i := at/(l.Middle*l.Inner), at/l.Inner%l.Middle, at%l.Inner
		add(0, (i*l.Middle+j)*l.Outer+k, 1)
	}
}

// turned are the first of some of the source's columns, and their number, that n elements from first on lie
// in, and the ops that make these of them.
func (l reversed) turned(first, n int64) (from, cols int64, prog recipe.Program) {
	rows := l.Inner * l.Middle
	from = first / rows
	cols = (first+n+rows-1)/rows - from
	op := recipe.Transpose{Rows: int(rows), Cols: int(cols), N: int(rows * cols)}
	if l.Middle > 1 && l.Inner > 1 {
		prog = append(prog, op)
		op.Rows, op.Cols = int(l.Inner), int(l.Middle)
	}
	op.Skip, op.N = int(first-from*rows), int(n)
	return from, cols, append(prog, op)
}

// columns are the runs of some columns of the source.
func (l reversed) columns(from, cols int64, add func(source int, first, n int64)) {
	for row := range l.Inner * l.Middle {
		add(0, row*l.Outer+from, cols)
	}
}

const (
	turnedPlaces = 6  // samples of what may have been turned
	perTurned    = 32 // elements of one, each of which lies in another row of the source
)

// Turned is how a tensor may be computed of one of sources by reversing axes; nil: it cannot be, as far as
// samples tell. The error is of reading the target.
func (f *Finder) Turned(t *Target, sources []Source, a Axes) (*Plan, error) {
	if ok, err := t.may(); !ok || err != nil {
		return nil, err
	}
	for _, c := range sources[:min(len(sources), maxCandidates)] {
		if c.s == nil || c.s.t.NumElements() != t.Tensor.NumElements() || !f.use(c.s) {
			continue
		}
		if p, err := f.probeTurned(t, c.s, a); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// probeTurned is probe for what may have been turned.
func (f *Finder) probeTurned(t *Target, s *source, a Axes) (*Plan, error) {
	if len(s.chunks) > maxWide || s.codes != nil {
		return nil, nil
	}
	p, err := newPlan(t, []*source{s}, reversed(a))
	if p == nil || err != nil {
		return nil, err
	}
	elems, size := p.block()
	blocks, unit := t.Len/size, p.unit()
	per := (perTurned + unit - 1) / unit
	units := blocks * elems / unit
	if units < per || blocks*elems != s.t.NumElements() {
		return nil, nil
	}
	samples := make([]sample, turnedPlaces)
	for i := range samples {
		at := (units - per) * int64(2*i+1) / (2 * turnedPlaces)
		samples[i] = sample{first: at * unit, n: per * unit}
	}
	if err := p.fill(t, samples); err != nil || !f.fits(p, samples) {
		return nil, err
	}
	return p, f.settle(t, p, blocks)
}

// turnsOf are the ways in which t may be the source s turned, as far as their shapes tell.
func turnsOf(t, s *formats.Tensor) (all []Axes) {
	if t.NumElements() != s.NumElements() {
		return nil
	}
	back := Turns(s)
	for _, a := range Turns(t) {
		if slices.Contains(back, Axes{a.Inner, a.Middle, a.Outer}) {
			all = append(all, a)
		}
	}
	return all
}

// TurnedKeys are the anchors of what a tensor may have been turned from, as far as a part of it tells. p is
// all of it, as bfloat16; room has as many bytes.
func TurnedKeys(p, room []byte, a Axes) []anchor.Key {
	// A part of its rows, one behind the other, is the beginning of it.
	rows := max(a.Inner/turnedPart, min(a.Inner, minTurned/(a.Middle*a.Outer)+1))
	n := rows * a.Middle * a.Outer
	room = room[:0]
	for i := range rows {
		for j := range a.Middle {
			for k := range a.Outer {
				at := 2 * ((k*a.Middle+j)*a.Inner + i)
				room = append(room, p[at], p[at+1])
			}
		}
	}
	bf16, _ := anchor.NumbersOf(string(formats.BF16))
	s := anchor.New(bf16, n, 0)
	s.Add(room, 0)
	return s.Keys(anchor.Windows)
}

const (
	turnedPart = 8        // one of so many rows is looked at first
	minTurned  = 64 << 10 // elements that are, at least
)
