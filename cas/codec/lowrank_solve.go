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

// A factor of columns is, in single precision, blocks of 16 columns: of each the r rows of 16. There are as many as make whole times 64 columns; what is
// past the last column is zero.

// widthOf is how many numbers rows of so many columns have.
func widthOf(cols int) int { return (cols + fitBlock - 1) &^ (fitBlock - 1) }

const (
	fitBlock = 64 // columns

	// What fitting is told.
	fitD    = 0x0000ffff // that d is not zeros
	fitW    = 0xffff0000 // that w is not ones
	fitLeft = 1 << 32    // to leave of d what is not predicted
	fitAll  = fitD | fitW | fitLeft
)

// matrix is rows of differences, of width numbers each, and how they count.
type matrix struct {
	rows, cols, width int
	d, w              []float32
}

// left sets x to what u leaves of a block of a row of d, each by its w, which begin at.
func (m *matrix) left(x *[blockCols]float32, u, v []float32, at int, flags uint64) {
	clear(x[:])
	if flags&fitLeft != 0 {
		for j, u := range u {
			for k, v := range (*[blockCols]float32)(v[j*blockCols:]) {
				x[k] -= u * v
			}
		}
	}
	if flags&fitD != 0 {
		for k, d := range (*[blockCols]float32)(m.d[at:]) {
			x[k] += d
		}
	}
	if flags&fitW != 0 {
		for k, w := range (*[blockCols]float32)(m.w[at:]) {
			x[k] *= w
		}
	}
}

// fitRowsPortable adds to g, of which each row has r times 16 numbers, the products of v and of what u leaves of d, each by w, of columns from one of them on.
func (m *matrix) fitRowsPortable(g, u, v []float32, r, from int, flags uint64) {
	var x [blockCols]float32
	for i := range m.rows {
		for b := from; b < m.width; b += blockCols {
			v := v[b*r:][:r*blockCols]
			m.left(&x, u[i*r:][:r], v, i*m.width+b, flags)
			for j := range r {
				g, v := (*[blockCols]float32)(g[(i*r+j)*blockCols:]), (*[blockCols]float32)(v[j*blockCols:])
				for k, x := range x {
					g[k] += x * v[k]
				}
			}
		}
	}
}

// fitColsPortable adds to g, which is as v, the products of u and of what it leaves of d, each by w, of rows from one of them on.
func (m *matrix) fitColsPortable(g, u, v []float32, r, from int, flags uint64) {
	var x [blockCols]float32
	for i := from; i < m.rows; i++ {
		for b := 0; b < m.width; b += blockCols {
			u := u[i*r:][:r]
			m.left(&x, u, v[b*r:][:r*blockCols], i*m.width+b, flags)
			for j, u := range u {
				g := (*[blockCols]float32)(g[b*r+j*blockCols:])
				for k, x := range x {
					g[k] += x * u
				}
			}
		}
	}
}

// squares are those of the rows of v, summed up.
func squares(v []float32, r int) []float32 {
	sum := make([]float32, r)
	for b := 0; b < len(v); b += r * blockCols {
		for j := range sum {
			for _, x := range (*[blockCols]float32)(v[b+j*blockCols:]) {
				sum[j] += x * x
			}
		}
	}
	return sum
}

const (
	maxRounds = 3
	maxSteps  = 6
	// batchRows are so many that what belongs to them stays in the nearer caches.
	batchRows = 64
)

// rowSolver finds the rows' factor that fits best to one of columns of r rows, whose squares are diag: by conjugate gradients, of which few steps are enough
// where those rows are orthogonal; all rows take them at the same time.
type rowSolver struct {
	m       *matrix
	r       int
	v, diag []float32
	lanes   []float32 // what fitRows sums up
	g, p    []float32 // of r numbers a row
	rz      [batchRows]float32
}

// solveRows sets u to what fits best, until a step moves what is predicted by little of what is exact: from where u is, or, at first, from what would fit if
// all counted as much.
func (m *matrix) solveRows(u, v, diag []float32, first bool, exact float64) {
	s := rowSolver{r: len(diag), v: v, diag: diag}
	n := min(m.rows, batchRows)
	s.lanes = make([]float32, n*s.r*blockCols)
	s.g, s.p = make([]float32, n*s.r), make([]float32, n*s.r)
	little := float32(exact * exact / 1000 * float64(m.cols))
	for i := 0; i < m.rows; i += batchRows {
		n := min(batchRows, m.rows-i)
		s.m = &matrix{rows: n, cols: m.cols, width: m.width, d: m.d[i*m.width:][:n*m.width], w: m.w[i*m.width:][:n*m.width]}
		u := u[i*s.r:][:n*s.r]
		if first {
			s.fit(s.g, u, fitD)
			s.precondition(u, s.g)
		}
		for range maxRounds { // begun again from what is left, which is rounded less
			s.fit(s.g, u, fitAll)
			if s.descend(u, little) {
				break
			}
		}
	}
}

// fit sets g to the products of what u leaves and the columns' factor.
func (s *rowSolver) fit(g, u []float32, flags uint64) {
	lanes := s.lanes[:len(u)*blockCols]
	clear(lanes)
	s.m.fitRows(lanes, u, s.v, s.r, flags)
	for i := range u {
		var sum float32
		for _, x := range (*[blockCols]float32)(lanes[i*blockCols:]) {
			sum += x
		}
		g[i] = sum
	}
}

// precondition sets p to g by the inverse of what it would be of columns whose rows are orthogonal.
func (s *rowSolver) precondition(p, g []float32) {
	for i := 0; i < len(p); i += s.r {
		for j, d := range s.diag {
			if p[i+j] = 0; d > 0 {
				p[i+j] = g[i+j] / d
			}
		}
	}
}

// descend takes steps down from u, until all are little.
func (s *rowSolver) descend(u []float32, little float32) (done bool) {
	r, n := s.r, len(u)
	g, p := s.g[:n], s.p[:n]
	s.precondition(p, g)
	q := make([]float32, n)
	for i := range n / r {
		s.rz[i] = dot(g[i*r:][:r], p[i*r:])
	}
	for range maxSteps {
		s.fit(q, p, fitW|fitLeft) // less than nothing
		done = true
		for i := range n / r {
			u, g, p, q := u[i*r:][:r], g[i*r:][:r], p[i*r:][:r], q[i*r:][:r]
			alpha := -s.rz[i] / dot(p, q)
			if !(alpha > 0) || math.IsInf(float64(alpha), 0) {
				clear(p)
				continue
			}
			before := s.rz[i]
			var moved float32
			s.rz[i] = 0
			for j, d := range s.diag {
				by := alpha * p[j]
				moved += by * by * d
				u[j] += by
				g[j] += alpha * q[j]
				if d > 0 {
					s.rz[i] += g[j] * g[j] / d
				}
			}
			if moved < little {
				clear(p)
				continue
			}
			done = false
			beta := s.rz[i] / before
			for j, d := range s.diag {
				if p[j] *= beta; d > 0 {
					p[j] += g[j] / d
				}
			}
		}
		if done {
			break
		}
	}
	return done
}

func dot(a, b []float32) (sum float32) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}
