package lowrank

import (
	"math"
	"slices"

	"ckptfs/cas/half"
)

// What factors are fitted to: differences, in single precision, and how well each is known. A number that was
// rounded may have been off by half a unit of its last place, which hangs on its exponent: it counts by the
// inverse of the square of that.

const (
	// sharpest is by how many binary exponents a number may be known better than the middle one: a few tiny
	// numbers would be all that counts, and there is other noise than rounding.
	sharpest = 4
	// faintest is by how many exponents it may be known less well before it counts as not known.
	faintest = 20
)

// places are where numbers of a kind have their exponents, and what the least of those is in single
// precision.
type places struct{ w, mantissa, least int }

func placesOf(kind Kind) places {
	switch kind {
	case BF16:
		return places{2, 7, 1}
	case F16:
		return places{2, 10, 127 - 14}
	}
	return places{4, 23, 1}
}

// float is what the number that p begins with is.
func float(p []byte, kind Kind) float32 {
	switch kind {
	case BF16:
		return half.FromBF16(le.Uint16(p))
	case F16:
		return half.FromF16(le.Uint16(p))
	}
	return math.Float32frombits(le.Uint32(p))
}

// exponent is that of the last place of x, a finite number.
func (p places) exponent(x float32) int {
	return max(int(math.Float32bits(x)>>23&255), p.least) - 127 - p.mantissa
}

