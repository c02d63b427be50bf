package recipes

import (
	"iter"
	"math"
	"slices"

	"ckptfs/cas/recipe"
)

// # Merges
//
// Weighted sums, means, interpolations and task vectors are linear combinations of tensors of the same shape,
// with coefficients that somebody wrote: 0.7, 1/3, 0.999. They are fitted by least squares, those of parents
// that have no part in it dropped, and the others snapped to round numbers near by; then the forms that
// programs compute them in are tried (recipe.Form), until one explains nearly all of a sample. Where no round
// numbers do, as in spherical interpolation, they are refined by small steps.

const (
	fitted     = 16 << 10 // numbers that coefficients are fitted to
	compared   = 4 << 10  // and that forms are tried on
	exactly    = 0.999    // the share of these that must come out
	nearly     = 0.9      // and does at least after refining
	negligible = 2e-5     // coefficients below it are none, and those of few errors
	fewErrors  = 4
	dependent  = 1e-7    // the share of a vector that the others leave, squared, below which it is one of them
	perC       = 4       // round numbers that are tried for each
	maxTried   = 1 << 10 // combinations of them
)

// Mix is how vectors are combined.
type Mix struct {
	Of []int // of the candidates, in the order of the vectors
	Op recipe.Combine
}

// Share is which share of want comes out of x, vectors of as many numbers: those of the candidates.
func (m *Mix) Share(want []float32, x [][]float32) float64 {
	n := len(want)
	if n == 0 {
		return 0
	}
	var all []float32
	for _, i := range m.Of {
		all = append(all, x[i]...)
	}
	got := make([]float32, n)
	m.Op.Combined(got, all)
	same := 0
	for i, v := range got {
		if math.Float32bits(v) == math.Float32bits(want[i]) {
			same++
		}
	}
	return float64(same) / float64(n)
}

// Fit finds how want, numbers of a type, is combined of candidates x; nil: it is not, as far as is found.
func Fit(want []float32, x [][]float32, to recipe.Type) *Mix {
	want, x, of := finite(want, x[:min(len(x), recipe.MaxVectors)])
	if len(of) < 2 || len(want) == 0 {
		return nil
	}
	n := min(len(want), fitted)
	var c, sigma []float64
	for {
		var same int
		if c, sigma, same = solve(want[:n], x, of); same >= 0 {
			of = slices.Delete(of, same, same+1) // what others are made of says nothing more
			if len(of) < 2 {
				return nil
			}
			continue
		}
		before := len(of)
		var kept []int
		for k, i := range of {
			if math.Abs(c[k]) > max(negligible, fewErrors*sigma[k]) {
				kept = append(kept, i)
			}
		}
		if of = kept; len(of) < 2 {
			return nil // one parent's version, not a merge
		}
		if len(of) == before {
			break
		}
	}
	few := spread(want, x, compared)
	m := &Mix{Of: of}
	if m.snap(few, to, c, sigma) || m.tasks(few, to, c, sigma) || m.stock(few, to, c) {
		return m
	}
	return m.refine(spread(want, x, fitted), to, c)
}

// solve fits coefficients by least squares; sigma are their standard errors. An error of rounding is the
// greater the greater the number: so the weights are less. same is the place in of, not below 0, of a vector
// that is a combination of those before it, or has what is no number.
func solve(want []float32, x [][]float32, of []int) (c, sigma []float64, same int) {
	k := len(of)
	exponents := make([]int, len(want))
	for i, v := range want {
		_, exponents[i] = math.Frexp(float64(v))
	}
	least := slices.Clone(exponents)
	slices.Sort(least)
	least0 := least[len(least)/2] - 4
	a := make([]float64, k*k)
	b := make([]float64, k)
	weights := make([]float64, len(want))
	for i, v := range want {
		w := math.Ldexp(1, -2*(max(exponents[i], least0)-least0))
		weights[i] = w
		for p, ip := range of {
			xp := float64(x[ip][i])
			b[p] += w * xp * float64(v)
			for q := range p + 1 {
				a[p*k+q] += w * xp * float64(x[of[q]][i])
			}
		}
	}
	inv, same := inverse(a, k)
	if same >= 0 {
		return nil, nil, same
	}
	c, sigma = make([]float64, k), make([]float64, k)
	for p := range k {
		for q := range k {
			c[p] += inv[p*k+q] * b[q]
		}
	}
	var rest, n float64
	for i, v := range want {
		d := float64(v)
		for p, ip := range of {
			d -= c[p] * float64(x[ip][i])
		}
		rest += weights[i] * d * d
		n++
	}
	for p := range k {
		sigma[p] = math.Sqrt(rest / n * max(inv[p*k+p], 0))
	}
	return c, sigma, -1
}

// inverse inverts a symmetric, positive matrix of which the lower half is given; same is the first row, not
// below 0, that depends on those before it.
func inverse(a []float64, k int) (inv []float64, same int) {
	l := slices.Clone(a)
	for i := range k {
		for j := range i + 1 {
			s := l[i*k+j]
			for m := range j {
				s -= l[i*k+m] * l[j*k+m]
			}
			if i == j {
				if !(s > dependent*a[i*k+i]) || math.IsInf(s, 0) {
					return nil, i
				}
				l[i*k+i] = math.Sqrt(s)
			} else {
				l[i*k+j] = s / l[j*k+j]
			}
		}
	}
	inv = make([]float64, k*k)
	for col := range k {
		y := make([]float64, k)
		for i := range k {
			if i == col {
				y[i] = 1
			}
			for m := range i {
				y[i] -= l[i*k+m] * y[m]
			}
			y[i] /= l[i*k+i]
		}
		for i := k - 1; i >= 0; i-- {
			for m := i + 1; m < k; m++ {
				y[i] -= l[m*k+i] * inv[m*k+col]
			}
			inv[i*k+col] = y[i] / l[i*k+i]
		}
	}
	return inv, -1
}

