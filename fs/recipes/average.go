package recipes

import (
	"math"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
	"ckptfs/index/manifest"
)

// # Averages
//
// An average of weights that goes on with each step, v = a v + (1-a) w, is a function of what it was at the
// step before and of the weights: if these are those of the step. Of v before, which is a function itself,
// nothing can be computed; so the program goes on from what that was computed of, up to MaxVectors-1 steps.

// averages are the forms that are tried, those of torch first.
var averages = []recipe.Form{recipe.Move, recipe.Average, recipe.MoveApart, recipe.AverageApart, recipe.AverageEach}

const (
	leastMoved = 64 // numbers that tell how far an average went, at least
	maxOver    = 16 // of what is one of so many rates: 9 / (10+n)
)

// Averaging tells how want, numbers of a type, goes on from was with x; false: it does not, as far as is
// found.
func Averaging(want, was, x []float32, to recipe.Type) (op recipe.Combine, ok bool) {
	n := min(len(want), len(was), len(x))
	var rates []float64
	for i := range n {
		// Where the way is long, rounding says little of it.
		if d := float64(x[i]) - float64(was[i]); math.Abs(d) > math.Abs(float64(was[i]))/64 {
			rates = append(rates, (float64(want[i])-float64(was[i]))/d)
		}
	}
	if len(rates) < leastMoved {
		return op, false
	}
	slices.Sort(rates)
	rate, spread := rates[len(rates)/2], rates[3*len(rates)/4]-rates[len(rates)/4]
	if !(rate > 0 && rate < 1) || !(spread < rate/2) {
		return op, false
	}
	x = slices.Concat(was[:n], x[:n])
	got := make([]float32, n)
	most := int(math.Ceil(nearly*float64(n))) - 1
	for _, c := range rateNear(rate, max(spread, rate*1e-6)) {
		for _, form := range averages {
			is := recipe.Combine{Form: form, To: to, C: []float32{float32(1 - c), float32(c)}}
			is.Combined(got, x)
			same := 0
			for i, v := range got {
				if math.Float32bits(v) == math.Float32bits(want[i]) {
					same++
				}
			}
			if same > most {
				op, most, ok = is, same, true
			}
			if same == n {
				return op, true
			}
		}
	}
	return op, ok
}

// rateNear are round rates, the roundest first: decimals of which they are what is left of one, and parts.
func rateNear(rate, spread float64) (all []float64) {
	add := func(c float64) {
		if math.Abs(c-rate) <= spread && c > 0 && c < 1 && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	for of := 10.0; of <= 1e6; of *= 10 {
		add(1 - math.Round((1-rate)*of)/of)
	}
	for over := 1.0; over <= maxOver; over++ {
		add(over / math.Round(over/rate))
		add(1 - (1 - over/math.Round(over/rate)))
	}
	return all
}

// Averaged is how a tensor goes on from what it was, with others of its type and shape.
type Averaged struct {
	typ recipe.Type
	op  recipe.Combine
	was []manifest.Span
	// With has the chunks of the others, once they are known.
	With    func() []manifest.Span
	program func(h cas.Hash) (bases []cas.Hash, program []byte, ok bool)
}

// NewAveraged is op of a tensor that was, with what With will be. program is how a stored chunk is computed.
func NewAveraged(t formats.DType, op recipe.Combine, was []manifest.Span,
	program func(h cas.Hash) (bases []cas.Hash, program []byte, ok bool)) *Averaged {
	return &Averaged{typ: types[t], op: op, was: was, program: program}
}

// Chunk is how chunk k of the target is computed; nil: it is better stored otherwise.
func (a *Averaged) Chunk(k int64) *cas.Recipe {
	with := a.With()
	if k >= int64(len(a.was)) || k >= int64(len(with)) || with[k].Len != a.was[k].Len {
		return nil
	}
	n := int(with[k].Len) / a.typ.Size()
	r, g, op := &cas.Recipe{}, recipe.Group{Repeat: 1}, a.op
	add := func(h cas.Hash) {
		i := slices.Index(r.Bases, h)
		if i < 0 {
			i = len(r.Bases)
			r.Bases = append(r.Bases, h)
		}
		g.Stretches = append(g.Stretches, recipe.Stretch{First: i * n, Len: n})
	}
	if vectors, before, ok := a.before(a.was[k].Hash, n); ok {
		for _, h := range vectors {
			add(h)
		}
		// Of products that are rounded by themselves some samples do not tell it.
		op.Form, op.C = max(op.Form, before.Form), append(slices.Clone(before.C), a.op.C[1])
	} else {
		add(a.was[k].Hash)
	}
	if add(with[k].Hash); len(g.Stretches) > recipe.MaxVectors || 4*n*len(g.Stretches) > recipe.MaxValue {
		return nil
	}
	r.Program = recipe.Program{recipe.Take{Type: a.typ, Groups: []recipe.Group{g}}, recipe.Widen{}, op}.Append(nil)
	return r
}

// unrounded are the forms that others are but for products that are rounded by themselves.
var unrounded = map[recipe.Form]recipe.Form{recipe.AverageApart: recipe.Average, recipe.MoveApart: recipe.Move}

// family is the same for forms that differ in that alone.
func family(f recipe.Form) recipe.Form {
	if is, ok := unrounded[f]; ok {
		return is
	}
	return f
}

// before are the chunks of n elements that the one of h goes on from, one for each vector, and how; false: it
// does not go on as this one does.
func (a *Averaged) before(h cas.Hash, n int) (vectors []cas.Hash, op recipe.Combine, ok bool) {
	bases, program, ok := a.program(h)
	if !ok {
		return nil, op, false
	}
	prog, _, err := recipe.Parse(program)
	if err != nil || len(prog) != 3 {
		return nil, op, false
	}
	take, is := prog[0].(recipe.Take)
	op, also := prog[2].(recipe.Combine)
	if !is || !also || family(op.Form) != family(a.op.Form) || op.To != a.op.To || take.Type != a.typ ||
		op.C[0] != a.op.C[0] && family(op.Form) != recipe.Move {
		return nil, op, false
	}
	for _, g := range take.Groups {
		for range g.Repeat {
			for _, s := range g.Stretches {
				if n == 0 || s.Step != 0 && g.Repeat > 1 || s.First%n != 0 || s.Len%n != 0 || s.First/n >= len(bases) ||
					(s.First+s.Len)/n > len(bases) {
					return nil, op, false
				}
				for i := range s.Len / n {
					vectors = append(vectors, bases[s.First/n+i])
				}
			}
		}
	}
	return vectors, op, len(vectors) == len(op.C)
}
