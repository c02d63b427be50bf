package quant

import (
	"cmp"
	"math"
	"slices"

	"ckptfs/cas/half"
)

// # How the factors of AWQ are found
//
// Let m be a code less its zero, r a number divided by its scale. Where the number was multiplied by s, r s
// is at most half a step from m. So each code bounds s; the codes 0 and 15 do on one side. The factor of an
// input is in the bounds of most of its codes. It is near the s of least squares, so that only bounds near
// that are sorted. Of the numbers of binary16 there, the one from which most codes follow is taken.
//
// The layer before may have had its outputs divided by the factors of the layer after. Then least squares
// tell factors of inputs and of outputs in turns, and bounds after that. Only their products are known: a
// factor of all may be in the ones or in the others.

const (
	tried    = 8    // numbers of binary16 that are tried for an input
	narrow   = 2e-3 // by how much bounds may be off by rounding
	turns    = 4    // of least squares
	tellers  = 32   // inputs that tell whether there are factors of outputs
	follow   = 0.98 // the share of their codes that follows where there are none
	perOther = 8    // bits that a code takes that does not follow
	perOut   = 13   // bits that the factor of an output takes
)

// fit finds factors by which codes follow from x.
func (q *Quantiser) fit(codes []byte, x []float32) *channels {
	f := fitter{q: q, codes: codes, x: x}
	q.rows(len(x), func(r *row) {
		if k := len(f.rows); k == 0 || f.rows[k-1].of != r.of {
			r.of.inverse = make([]float32, len(r.of.scales))
			f.sides = append(f.sides, r.of)
		}
		f.rows = append(f.rows, *r)
	})
	_, n := q.Scales.inputs(len(x))
	ch := channels{inputs: make([]float32, n)}
	some := max(1, len(f.rows)/tellers)
	wrong, all := f.columns(&ch, some)
	if float64(wrong) > (1-follow)*float64(all) {
		with := f.both(n)
		if less, _ := f.columns(with, 1); perOther*(wrong*some-less) > perOut*q.Scales.Cols {
			return with
		}
	}
	if some > 1 {
		f.columns(&ch, 1)
	}
	return &ch
}

// fitter finds factors.
type fitter struct {
	q     *Quantiser
	codes []byte
	x     []float32
	rows  []row
	sides []*side
	line  line
}

// divide sets what numbers are multiplied by to be in steps of codes.
func (f *fitter) divide(outputs []float32) {
	for _, s := range f.sides {
		for o, a := range s.scales {
			if outputs != nil {
				a *= outputs[o]
			}
			s.inverse[o] = 1 / a
		}
	}
}

// columns sets the factor, of binary16, of every so manieth row's input, by those of outputs that there are.
// It returns how many codes of these rows do not follow then, of how many.
func (f *fitter) columns(ch *channels, step int) (wrong, all int) {
	f.divide(ch.outputs)
	for i := 0; i < len(f.rows); i += step {
		r := &f.rows[i]
		s, n := f.input(r, ch.outputs)
		ch.inputs[r.input] = s
		wrong, all = wrong+n, all+r.to-r.from
	}
	return wrong, all
}

// row adds what is known of a row to the line that its factor is on.
func (f *fitter) row(r *row) {
	l := &f.line
	l.start(r.to - r.from)
	x := f.x[r.from:r.to]
	codes, by := f.codes[r.from:r.to][:len(x)], r.of.inverse[r.output:][:len(x)]
	zeros := r.zeros[:len(x)]
	for o, x := range x {
		l.add(x*by[o], codes[o], zeros[o])
	}
}

// input is the factor of a row's input, and how many codes do not follow from it.
func (f *fitter) input(r *row, outputs []float32) (s float32, wrong int) {
	f.row(r)
	l := &f.line
	lo, hi, unsure := l.bounds()
	mid := float32((lo + hi) / 2) // not fused with what it is taken from
	first, last := int(f16(lo))-1, int(f16(hi))+1
	if last-first >= tried {
		first = int(f16(mid)) - tried/2
		last = first + tried - 1
	}
	best := math.MaxInt
	for k := first; k <= last; k++ {
		if k <= 0 || k >= 0x7c00 {
			continue
		}
		v := half.FromF16(uint16(k))
		if n := f.wrong(r, outputs, v, unsure); n < best || n == best && distance(v, mid) < distance(s, mid) {
			s, best = v, n
		}
	}
	if best == math.MaxInt {
		s, best = 1, 0
	}
	return s, best + l.outside
}

func distance(a, b float32) float32 { return max(a-b, b-a) }

// wrong is how many of some codes of a row do not follow from a factor.
func (f *fitter) wrong(r *row, outputs []float32, s float32, some []bound) (n int) {
	for i := range some {
		o, t := int(some[i].of), float32(1)
		if outputs != nil {
			t = outputs[r.output+o]
		}
		v := unroundedAWQ(f.q.Variant, f.x[r.from+o], s, t, r.scales[o])
		if wholeAWQ(v, r.zeros[o]) != f.codes[r.from+o] {
			n++
		}
	}
	return n
}

// both are factors of outputs, of binary16, and room for those of n inputs.
func (f *fitter) both(n int) *channels {
	cols := f.q.Scales.Cols
	ch := channels{inputs: make([]float32, n), outputs: make([]float32, cols)}
	for o := range ch.outputs {
		ch.outputs[o] = 1
	}
	for range turns {
		f.squares(&ch)
	}
	f.divide(ch.outputs)
	for i := range f.rows {
		r := &f.rows[i]
		f.row(r)
		lo, hi, _ := f.line.bounds()
		ch.inputs[r.input] = (lo + hi) / 2
	}
	f.divide(nil)
	for o := range ch.outputs {
		f.output(o, &ch)
	}
	return &ch
}

