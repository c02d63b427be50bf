package recipes

import (
	"slices"
	"strings"

	"ckptfs/cas/quant"
	"ckptfs/formats"
)

// maxScales bounds the groups of a tensor.
const maxScales = 1 << 24

// scaleNames are what stands behind a tensor's name in that of its scales.
var scaleNames = []string{"_scale", "_scale_inv"}

// scale finds the scales of t, a tensor in FP8: one for all, one a row, or one for squares of 128 by 128.
func (p *Plan) scale(t *Target) (ok bool, err error) {
	if t.Beside == nil {
		return false, nil
	}
	for _, end := range scaleNames {
		s, content, err := t.Beside(t.Tensor.Name + end)
		if err != nil {
			return false, err
		}
		if s == nil {
			continue
		}
		g, fits := geometry(t.Tensor, s)
		if !fits {
			continue
		}
		if typ, ok := scaleTypes[s.DType]; ok && typ <= quant.F16 {
			g.Type, p.scales = typ, aside{typ, content}
			p.quantiser.Scales = g
			return true, nil
		}
	}
	return false, nil
}

// isScales reports whether a tensor of that name may hold the scales of another.
func isScales(name string) bool {
	return slices.ContainsFunc(scaleNames, func(end string) bool { return strings.HasSuffix(name, end) })
}

// geometry is which elements of t share which of the scales s; ok is false where they are not its scales.
func geometry(t, s *formats.Tensor) (g quant.Scales, ok bool) {
	rows, cols, ok := matrix(t.Shape)
	if !ok || s.NumElements() > maxScales {
		return g, false
	}
	g = quant.Scales{Type: scaleTypes[s.DType], Rows: int(rows), Cols: int(cols)}
	switch n := s.NumElements(); {
	case n == 1:
		g.Tall, g.Wide = g.Rows, g.Cols
	case n == rows:
		g.Tall, g.Wide = 1, g.Cols
	case n == (rows+127)/128*((cols+127)/128):
		g.Tall, g.Wide = 128, 128
	default:
		return g, false
	}
	return g, true
}

// scaling are the scales that n elements have from where q's begin; nil: they follow.
func (p *Plan) scaling(q *quant.Quantiser, n int) (x []float32) {
	if p.scales.count() == 0 {
		return nil
	}
	for _, at := range q.Scales.Groups(n) {
		x = append(x, p.scales.at(at))
	}
	return x
}

// rule sets the rule by which most of some scales in the middle follow.
func (f *Finder) rule(p *Plan) {
	g := &p.quantiser.Scales
	if p.scales.count() == 0 || g.Tall != 1 {
		return
	}
	all, size := int(p.scales.count()), p.scales.typ.Size()
	n := max(1, min(all, ruled/g.Wide, 64))
	at := (all - n) / 2
	src := f.numbers(p, []sample{{first: int64(at * g.Wide), n: int64(n * g.Wide)}})
	if src == nil {
		return
	}
	of := quant.Quantiser{Format: quant.ScalesOf, Scales: *g}
	of.Scales.Rows, of.Scales.Cols, of.Scales.At, of.Scales.Values = n, g.Wide, 0, nil
	if of, _, err := quant.FitsScales(of, p.scales.raw[at*size:(at+n)*size], p.widened(src)); err == nil {
		g.Rule = of.Scales.Rule
	}
}

// ruled is how many elements tell by which rule scales follow.
const ruled = 128 << 10