// round are numbers that people write, the roundest first, and none that is further off c than some errors.
func round(c, sigma float64) (all []float64) {
	most := max(fewErrors*sigma, 4e-4)
	add := func(of float64) {
		near := math.Round(c * of)
		for _, v := range []float64{near / of, (near - 1) / of, (near + 1) / of} {
			if math.Abs(v-c) <= most && math.Abs(v) <= 2 && len(all) < perC && !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	for _, of := range []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 100, 1000} {
		add(of)
	}
	if sigma < 2e-5 { // averages of long training
		add(1e4)
	}
	return all
}

// snap sets m to round coefficients, and to the form, that explain s.
func (m *Mix) snap(s numbersOf, to recipe.Type, c, sigma []float64) bool {
	choices := make([][]float64, len(c))
	for i := range c {
		choices[i] = round(c[i], sigma[i])
	}
	of := slices.Clone(m.Of)
	try := func(form recipe.Form, order []int, c []float64) bool {
		m.Of = m.Of[:0]
		m.Op = recipe.Combine{Form: form, To: to}
		for _, i := range order {
			if c[i] != 0 {
				m.Of = append(m.Of, of[i])
				m.Op.C = append(m.Op.C, float32(c[i]))
			}
		}
		if n := len(m.Of); n < 2 || n != len(order) && form&^1 != recipe.Sum {
			return false
		}
		if form&^1 == recipe.Mean {
			m.Op.C[0] = float32(len(order))
		}
		return m.Share(s.want, s.x) >= exactly
	}
	for one := range combinations(choices) {
		var sum float64
		mean := true
		for _, v := range one {
			sum += v
			mean = mean && v == one[0]
		}
		for _, order := range orders(len(c)) {
			for _, form := range []recipe.Form{recipe.Sum, recipe.SumEach, recipe.Mean, recipe.MeanEach, recipe.Lerp,
				recipe.LerpEach, recipe.Task, recipe.TaskEach} {
				switch form &^ 1 {
				case recipe.Mean:
					if !mean || math.Abs(sum-1) > 1e-9 {
						continue
					}
				case recipe.Lerp:
					if len(c) != 2 || math.Abs(sum-1) > 1e-9 {
						continue
					}
				case recipe.Task:
					if len(c) != 3 || one[order[0]] != 1 || one[order[1]] != -one[order[2]] {
						continue
					}
				}
				if try(form, order, one) {
					return true
				}
			}
		}
	}
	m.Of = of
	return false
}

// combinations are those of one choice from each, at most maxTried; none, if one has no choice. The slice is
// used again.
func combinations(choices [][]float64) iter.Seq[[]float64] {
	return func(yield func([]float64) bool) {
		if slices.ContainsFunc(choices, func(c []float64) bool { return len(c) == 0 }) {
			return
		}
		at, one := make([]int, len(choices)), make([]float64, len(choices))
		for range maxTried {
			for i, k := range at {
				one[i] = choices[i][k]
			}
			if !yield(one) {
				return
			}
			i := 0
			for ; i < len(at); i++ {
				if at[i]++; at[i] < len(choices[i]) {
					break
				}
				at[i] = 0
			}
			if i == len(at) {
				return
			}
		}
	}
}

// orders are those in which k vectors are tried: all of them of few, forwards and backwards of more.
func orders(k int) (all [][]int) {
	first := make([]int, k)
	for i := range first {
		first[i] = i
	}
	if k > 3 {
		last := slices.Clone(first)
		slices.Reverse(last)
		return [][]int{first, last}
	}
	var add func(p []int, i int)
	add = func(p []int, i int) {
		if i == k {
			all = append(all, slices.Clone(p))
			return
		}
		for j := i; j < k; j++ {
			p[i], p[j] = p[j], p[i]
			add(p, i+1)
			p[i], p[j] = p[j], p[i]
		}
	}
	add(first, 0)
	return all
}

// refine sets m to the coefficients, near c, of a weighted sum of which most comes out; nil: less does than is
// of use.
func (m *Mix) refine(s numbersOf, to recipe.Type, c []float64) *Mix {
	m.Op = recipe.Combine{Form: recipe.Sum, To: to}
	for _, v := range c {
		m.Op.C = append(m.Op.C, float32(v))
	}
	best := m.Share(s.want, s.x)
	if best < nearly/2 {
		return nil
	}
	try := func(d []float64) bool {
		was := slices.Clone(m.Op.C)
		for i := range m.Op.C {
			m.Op.C[i] = float32(float64(m.Op.C[i]) + d[i])
		}
		if share := m.Share(s.want, s.x); share > best {
			best = share
			return true
		}
		m.Op.C = was
		return false
	}
	k := len(c)
	for step := 4e-6; step > 5e-9 && best < 1; step /= 2 {
		for better := true; better; {
			better = false
			for i := range k {
				for _, sign := range []float64{1, -1} {
					d := make([]float64, k)
					d[i] = sign * step
					better = try(d) || better
					for j := range i {
						d[j] = -d[i]
						better = try(d) || better
						d[j] = d[i]
						better = try(d) || better
						d[j] = 0
					}
				}
			}
		}
	}
	if best < nearly {
		return nil
	}
	return m
}