// squares sets factors of inputs, and then of outputs, to those of least squares.
func (f *fitter) squares(ch *channels) {
	up, down := make([]float32, len(ch.outputs)), make([]float32, len(ch.outputs))
	f.divide(ch.outputs)
	for i := range f.rows {
		r := &f.rows[i]
		x := f.x[r.from:r.to]
		codes, by, zeros := f.codes[r.from:r.to][:len(x)], r.of.inverse[r.output:][:len(x)], r.zeros[:len(x)]
		var mr, rr float32
		for o, x := range x {
			if c := codes[o]; c-1 < 14 {
				y, m := x*by[o], float32(int(c)-int(zeros[o]))
				mr += float32(m * y)
				rr += float32(y * y)
			}
		}
		s := mr / rr
		if !(s > 0x1p-14 && s < 0x1p14) {
			s = 1
		}
		ch.inputs[r.input] = s
		a, b := up[r.output:][:len(x)], down[r.output:][:len(x)]
		for o, x := range x {
			if c := codes[o]; c-1 < 14 {
				y, m := x*by[o]*s, float32(int(c)-int(zeros[o]))
				a[o] += float32(y * y)
				b[o] += float32(m * y)
			}
		}
	}
	for o := range ch.outputs {
		if t := ch.outputs[o] * up[o] / down[o]; t > 0x1p-14 && t < 0x1p14 {
			ch.outputs[o] = t
		}
	}
}

// output sets the factor of an output, of binary16.
func (f *fitter) output(o int, ch *channels) {
	l := &f.line
	l.start(len(f.rows))
	for i := range f.rows {
		r := &f.rows[i]
		k := o - r.output
		if k >= 0 && k < r.to-r.from {
			l.add(f.x[r.from+k]*ch.inputs[r.input]*r.of.inverse[o], f.codes[r.from+k], r.zeros[k])
		}
	}
	lo, hi, _ := l.bounds()
	t := half.FromF16(f16(2 / (lo + hi)))
	if t > 0 && t < inf {
		ch.outputs[o] = t
	}
}

// line is what codes tell of a factor.
type line struct {
	known  []known
	events []bound
	// outside are those that no factor near the one found explains.
	outside int
}

// known is a number in steps of codes, not negative, and what it is between once it was multiplied.
type known struct{ r, lo, hi float32 }

// bound is where a code begins to be explained, or ends.
type bound struct {
	at   float32
	of   int32 // which code
	step int32 // 1 or -1
}

// start has the line be of at most n codes.
func (l *line) start(n int) { l.known = slices.Grow(l.known[:0], n) }

func (l *line) add(r float32, code, zero byte) {
	m := float32(int(code) - int(zero))
	k := known{r, m - 0.5, m + 0.5}
	if code == 0 {
		k.lo = -inf
	}
	if code == 15 {
		k.hi = inf
	}
	if r < 0 {
		k = known{-r, -k.hi, -k.lo}
	}
	l.known = append(l.known, k)
}

// squares are sums of those codes that are bound on both sides.
func (l *line) squares() (rr, mr float32) {
	for i := range l.known {
		k := &l.known[i]
		if m := float32((k.lo + k.hi) / 2); m-m == 0 && k.r-k.r == 0 {
			rr += float32(k.r * k.r)
			mr += float32(m * k.r)
		}
	}
	return rr, mr
}

// bounds are those of the factor that explains most codes, and the bounds of codes near these.
func (l *line) bounds() (lo, hi float32, unsure []bound) {
	rr, mr := l.squares()
	l.outside = 0
	s := mr / rr
	if !(s > 0x1p-14 && s < 0x1p14) {
		return 1, 1, nil
	}
	const steps, sigma = 6, 0.29 // of what is rounded
	wide := min(0.5, steps*sigma/(float32(math.Sqrt(float64(rr)))*s)+narrow)
	from, to := s*(1-wide), s*(1+wide)
	l.events = l.events[:0]
	covers := 0 // at from
	for i := range l.known {
		k := &l.known[i]
		first, last := k.r*from, k.r*to
		switch {
		case k.lo <= first && k.hi >= last: // most of them
			covers++
			continue
		case !(k.lo < last && k.hi > first): // also what is none
			l.outside++
			continue
		case k.lo <= first:
			covers++
		default:
			l.events = append(l.events, bound{k.lo / k.r, int32(i), 1})
		}
		if k.hi < last {
			l.events = append(l.events, bound{k.hi / k.r, int32(i), -1})
		}
	}
	slices.SortFunc(l.events, func(a, b bound) int { return cmp.Compare(a.at, b.at) })
	most := covers
	lo, hi = from, to
	if len(l.events) > 0 {
		hi = l.events[0].at
	}
	for i := range l.events {
		covers += int(l.events[i].step)
		if covers > most {
			most, lo, hi = covers, l.events[i].at, to
			if i+1 < len(l.events) {
				hi = l.events[i+1].at
			}
		}
	}
	// Those that end or begin farther away are explained, or not, by all factors near here.
	order := func(e bound, at float32) int { return cmp.Compare(e.at, at) }
	a, _ := slices.BinarySearchFunc(l.events, lo*(1-narrow), order)
	b, _ := slices.BinarySearchFunc(l.events, hi*(1+narrow), order)
	for i := range l.events {
		if e := &l.events[i]; i < a && e.step < 0 || i >= b && e.step > 0 {
			l.outside++
		}
	}
	return lo, hi, l.events[a:b]
}
