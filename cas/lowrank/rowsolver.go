package lowrank

import "math"

// squares is the sum of the squares of each row of v.
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

// rowSolver finds the rows' factor that fits best to a columns' factor v of r rows, whose squares are diag.
// It takes conjugate gradients, of which a few steps are enough where the rows of v are orthogonal. All rows
// of u take their steps together, until they are done.
type rowSolver struct {
	m       matrix
	r       int
	v, diag []float32
	lanes   []float32 // what fitRows sums up
	g, p, q []float32 // of r numbers a row
	rz      [batchRows]float32
	done    [batchRows]bool
}

// solveRows sets u to what fits v best, until a step moves the prediction by little of exact, the unit of the
// last place. It begins with u, or, at first, with what would fit if all numbers had the same weight.
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
		for range maxRounds { // each round starts with what is left, whose rounding errors are smaller
			s.fit(s.g, u, fitAll)
			if s.descend(u, little) {
				break
			}
		}
	}
}

// fit sets g to the products of what u leaves and the columns' factor, in rows that are not done.
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

// precondition sets p to g divided by diag, which would be the solution if the rows of v were orthogonal and
// all weights 1.
func (s *rowSolver) precondition(p, g []float32) {
	for i := range s.m.rows {
		for j, d := range s.diag {
			p[i*s.r+j] = g[i*s.r+j] * inverse(d)
		}
	}
}

// descend takes steps down from u. It reports whether all became little.
func (s *rowSolver) descend(u []float32, little float32) bool {
	s.precondition(s.p, s.g)
	for i := range s.m.rows {
		s.rz[i] = dot(s.g[i*s.r:][:s.r], s.p[i*s.r:])
	}
	for range maxSteps {
		s.fit(s.q, s.p, fitW|fitLeft) // negative
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

// step moves row i of u, and returns the square of how far the prediction moved.
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
