package recipes

import (
	"slices"

	"ckptfs/cas/anchor"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// Source is a stored tensor that others may be computed from. The zero value is none.
type Source struct{ s *source }

// Source is t, which fills its region, whose chunks are grid, as for Add; the zero value where others are not
// computed from such.
func (f *Finder) Source(t *formats.Tensor, grid func() []manifest.Span) Source {
	typ, ok := types[t.DType]
	if !ok || !t.Contiguous() || t.Region < 0 {
		return Source{}
	}
	return Source{&source{t: t, typ: typ, grid: grid}}
}

const (
	maxAmong    = 512     // sources of a tensor
	maxRows     = 1 << 18 // of all sources of a tensor together
	minCols     = 32      // of what has rows
	minKnown    = 0.25    // the share of a tensor that must lie in sources
	allKnown    = 0.999   // and that is as good as all
	checked     = 8       // samples by which a layout is
	mustFit     = 0.75    // the share of these that must be right, where numbers are exact
	readPerByte = 16      // elements of sources that are read for one of a tensor, at most
)

// Among is how a tensor may be computed from some of sources, which it has something in common with: one of
// them as it is or with its rows in another order, or parts of several:
//
//	by rows     rows as long as a source's, each of which is looked for: slices, joined tensors, whichever way
//	            they are interleaved, other orders
//	by columns  rows as many as a source's: slices of rows, and rows of several one behind the other
//	flat        sources that lie in it, or of which it is a part, wherever they begin; and zeros
//
// nil: it cannot be, as far as is known. The error is of reading the target.
func (f *Finder) Among(t *Target, sources []Source) (*Plan, error) {
	if ok, err := t.may(); !ok || err != nil {
		return nil, err
	}
	n := t.Tensor.NumElements()
	var usable []*source
	for _, c := range sources[:min(len(sources), maxAmong)] {
		if c.s == nil || !f.use(c.s) {
			continue
		}
		if is := t.coded; is != nil && is.of(c.s) != nil || is == nil && c.s.t.NumElements() == n {
			if p, err := f.probe(t, c.s); p != nil || err != nil {
				return p, err
			}
		}
		usable = append(usable, c.s)
	}
	usable = ofOneType(usable)
	if len(usable) == 0 || t.coded != nil {
		return nil, nil
	}
	var best *Plan
	var most int64
	for _, by := range []func(*Target, []*source) (layout, error){f.byRows, f.byColumns, f.flat} {
		l, err := by(t, usable)
		if err != nil {
			return nil, err
		}
		if l == nil {
			continue
		}
		share := known(l, n)
		if float64(share) < minKnown*float64(n) || share <= most || same(t, l, usable) {
			continue
		}
		if l, err = f.rivals(t, l, usable); err != nil {
			return nil, err
		}
		p, err := newPlan(t, usable, l)
		if p == nil || err != nil {
			return nil, err
		}
		ok, err := f.check(t, p)
		if err != nil {
			return nil, err
		}
		if ok {
			best, most = p, share
		}
		if float64(most) >= allKnown*float64(n) {
			break
		}
	}
	return best, nil
}

// ofOneType are those sources of the type that most of their elements have.
func ofOneType(all []*source) []*source {
	var sums [256]int64
	for _, s := range all {
		sums[s.typ] += s.t.NumElements()
	}
	return slices.DeleteFunc(all, func(s *source) bool {
		return slices.ContainsFunc(sums[:], func(sum int64) bool { return sum > sums[s.typ] })
	})
}

// same reports whether a layout is that of the same numbers at the same places: a version, or a copy.
func same(t *Target, l layout, sources []*source) bool {
	p, ok := l.(pieces)
	if !ok || t.Tensor.DType != sources[0].t.DType || p[0].source < 0 ||
		t.Tensor.NumElements() != sources[p[0].source].t.NumElements() {
		return false // also of what is the beginning of a source, or longer than it
	}
	return !slices.ContainsFunc(p, func(p piece) bool { return p.at != p.first || p.source != l.(pieces)[0].source })
}

// rivals puts sources of the same shape in the place of those whose numbers do not come out: what is nearly
// the same as another has most of its marks.
func (f *Finder) rivals(t *Target, l layout, sources []*source) (layout, error) {
	for i, s := range sources {
		var at []sample
		p, err := newPlan(t, sources, l)
		if p == nil || err != nil {
			return l, err
		}
		if at = p.within(i, t.Len); len(at) == 0 {
			continue
		}
		if err := p.fill(t, at); err != nil {
			return nil, err
		}
		best, tries := f.score(p, at), 0
		for k, r := range sources {
			if best >= rightly || tries == maxRivals {
				break
			}
			if k == i || !slices.Equal(r.t.Shape, s.t.Shape) {
				continue
			}
			tries++
			p.layout = swapped(l, i, k)
			if is := f.score(p, at); is > best {
				best, l = is, p.layout
			}
		}
	}
	return l, nil
}

const (
	maxRivals = 16    // sources that are tried in the place of one
	rightly   = 0.999 // the share of samples that must come out for none to be
	ofOne     = 3     // samples of what lies in a source
)

// within are samples of what lies in source i alone.
func (p *Plan) within(i int, length int64) (all []sample) {
	elems, size := p.block()
	n := max(1, perPlace/4/elems) * elems // several rows would be of several
	add := func(first int64) {
		first = (first + elems - 1) / elems * elems
		only := first+n <= length/size*elems && len(all) < ofOne
		if only {
			p.layout.runs(first, n, func(source int, _, _ int64) { only = only && source == i })
		}
		if only {
			all = append(all, sample{first: first, n: n})
		}
	}
	switch l := p.layout.(type) {
	case pieces:
		var own []piece
		for _, x := range l {
			if x.source == i && x.n >= n {
				own = append(own, x)
			}
		}
		for k := range 2 * ofOne {
			if len(own) > 0 {
				x := own[k*len(own)/(2*ofOne)]
				add(x.at + (x.n-n)*int64(k%ofOne)/ofOne)
			}
		}
	case columns:
		for k := range 2 * int64(ofOne) {
			row := length / size * elems / l.cols * k / (2 * ofOne)
			for _, x := range l.parts {
				if x.source == i {
					add(row*l.cols + x.at)
				}
			}
		}
	}
	return all
}

// swapped is l with source k in the place of i.
func swapped(l layout, i, k int) layout {
	switch l := l.(type) {
	case pieces:
		to := slices.Clone(l)
		for n := range to {
			if to[n].source == i {
				to[n].source = k
			}
		}
		return to
	case columns:
		to := columns{l.cols, slices.Clone(l.parts)}
		for n := range to.parts {
			if to.parts[n].source == i {
				to.parts[n].source = k
			}
		}
		return to
	}
	return l
}

// check looks at samples of what p explains.
func (f *Finder) check(t *Target, p *Plan) (bool, error) {
	elems, size := p.block()
	per := (perPlace + elems - 1) / elems
	blocks := t.Len / size
	var samples []sample
	for i := range 4 * int64(checked) {
		if len(samples) == checked {
			break
		}
		// All over the tensor, and not always where heads begin.
		at := max(0, blocks-per) * (i*11%(4*checked)*2 + 1) / (8 * checked)
		s := sample{first: at * elems, n: min(per, blocks) * elems}
		some, all := false, true
		p.layout.runs(s.first, s.n, func(source int, _, _ int64) {
			some = some || source >= 0
			all = all && source != unknown
		})
		if some && all {
			samples = append(samples, s)
		}
	}
	if len(samples) == 0 {
		return false, nil
	}
	if err := p.fill(t, samples); err != nil {
		return false, err
	}
	if p.quantiser != nil {
		return f.fits(p, samples), nil
	}
	fit := 0
	for i := range samples {
		if f.fits(p, samples[i:i+1]) {
			fit++
		}
	}
	return float64(fit) >= mustFit*float64(len(samples)), nil
}

// asNumbers is how the bytes of a tensor are numbers.
func asNumbers(t *formats.Tensor) anchor.Numbers {
	n, _ := anchor.NumbersOf(string(t.DType))
	return n
}

// Columns is how long the rows of a tensor are; 0: it has none.
func Columns(t *formats.Tensor) int64 { return colsOf(t) }

// colsOf is how long the rows of a tensor are; 0: it has none.
func colsOf(t *formats.Tensor) int64 {
	if len(t.Shape) < 2 {
		return 0
	}
	cols := int64(1)
	for i := len(t.Shape) - 1; i > 0; i-- {
		if cols *= t.Shape[i]; cols >= minCols {
			return cols
		}
	}
	return 0
}

// halves are n elements from first on of a source, as bfloat16, in buf or not; nil when they cannot be read.
func (f *Finder) halves(s *source, first, n int64) []byte {
	p := f.read(s, first, n)
	if p == nil {
		return nil
	}
	return asNumbers(s.t).AsBF16(make([]byte, len(p)), p)
}
