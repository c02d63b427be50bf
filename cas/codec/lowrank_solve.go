package codec

import (
	"math"
	"slices"
)

// What factors are fitted to: differences, in single precision, and how well each is known. A number that was rounded may have been off by half a unit
// of its last place, which hangs on its exponent: it counts by the inverse of the square of that.

const (
	// sharpest is by how many binary exponents a number may be known better than the middle one: a few tiny numbers would be all that counts, and
	// there is other noise than rounding.
	sharpest = 4
	// faintest is by how many exponents it may be known less well before it counts as not known.
	faintest = 20
)

// places are where numbers of a kind have their exponents.
type places struct{ w, mantissa, bias int }

func placesOf(kind byte) places {
	switch kind {
	case toBF16:
		return places{2, 7, 127}
	case toF16:
		return places{2, 10, 15}
	}
	return places{4, 23, 127}
}

// exponent is that of a number's last place, and whether it is finite.
func (p places) exponent(x uint32) (e int, finite bool) {
	bits := 8*p.w - 1 - p.mantissa
	e = int(x>>p.mantissa) & (1<<bits - 1)
	return max(e, 1) - p.bias - p.mantissa, e != 1<<bits-1
}

// float is what the number that p begins with is.
func float(p []byte, kind byte) float32 {
	switch kind {
	case toBF16:
		return math.Float32frombits(uint32(le.Uint16(p)) << 16)
	case toF16:
		return float32of(le.Uint16(p))
	}
	return math.Float32frombits(le.Uint32(p))
}

// middle is the median of the exponents of a sample of raw.
func (p places) middle(raw []byte) int {
	const sample = 1024
	var all [sample]int
	step := max(1, len(raw)/p.w/sample) * p.w
	n := 0
	for i := 0; i+p.w <= len(raw) && n < sample; i += step {
		if e, ok := p.exponent(uint32(loadElem(raw[i:], p.w))); ok {
			all[n] = e
			n++
		}
	}
	if n == 0 {
		return 0
	}
	slices.Sort(all[:n])
	return all[n/2]
}

// differences sets d to the differences of raw and base, and w to how they count: those at e, an exponent, as 1, and by sharpest better ones the most.
func differences(d, w []float32, raw, base []byte, kind byte, e int) {
	p := placesOf(kind)
	for i := range d {
		x, y := uint32(loadElem(raw[i*p.w:], p.w)), uint32(loadElem(base[i*p.w:], p.w))
		at, ok := p.exponent(x)
		_, ok2 := p.exponent(y)
		at = max(at-e, -sharpest)
		if !ok || !ok2 || at > faintest {
			d[i], w[i] = 0, 0
			continue
		}
		if d[i] = float(raw[i*p.w:], kind) - float(base[i*p.w:], kind); math.IsInf(float64(d[i]), 0) {
			d[i], w[i] = 0, 0
			continue
		}
		w[i] = math.Float32frombits(uint32(127-2*at) << 23)
	}
}

// A factor of columns is, in single precision, blocks of 16 columns: of each the r rows of 16, the last filled up with zeros.

// combine sets out, whole blocks, to the sum of the rows of v times u.
func combine(out, u, v []float32) {
	r := len(u)
	for len(out) > 0 {
		var sum [blockCols]float32
		for j, x := range u {
			row := (*[blockCols]float32)(v[j*blockCols:])
			for k := range sum {
				sum[k] += x * row[k]
			}
		}
		copy(out, sum[:])
		out, v = out[blockCols:], v[r*blockCols:]
	}
}

// project adds to each of a the product of x, whole blocks, and a row of v.
func project(a, x, v []float32) {
	r := len(a)
	for j := range a {
		var sum [blockCols]float32
		for b := 0; b < len(x); b += blockCols {
			row, x := (*[blockCols]float32)(v[b*r+j*blockCols:]), (*[blockCols]float32)(x[b:])
			for k := range sum {
				sum[k] += x[k] * row[k]
			}
		}
		for _, s := range sum {
			a[j] += s
		}
	}
}

// outer adds u[j] times x, whole blocks, to each row of v.
func outer(v, u, x []float32) {
	r := len(u)
	for len(x) > 0 {
		from := (*[blockCols]float32)(x)
		for j, u := range u {
			row := (*[blockCols]float32)(v[j*blockCols:])
			for k := range row {
				row[k] += u * from[k]
			}
		}
		x, v = x[blockCols:], v[r*blockCols:]
	}
}

// blocksOf is how many blocks there are of so many columns.
func blocksOf(cols int) int { return (cols + blockCols - 1) / blockCols }

// solver finds, for rows, the factor that makes the best of them of a factor of columns.
type solver struct {
	r          int
	v          []float32
	diag       []float32 // the squares of the rows of v
	x          []float32 // a row
	g, p, q, s []float32 // of r numbers
}

func newSolver(v []float32, r int) *solver {
	s := &solver{r: r, v: v, diag: make([]float32, r), x: make([]float32, len(v)/r)}
	s.g, s.p, s.q, s.s = make([]float32, r), make([]float32, r), make([]float32, r), make([]float32, r)
	for b := 0; b < len(v); b += r * blockCols {
		for j := range r {
			for _, x := range v[b+j*blockCols:][:blockCols] {
				s.diag[j] += x * x
			}
		}
	}
	return s
}

// row sets u to what fits d best, of which each counts by w, from where u is, until that changes by little of what is exact: by conjugate gradients, of
// which few steps are enough where the rows of the columns' factor are orthogonal. They are begun again from what is left, which is rounded less.
func (s *solver) row(u, d, w []float32, exact float64) {
	little := float32(exact * exact / 1000 * float64(len(d)))
	for range maxRounds {
		combine(s.x, u, s.v)
		for k := range s.x {
			s.x[k] = w[k] * (d[k] - s.x[k])
		}
		if s.descend(u, w, little) < maxSteps {
			return
		}
	}
}

const (
	maxRounds = 3
	maxSteps  = 6
)

// descend takes so many steps down from u, of which x is what it leaves, until one is little.
func (s *solver) descend(u, w []float32, little float32) (steps int) {
	clear(s.g)
	project(s.g, s.x, s.v)
	var rz float32
	for j := range s.p {
		s.p[j] = s.precondition(j)
		rz += s.g[j] * s.p[j]
	}
	for ; steps < maxSteps && rz > 0; steps++ {
		combine(s.x, s.p, s.v)
		for k := range s.x {
			s.x[k] *= w[k]
		}
		clear(s.q)
		project(s.q, s.x, s.v)
		alpha := rz / dot(s.p, s.q)
		if !(alpha > 0) || math.IsInf(float64(alpha), 0) {
			return steps
		}
		before := rz
		var moved float32
		rz = 0
		for j := range u {
			by := alpha * s.p[j]
			moved += by * by * s.diag[j]
			u[j] += by
			s.g[j] -= alpha * s.q[j]
			s.s[j] = s.precondition(j)
			rz += s.g[j] * s.s[j]
		}
		if moved < little {
			return steps
		}
		beta := rz / before
		for j := range s.p {
			s.p[j] = s.s[j] + beta*s.p[j]
		}
	}
	return steps
}

func (s *solver) precondition(j int) float32 {
	if s.diag[j] > 0 {
		return s.g[j] / s.diag[j]
	}
	return 0
}

func dot(a, b []float32) (sum float32) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}
