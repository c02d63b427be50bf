package recipes

import (
	"encoding/binary"
	"math"
	"slices"

	"ckptfs/cas/half"
	"ckptfs/cas/quant"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
)

const (
	perPlace = 512 // elements, at least a block
	maxHead  = 512 // rows of a head
	mayBe    = 256 // elements that speak for or against a source at first

	fewScales = 8 // that are looked at in a place
)

// places are those of a tensor that are looked at. Where heads begin and end, rows often stay where they are.
var places = [...]float64{0.193, 0.479, 0.821}

// formatOf is the quantised format of a tensor.
func formatOf(t *formats.Tensor) (quant.Format, bool) { return quant.ByName(string(t.DType)) }

// newPlan is how t is computed from sources by a layout, as far as that is known without looking; nil: it
// cannot be.
func newPlan(t *Target, sources []*source, l layout) (*Plan, error) {
	p := &Plan{sources: sources, layout: l, len: t.Len, step: Step(t.Tensor)}
	if s := sources[0]; s.codes != nil {
		p.codes, p.sources = s.codes, s.all()
	}
	if t.coded != nil {
		c := t.coded.of(sources[0])
		if c == nil {
			return nil, nil
		}
		p.quantiser, p.scales = &c.quantiser, c.scales
		if c == t.coded {
			p.quantiser = new(quant.Quantiser)
			*p.quantiser = c.quantiser
		}
	} else if format, ok := formatOf(t.Tensor); ok {
		p.quantiser = &quant.Quantiser{Format: format}
		if format.FP8() {
			if ok, err := p.scale(t); !ok || err != nil {
				return nil, err
			}
		}
	} else {
		p.to = types[t.Tensor.DType]
	}
	return p, nil
}

// probe tells whether and how t may be computed from s; nil: not as far as samples tell. The error is of
// reading t.
func (f *Finder) probe(t *Target, s *source) (*Plan, error) {
	if t.coded != nil && t.coded.beside != nil {
		return f.probeAWQ(t, s)
	}
	l := t.layoutOf(s.t)
	if l == nil {
		return nil, nil
	}
	p, err := newPlan(t, []*source{s}, l)
	if p == nil || err != nil {
		return nil, err
	}
	elems, size := p.block()
	blocks, unit := t.Len/size, p.unit()
	per, units := (perPlace+unit-1)/unit, blocks*elems/unit
	if elems > 1 && elems == unit {
		per = max(per, min(units, fewScales))
	}
	if units < per || blocks*elems != s.t.NumElements() {
		return nil, nil
	}
	samples := make([]sample, len(places))
	for i, at := range places {
		samples[i] = sample{first: int64(float64(units-per)*at) * unit, n: per * unit}
	}
	if err := p.fill(t, samples); err != nil {
		return nil, err
	}
	plain := p.to != s.typ // of the same type it has the same hash
	if !plain || !f.fits(p, samples) {
		if p, err = f.probeRope(t, p, samples); err != nil {
			return nil, err
		}
		for _, a := range turnsOf(t.Tensor, s.t) {
			if p == nil && err == nil {
				p, err = f.probeTurned(t, s, a)
			}
		}
		if p == nil || err != nil {
			return nil, err
		}
	}
	return p, f.settle(t, p, blocks)
}

// unit is of how many elements samples are made: blocks, or whole groups where scales follow from them.
func (p *Plan) unit() int64 {
	elems, _ := p.block()
	if p.quantiser != nil && p.quantiser.Format.Ruled() && p.scales.count() == 0 {
		return int64(p.quantiser.Scales.Wide)
	}
	return elems
}

// fused is how many elements tell whether a quantiser rounds each product before it is added: that shows in
// one of some ten thousand.
const fused = 256 << 10

// settle sets the variant of p's quantiser by more of the tensor, of so many blocks, where few elements tell.
func (f *Finder) settle(t *Target, p *Plan, blocks int64) error {
	if p.quantiser == nil {
		return nil
	}
	if p.quantiser.Format.Ruled() {
		f.rule(p)
	}
	if p.quantiser.Format.Apart() || p.quantiser.Format.Variants() == 1 {
		return nil
	}
	elems, _ := p.block()
	was, via := *p.quantiser, p.via
	more := []sample{{n: min(blocks, fused/elems) * elems}}
	if err := p.fill(t, more); err != nil {
		return err
	}
	if f.score(p, more) < Fits {
		*p.quantiser, p.via = was, via
	}
	return nil
}

// sample is elements of the target, and its bytes.
type sample struct {
	first, n int64
	bytes    []byte
}

// fill reads samples, which are whole blocks.
func (p *Plan) fill(t *Target, samples []sample) error {
	elems, size := p.block()
	for i := range samples {
		s := &samples[i]
		var err error
		if s.bytes, err = t.Read(s.first/elems*size, int(s.n/elems*size)); err != nil {
			return err
		}
	}
	return nil
}

// numbers reads the source's numbers for samples; nil when they cannot be read.
func (f *Finder) numbers(p *Plan, samples []sample) []byte {
	var src []byte
	for _, s := range samples {
		ok := true
		p.runs(s.first, s.n, func(source int, first, n int64) {
			if source < 0 {
				ok = ok && source == zeros
				src = append(src, make([]byte, int(n)*p.typ().Size())...)
				return
			}
			q := f.read(p.sources[source], first, n)
			ok = ok && q != nil
			src = append(src, q...)
		})
		if !ok {
			return nil
		}
	}
	return src
}

