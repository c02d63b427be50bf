package lowrank

// colSolver is to the columns' factor what rowSolver is to the rows'. Its numbers are in blocks, as those of
// v.
type colSolver struct {
	m       *matrix
	r       int
	u, diag []float32
	g, p, q []float32
	rz      []float32 // of each column
}

// solveCols makes v fit u better, until a step moves the prediction by little of exact, the unit of the last
// place.
func (m *matrix) solveCols(u, v []float32, r int, exact float64) {
	s := &colSolver{
		m: m, r: r, u: u, diag: make([]float32, r),
		g: make([]float32, len(v)), p: make([]float32, len(v)), q: make([]float32, len(v)),
		rz: make([]float32, m.width),
	}
	for i, x := range u {
		s.diag[i%r] += x * x
	}
	little := float32(exact * exact / 1000 * float64(m.rows))
	for range maxRounds {
		clear(s.g)
		m.fitCols(s.g, u, v, r, fitAll)
		if s.descend(v, little) {
			return
		}
	}
}

func (s *colSolver) descend(v []float32, little float32) bool {
	clear(s.rz)
	for b := 0; b < s.m.width; b += blockCols {
		rz := (*[blockCols]float32)(s.rz[b:])
		for j, d := range s.diag {
			at := (b*s.r + j*blockCols)
			g, p := (*[blockCols]float32)(s.g[at:]), (*[blockCols]float32)(s.p[at:])
			d = inverse(d)
			for k, g := range g {
				p[k] = g * d
				rz[k] += g * p[k]
			}
		}
	}
	for range maxSteps {
		clear(s.q)
		s.m.fitCols(s.q, s.u, s.p, s.r, fitW|fitLeft) // negative
		if s.step(v) < little {
			return true
		}
	}
	return false
}

// step moves v, and returns the square of how far the prediction of a column moved at most.
func (s *colSolver) step(v []float32) (most float32) {
	for b := 0; b < s.m.width; b += blockCols {
		var pq, alpha, beta, moved, next [blockCols]float32
		rz := (*[blockCols]float32)(s.rz[b:])
		for at := b * s.r; at < (b+blockCols)*s.r; at += blockCols {
			p, q := (*[blockCols]float32)(s.p[at:]), (*[blockCols]float32)(s.q[at:])
			for k := range pq {
				pq[k] -= p[k] * q[k]
			}
		}
		for k := range pq {
			if a := rz[k] / pq[k]; a > 0 && a-a == 0 {
				alpha[k] = a
			}
		}
		for j, d := range s.diag {
			at := b*s.r + j*blockCols
			g, p := (*[blockCols]float32)(s.g[at:]), (*[blockCols]float32)(s.p[at:])
			q := (*[blockCols]float32)(s.q[at:])
			v := (*[blockCols]float32)(v[at:])
			inv := inverse(d)
			for k, a := range alpha {
				by := a * p[k]
				v[k] += by
				moved[k] += by * by * d
				g[k] += a * q[k]
				next[k] += g[k] * g[k] * inv
			}
		}
		for k, m := range moved {
			most = max(most, m)
			if alpha[k] > 0 {
				beta[k] = next[k] / rz[k]
			}
			rz[k] = next[k]
		}
		for j, d := range s.diag {
			at := b*s.r + j*blockCols
			g, p := (*[blockCols]float32)(s.g[at:]), (*[blockCols]float32)(s.p[at:])
			inv := inverse(d)
			for k := range p {
				p[k] = g[k]*inv + beta[k]*p[k]
			}
		}
	}
	return most
}

// inverse is 1/d, or 0 where d is not above 0.
func inverse(d float32) float32 {
	if d > 0 {
		return 1 / d
	}
	return 0
}