// middle is the median of the exponents of the last places of a sample of raw.
func middle(raw []byte, kind Kind) int {
	const sample = 1024
	p := placesOf(kind)
	var all [sample]int
	step := max(1, len(raw)/p.w/sample) * p.w
	n := 0
	for i := 0; i+p.w <= len(raw) && n < sample; i += step {
		if x := float(raw[i:], kind); x-x == 0 {
			all[n] = p.exponent(x)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	slices.Sort(all[:n])
	return all[n/2]
}

// differencesPortable sets d to the differences of raw and base, and w to how they count: those at e, an
// exponent, as 1, and those that are known by sharpest better the most. What is not finite does not count,
// and is 0.
func differencesPortable(d, w []float32, raw, base []byte, kind Kind, e int) {
	p := placesOf(kind)
	for i := range d {
		x := float(raw[i*p.w:], kind)
		by := x - float(base[i*p.w:], kind)
		at := max(p.exponent(x)-e, -sharpest)
		if by-by != 0 || at > faintest {
			d[i], w[i] = 0, 0
			continue
		}
		d[i], w[i] = by, math.Float32frombits(uint32(127-2*at)<<23)
	}
}

// A factor of columns is, in single precision, blocks of 16 columns: of each the r rows of 16. There are as
// many as make whole times 64 columns; what is past the last column is zero.

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

// matrix is rows of differences, of width numbers each, and how they count. Of 64 columns those of all rows
// are beside each other; tile is how far it is to the next ones.
type matrix struct {
	rows, cols, width, tile int
	d, w                    []float32
}

// reset makes it one of zeros.
func (m *matrix) reset(rows, cols int) {
	n := rows * widthOf(cols)
	*m = matrix{rows: rows, cols: cols, width: widthOf(cols), tile: rows * fitBlock, d: room(&m.d, n), w: room(&m.w, n)}
	clear(m.d)
	clear(m.w)
}

// at is where row i has column k.
func (m *matrix) at(i, k int) int { return k/fitBlock*m.tile + i*fitBlock + k%fitBlock }

// part is n rows from one of them on.
func (m *matrix) part(i, n int) matrix {
	p := *m
	p.rows, p.d, p.w = n, m.d[i*fitBlock:], m.w[i*fitBlock:]
	return p
}

// set sets the columns of row i from one of them on, to another, to the differences of raw and base.
func (m *matrix) set(i, from, to int, raw, base []byte, kind Kind, e int) {
	for w := placesOf(kind).w; from < to; {
		n := min(fitBlock-from%fitBlock, to-from)
		at := m.at(i, from)
		differences(m.d[at:][:n], m.w[at:][:n], raw, base, kind, e)
		raw, base = raw[n*w:], base[n*w:]
		from += n
	}
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

// fitRowsPortable adds to sums, of which each row has r times 16 numbers, the products of v and of what u
// leaves of d, each by w.
func (m *matrix) fitRowsPortable(sums, u, v []float32, r int, flags uint64) {
	var x [blockCols]float32
	for i := range m.rows {
		for b := 0; b < m.width; b += blockCols {
			v := v[b*r:][:r*blockCols]
			m.left(&x, u[i*r:][:r], v, m.at(i, b), flags)
			for j := range r {
				sum, v := (*[blockCols]float32)(sums[(i*r+j)*blockCols:]), (*[blockCols]float32)(v[j*blockCols:])
				for k, x := range x {
					sum[k] += x * v[k]
				}
			}
		}
	}
}

// fitColsPortable adds to sums, which is as v, the products of u and of what it leaves of d, each by w, of
// rows from one of them on.
func (m *matrix) fitColsPortable(sums, u, v []float32, r, from int, flags uint64) {
	var x [blockCols]float32
	for i := from; i < m.rows; i++ {
		for b := 0; b < m.width; b += blockCols {
			u := u[i*r:][:r]
			m.left(&x, u, v[b*r:][:r*blockCols], m.at(i, b), flags)
			for j, u := range u {
				sum := (*[blockCols]float32)(sums[b*r+j*blockCols:])
				for k, x := range x {
					sum[k] += x * u
				}
			}
		}
	}
}

// leavePortable sets x, which is as d and may be d, to what u leaves of d, each by w.
func (m *matrix) leavePortable(x, u, v []float32, r int, flags uint64) {
	for b := 0; b < m.width; b += blockCols {
		for i := range m.rows {
			var left [blockCols]float32
			at := m.at(i, b)
			m.left(&left, u[i*r:][:r], v[b*r:], at, flags)
			copy(x[at:], left[:])
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

// rowSolver finds the rows' factor that fits best to one of columns of r rows, whose squares are diag: by
// conjugate gradients, of which few steps are enough where those rows are orthogonal; all rows take them at
// the same time, until they are done.
type rowSolver struct {
	m       matrix
	r       int
	v, diag []float32
	lanes   []float32 // what fitRows sums up
	g, p, q []float32 // of r numbers a row
	rz      [batchRows]float32
	done    [batchRows]bool
}

// solveRows sets u to what fits best, until a step moves what is predicted by little of what is exact: from
// where u is, or, at first, from what would fit if all counted as much.
func (m *matrix) solveRows(u, v, diag []float32, first bool, exact float64) {
	s := rowSolver{r: len(diag), v: v, diag: diag}
	n := min(m.rows, batchRows) * s.r
	numbers := make([]float32, n*(blockCols+3))
	s.lanes, s.g, s.p, s.q = numbers[3*n:], numbers[:n], numbers[n:2*n], numbers[2*n:3*n]
	little := float32(exact * exact / 400 * float64(m.cols))
	for i := 0; i < m.rows; i += batchRows {
		s.m = m.part(i, min(batchRows, m.rows-i))
		s.done = [batchRows]bool{}
		u := u[i*s.r:][:s.m.rows*s.r]
		if first {
			s.fit(u, u, fitD)
			s.precondition(u, u)
		}
		for range maxRounds { // begun again from what is left, which is rounded less
			s.fit(s.g, u, fitAll)
			if s.descend(u, little) {
				break
			}
		}
	}
}

// fit sets g to the products of what u leaves and the columns' factor, of rows that are not done.
func (s *rowSolver) fit(g, u []float32, flags uint64) {
	r := s.r
	for i, n := 0, 1; i < s.m.rows; i += n {
		n = 1
		if s.done[i] {
			continue
		}
		for i+n < s.m.rows && !s.done[i+n] {
			n++
		}
		lanes := s.lanes[:n*r*blockCols]
		clear(lanes)
		part := s.m.part(i, n)
		part.fitRows(lanes, u[i*r:][:n*r], s.v, r, flags)
		for k := range g[i*r:][:n*r] {
			var sum float32
			for _, x := range (*[blockCols]float32)(lanes[k*blockCols:]) {
				sum += x
			}
			g[i*r+k] = sum
		}
	}
}

// precondition sets p to g by the inverse of what it would be of columns whose rows are orthogonal.
func (s *rowSolver) precondition(p, g []float32) {
	for i := range s.m.rows {
		for j, d := range s.diag {
			p[i*s.r+j] = g[i*s.r+j] * inverse(d)
		}
	}
}

// descend takes steps down from u, until all are little.
func (s *rowSolver) descend(u []float32, little float32) bool {
	s.precondition(s.p, s.g)
	for i := range s.m.rows {
		s.rz[i] = dot(s.g[i*s.r:][:s.r], s.p[i*s.r:])
	}
	for range maxSteps {
		s.fit(s.q, s.p, fitW|fitLeft) // less than nothing
		all := true
		for i := range s.m.rows {
			if !s.done[i] {
				s.done[i] = s.step(u[i*s.r:][:s.r], i) < little
				all = all && s.done[i]
			}
		}
		if all {
			return true
		}
	}
	return false
}

// step moves u, of row i, and says by how much that moved what is predicted.
func (s *rowSolver) step(u []float32, i int) (moved float32) {
	g, p, q := s.g[i*s.r:][:s.r], s.p[i*s.r:][:s.r], s.q[i*s.r:][:s.r]
	alpha := -s.rz[i] / dot(p, q)
	if !(alpha > 0) || math.IsInf(float64(alpha), 0) {
		return 0
	}
	var next float32
	for j, d := range s.diag {
		by := alpha * p[j]
		moved += by * by * d
		u[j] += by
		g[j] += alpha * q[j]
		next += g[j] * g[j] * inverse(d)
	}
	beta := next / s.rz[i]
	s.rz[i] = next
	for j, d := range s.diag {
		p[j] = p[j]*beta + g[j]*inverse(d)
	}
	return moved
}

func dot(a, b []float32) (sum float32) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}