// fits tells whether p explains samples, and sets how.
func (f *Finder) fits(p *Plan, samples []sample) bool {
	p.right = f.score(p, samples)
	return p.right >= p.least()
}

// least is the share of a sample's codes that p must explain. Those of whole numbers that were chosen for what
// the others lost (GPTQ) are the nearest in some two of three; of others some one in ten is the same.
func (p *Plan) least() float64 {
	if p.quantiser != nil && p.scales.count() > 0 {
		switch p.quantiser.Format {
		case quant.Int4, quant.UInt8, quant.Int8:
			return chosen
		}
	}
	return Fits
}

// score is which share of samples p explains, and sets how.
func (f *Finder) score(p *Plan, samples []sample) float64 {
	if p.quantiser == nil {
		return f.follows(p, samples)
	}
	src := f.numbers(p, samples)
	if src == nil {
		return 0
	}
	var want []byte
	for _, s := range samples {
		want = append(want, s.bytes...)
	}
	vias := []half.Type{0, half.F16}
	if p.typ() == recipe.F32 {
		vias = append(vias, half.BF16)
	} else if p.typ() == recipe.F16 {
		vias = vias[:1]
	}
	best, found, via := 0.0, *p.quantiser, half.Type(0)
	for _, p.via = range vias {
		x := p.widened(src)
		if p.via == 0 && !p.may(samples[0], x) {
			return 0
		}
		q, share := p.share(samples, want, x)
		if share > best {
			best, found, via = share, q, p.via
		}
		if best == 1 {
			break
		}
	}
	*p.quantiser, p.via = found, via
	return best
}

// may reports whether the beginning of a sample, of the numbers x, speaks for p: whichever variant it is, and
// however the numbers were rounded on the way, most of the codes are the same.
func (p *Plan) may(s sample, x []float32) bool {
	elems, size := p.block()
	unit := p.unit()
	n := min(s.n, max(unit, mayBe/unit*unit))
	s.n, s.bytes = n, s.bytes[:n/elems*size]
	_, share := p.share([]sample{s}, s.bytes, x[:n])
	return share >= p.least()/2
}

// share is which share of the samples' codes follows from the numbers x.
func (p *Plan) share(samples []sample, want []byte, x []float32) (q quant.Quantiser, share float64) {
	if p.quantiser.Format == quant.ScalesOf {
		q := *p.quantiser
		g := &q.Scales
		rows := g.Rows
		g.Rows = len(x) / g.Wide // those of all samples lie one behind the other
		q, share, err := quant.FitsScales(q, want, x)
		q.Scales.Rows = rows
		if err != nil {
			return q, 0
		}
		return q, share
	}
	if !p.quantiser.Format.Apart() {
		q, share, err := quant.Fits(*p.quantiser, want, x)
		if err != nil {
			return q, 0
		}
		return q, share
	}
	// Each sample has groups of its own. The variant is that of most of them.
	found, votes := *p.quantiser, map[uint8]int{}
	at := 0
	for _, s := range samples {
		q := *p.quantiser
		q.Scales.At = int(s.first)
		q.Scales.Values = p.scaling(&q, int(s.n))
		q, one, err := quant.Fits(q, s.bytes, x[at:at+int(s.n)])
		if err != nil {
			return found, 0
		}
		at += int(s.n)
		share += one / float64(len(samples))
		if votes[q.Variant]++; votes[q.Variant] > votes[found.Variant] {
			found.Variant = q.Variant
		}
	}
	return found, share
}

// widened are the numbers of src on the way that p's are.
func (p *Plan) widened(src []byte) []float32 {
	n := len(src) / p.typ().Size()
	prog := append(append(recipe.Program{recipe.Run(p.typ(), 0, n)}, p.rounds()...), recipe.Widen{})
	got, err := recipe.Decode(nil, append(prog.Append(nil), 0), src, 4*n)
	if err != nil {
		return make([]float32, n)
	}
	return floats(got)
}

// floats are the numbers of single precision in p.
func floats(p []byte) []float32 {
	x := make([]float32, len(p)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:]))
	}
	return x
}

// probeRope is probe for rows in the orders that rotary embeddings have them in.
func (f *Finder) probeRope(t *Target, p *Plan, samples []sample) (*Plan, error) {
	shape := t.Tensor.Shape
	if len(shape) != 2 || !slices.Equal(p.sources[0].t.Shape, shape) {
		return nil, nil
	}
	rows, cols := shape[0], shape[1]
	elems, _ := p.block()
	if rows < 4 || cols%elems != 0 || cols < 32 {
		return nil, nil
	}
	// The first row stays where it is, the second one does not.
	n := min(cols, max(perPlace/elems, 1)*elems)
	row := func(r int64) ([]sample, error) {
		s := []sample{{first: r * cols, n: n}}
		return s, p.fill(t, s)
	}
	s, err := row(0)
	if err != nil || !f.fits(p, s) {
		return nil, err
	}
	for _, back := range []bool{false, true} {
		for head := int64(4); head <= min(rows, maxHead); head += 2 {
			if rows%head != 0 {
				continue
			}
			p.layout = rope{cols, head, back}
			at := int64(1)
			if back {
				at = head / 2
			}
			if s, err = row(at); err != nil {
				return nil, err
			}
			if f.fits(p, s) && f.fits(p, samples) {
				return p, nil
			}
		}
	}
	return nil, nil
}
