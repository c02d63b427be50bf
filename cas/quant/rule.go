package quant

import (
	"fmt"
	"math"

	"ckptfs/cas"
)

// Rule says how the scale of a group follows from its greatest magnitude, of formats whose scales lie apart
// but FP8, which has one of its own.
type Rule struct {
	Kind   RuleKind
	Levels float32 // what the magnitude is divided by
	Global float32 // the scale of the scales
}

// RuleKind is a kind of rule. The numbers are part of stored formats.
type RuleKind uint8

// The kinds, of a greatest magnitude a.
const (
	Over       RuleKind = 0 // a / Levels
	Global     RuleKind = 1 // Global * (a/Levels), at most the greatest number of E4M3; 1/8 where that is 0
	GlobalBF16 RuleKind = 2 // the same with a/Levels rounded to bfloat16
	GlobalF16  RuleKind = 3 // to binary16
	Power      RuleKind = 4 // the exponent of a number a little greater than a, less 2
	OverOr     RuleKind = 5 // as Over; the distance from 1 to the next number of the type where that is 0

	ruleKinds = 6
)

func (r *Rule) check(t Type) error {
	positive := func(x float32) bool { return x > 0 && x < inf }
	switch {
	case r.Kind >= ruleKinds:
		return fmt.Errorf("%w: scales by rule %d", cas.ErrNewer, r.Kind)
	case !positive(r.Levels) || !positive(r.Global):
		return fmt.Errorf("%w: scales of %v levels, times %v", cas.ErrCorrupt, r.Levels, r.Global)
	case (r.Kind == Power) != (t == E8M0):
		return fmt.Errorf("%w: scales by rule %d, of type %d", cas.ErrCorrupt, r.Kind, t)
	}
	return nil
}

// scale is the bits of the scale that is predicted of a group whose greatest magnitude has the bits top.
func (q *Quantiser) scale(top uint32) uint32 {
	g, a := &q.Scales, math.Float32frombits(top)
	if q.Format.FP8() {
		return g.Type.bits(a / q.Format.greatest())
	}
	r := &g.Rule
	switch r.Kind {
	case Power:
		if e := (top + 1<<21) >> 23; e > 2 {
			return e - 2
		}
		return 0
	case Over:
		return g.Type.bits(a / r.Levels)
	case OverOr:
		b := g.Type.bits(a / r.Levels)
		if b == 0 {
			b = g.Type.bits(g.Type.epsilon())
		}
		return b
	}
	a /= r.Levels
	switch r.Kind {
	case GlobalBF16:
		a = BF16.value(BF16.bits(a))
	case GlobalF16:
		a = F16.value(F16.bits(a))
	}
	b := g.Type.bits(float32(r.Global * a))
	if b == 0 {
		b = g.Type.bits(0.125)
	}
	return b
}

// tops are the greatest magnitudes of groups, as bits.
func (q *Quantiser) tops(x []float32) []uint32 {
	tops := make([]uint32, q.Scales.count(len(x)))
	q.Scales.runs(len(x), func(from, to, group int) {
		tops[group] = max(tops[group], magnitude(x[from:to]))
	})
	return tops
}

// scales takes the scales of groups, or, where c reads, makes them, in single precision. Without scales it is
// one, 1.
func (q *Quantiser) scales(c *coder, x []float32) []float32 {
	g := &q.Scales
	if !g.any() {
		return []float32{1}
	}
	tops := q.tops(x)
	scales := make([]float32, len(tops))
	follow := !c.reads && g.Values == nil && q.Format.Ruled()
	for i, top := range tops {
		predicted := q.scale(top)
		v := predicted
		if !c.reads && !follow {
			v = g.Type.bits(g.Values[i])
		}
		scales[i] = g.Type.value(c.word(factorStream, v, predicted, g.Type.size()))
	}
	return scales
}

// words is for ScalesOf: blocks are the scales themselves.
func (q *Quantiser) words(c *coder, blocks []byte, x []float32, k *correction) {
	size := q.Scales.Type.size()
	for i, top := range q.tops(x) {
		p := blocks[i*size:][:size]
		predicted := q.scale(top)
		v := predicted
		if !c.reads {
			if v = get(p); v != predicted {
				k.codes += q.Scales.Wide
			}
		}
		put(p, c.word(factorStream, v, predicted, size))
	}
}

// get and put are of a number of 1, 2 or 4 bytes.
func get(p []byte) (v uint32) {
	for i, b := range p {
		v |= uint32(b) << (8 * i)
	}
	return v
}

func put(p []byte, v uint32) {
	for i := range p {
		p[i] = byte(v >> (8 * i))
	}
}

// levels are the rules by which FitsScales tells what scales were made.
var levels = [...]float32{1, 7.5, 127.5, 127, 7, 8, 6, 448, 57344}

// FitsScales is q with the rule by which most of scales, as many as groups of x, follow from x; and their
// share. Of Power there is one rule, and of Global those that differ in how they round.
func FitsScales(q Quantiser, scales []byte, x []float32) (_ Quantiser, share float64, _ error) {
	var rules []Rule
	was := q.Scales.Rule
	switch was.Kind {
	case Over, OverOr:
		for _, n := range levels {
			rules = append(rules, Rule{was.Kind, n, was.Global})
		}
	case Power:
		rules = []Rule{was}
	default:
		for k := Global; k <= GlobalF16; k++ {
			rules = append(rules, Rule{k, was.Levels, was.Global})
		}
	}
	found, best := q, -1
	for _, q.Scales.Rule = range rules {
		if err := q.check(len(x)); err != nil {
			return q, 0, err
		}
		size, right := q.Scales.Type.size(), 0
		tops := q.tops(x)
		if len(scales) != size*len(tops) {
			return q, 0, fmt.Errorf("%w: %d bytes for %d scales", cas.ErrCorrupt, len(scales), len(tops))
		}
		for i, top := range tops {
			if get(scales[i*size:][:size]) == q.scale(top) {
				right++
			}
		}
		if right > best {
			found, best = q, right
		}
	}
	return found, float64(max(best, 0)) / float64(max(1, len(scales)/q.Scales.Type.size())), nil
}
