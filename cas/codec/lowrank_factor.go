package codec

import (
	"math"
	"math/rand/v2"

	"ckptfs/cas"
)

const (
	// factorElems is of how many elements factors are made.
	factorElems = 4 << 20
	// rangeRows is from how many rows it is told where factors are.
	rangeRows = 256
)

// matrix is rows of a tensor's difference, whole blocks each, and how they count.
type matrix struct {
	rows, cols, width int
	d, w              []float32
}

// rowsOf are the whole rows of stretches, so many at most, and what exponent counts as 1.
func rowsOf(s []Stretch, cols int, kind byte, most int) (m matrix, e int) {
	p := placesOf(kind)
	m = matrix{cols: cols, width: blocksOf(cols) * blockCols}
	most = min(most, factorElems/m.width)
	for i, t := range s {
		if len(t.Raw) != len(t.Base) || len(t.Raw)%p.w != 0 || t.At < 0 {
			continue
		}
		if i == len(s)/2 || len(m.d) == 0 {
			e = p.middle(t.Raw)
		}
	}
	for i, t := range s {
		if len(t.Raw) != len(t.Base) || len(t.Raw)%p.w != 0 || t.At < 0 {
			continue
		}
		share := (most - m.rows) / (len(s) - i)
		skip := (cols - int(t.At%int64(cols))) % cols
		have := (len(t.Raw)/p.w - skip) / cols
		take := min(share, have)
		for k := range max(take, 0) {
			at := (skip + have*k/take*cols) * p.w
			d, w := make([]float32, m.width), make([]float32, m.width)
			differences(d[:cols], w[:cols], t.Raw[at:], t.Base[at:], kind, e)
			m.d, m.w = append(m.d, d...), append(m.w, w...)
			m.rows++
		}
	}
	return m, e
}

func (m *matrix) row(i int) (d, w []float32) {
	return m.d[i*m.width:][:m.width], m.w[i*m.width:][:m.width]
}

// FactorColumns makes the columns' factor from stretches of a tensor, which should be spread over it and have some hundred rows: the content of a
// record that Encode may code, by ColumnsHint. ok is false when it would not pay.
func FactorColumns(s []Stretch, cols int, h Hint) (columns []byte, ok bool) {
	kind := lowRankKind(h)
	if kind == 0 || cols < minCols || cols > cas.MaxChunk/8 {
		return nil, false
	}
	m, e := rowsOf(s, cols, kind, math.MaxInt)
	if m.rows < 4 {
		return nil, false
	}
	v, r := m.subspace(e)
	if r == 0 {
		return nil, false
	}
	u := make([]float32, m.rows*r)
	for range 2 {
		m.solveRows(u, v, r, math.Ldexp(1, e))
		m.solveCols(u, v, r)
	}
	m.solveRows(u, v, r, math.Ldexp(1, e))
	balance(u, v, r)
	l := lowRank{kind: kind, r: (r + 1) / 2 * 2, cols: cols}
	columns = l.columns(v, r)
	return columns, columns != nil
}

// subspace finds rows of which all of the matrix are combinations, but for noise: blocks of r orthogonal ones.
func (m *matrix) subspace(e int) (v []float32, r int) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := min(m.rows, rangeRows)
	k := min(MaxRank+8, n, m.cols)
	v = make([]float32, k*m.width)
	u := make([]float32, k)
	at := func(i int) []float32 { d, _ := m.row(i * m.rows / n); return d }
	for i := range n {
		for j := range u {
			u[j] = float32(1 - 2*int(rng.Uint32()&1))
		}
		outer(v, u, at(i))
	}
	orthonormal(v, k)
	next := make([]float32, len(v))
	for range 2 {
		clear(next)
		for i := range n {
			clear(u)
			project(u, at(i), v)
			outer(next, u, at(i))
		}
		v, next = next, v
		orthonormal(v, k)
	}
	gram := make([]float64, k*k)
	var total, floor float64
	for i := range n {
		clear(u)
		project(u, at(i), v)
		addGram(gram, u)
		d, w := m.row(i * m.rows / n)
		for k, x := range d {
			if w[k] > 0 {
				total += float64(x) * float64(x)
				floor += 1 / float64(w[k])
			}
		}
	}
	floor *= math.Ldexp(1, 2*e) / 12
	values, vectors := eigen(gram, k)
	// The rest is noise; of a matrix of noise the largest are about as these. Rounding alone makes as much as the floor.
	rest := total
	edge := math.Sqrt(float64(n)) + math.Sqrt(float64(m.cols))
	for r = 0; r < k; r++ {
		if free := (1 - float64(r)/float64(n)) * (1 - float64(r)/float64(m.cols)); rest < 1.03*floor*free {
			break
		}
		if noise := rest / float64(n) / float64(m.cols); !(values[r] > 1.3*noise*edge*edge) {
			break
		}
		rest -= values[r]
	}
	if r = min(r, MaxRank); r == 0 {
		return nil, 0
	}
	return rotate(v, vectors, k, r), r
}

// addGram adds the products of the numbers in u to a symmetric matrix.
func addGram(gram []float64, u []float32) {
	k := len(u)
	for i, x := range u {
		for j, y := range u {
			gram[i*k+j] += float64(x) * float64(y)
		}
	}
}

// gramOf are the products of the r rows of blocks of columns.
func gramOf(v []float32, r int) []float64 {
	gram := make([]float64, r*r)
	for b := 0; b < len(v); b += r * blockCols {
		for i := range r {
			x := (*[blockCols]float32)(v[b+i*blockCols:])
			for j := range i + 1 {
				y := (*[blockCols]float32)(v[b+j*blockCols:])
				var sum float32
				for k := range x {
					sum += x[k] * y[k]
				}
				gram[i*r+j] += float64(sum)
			}
		}
	}
	for i := range r {
		for j := range i {
			gram[j*r+i] = gram[i*r+j]
		}
	}
	return gram
}

// orthonormal makes the rows of v orthogonal, of length 1; what hangs on the others becomes zero.
func orthonormal(v []float32, k int) {
	values, vectors := eigen(gramOf(v, k), k)
	for j := range k {
		scale := 0.0
		if values[j] > 1e-12*values[0] {
			scale = 1 / math.Sqrt(values[j])
		}
		for i := range k {
			vectors[i*k+j] *= scale
		}
	}
	copy(v, rotate(v, vectors, k, k))
}

// rotate makes r rows of k, by the first columns of a matrix of k by k.
func rotate(v []float32, m []float64, k, r int) []float32 {
	out := make([]float32, len(v)/k*r)
	for b := 0; b < len(v)/k; b += blockCols {
		for j := range r {
			row := (*[blockCols]float32)(out[b*r+j*blockCols:])
			for i := range k {
				c := float32(m[i*k+j])
				for x, y := range (*[blockCols]float32)(v[b*k+i*blockCols:]) {
					row[x] += c * y
				}
			}
		}
	}
	return out
}

// solveRows sets u to the rows' factor that fits best.
func (m *matrix) solveRows(u, v []float32, r int, exact float64) {
	s := newSolver(v, r)
	for i := range m.rows {
		d, w := m.row(i)
		clear(u[i*r:][:r])
		s.row(u[i*r:][:r], d, w, exact)
	}
}

// solveCols makes v fit better, by the same steps as rows, of all columns at once.
func (m *matrix) solveCols(u, v []float32, r int) {
	const steps = 4
	diag := make([]float32, r)
	for i, x := range u {
		diag[i%r] += x * x
	}
	x := make([]float32, m.width)
	g, p, q := make([]float32, len(v)), make([]float32, len(v)), make([]float32, len(v))
	for i := range m.rows {
		d, w := m.row(i)
		combine(x, u[i*r:][:r], v)
		for k := range x {
			x[k] = w[k] * (d[k] - x[k])
		}
		outer(g, u[i*r:][:r], x)
	}
	rz, pq := make([]float32, m.width), make([]float32, m.width)
	// of all numbers of v
	each := func(do func(at, j, k int)) {
		for b := 0; b < m.width; b += blockCols {
			for j := range r {
				for k := range blockCols {
					do(b*r+j*blockCols+k, j, b+k)
				}
			}
		}
	}
	z := func(at, j int) float32 {
		if diag[j] > 0 {
			return g[at] / diag[j]
		}
		return 0
	}
	each(func(at, j, k int) {
		p[at] = z(at, j)
		rz[k] += g[at] * p[at]
	})
	before := make([]float32, m.width)
	for range steps {
		clear(q)
		for i := range m.rows {
			_, w := m.row(i)
			combine(x, u[i*r:][:r], p)
			for k := range x {
				x[k] *= w[k]
			}
			outer(q, u[i*r:][:r], x)
		}
		clear(pq)
		each(func(at, _, k int) { pq[k] += p[at] * q[at] })
		copy(before, rz)
		clear(rz)
		each(func(at, j, k int) {
			if !(pq[k] > 0) || !(before[k] > 0) {
				return
			}
			alpha := before[k] / pq[k]
			v[at] += alpha * p[at]
			g[at] -= alpha * q[at]
			rz[k] += g[at] * z(at, j)
		})
		each(func(at, j, k int) {
			if before[k] > 0 {
				p[at] = z(at, j) + rz[k]/before[k]*p[at]
			}
		})
	}
}

// balance makes the rows of v orthogonal, as long as the columns of u, of which the product stays as it is; the longest come first. Of u only
// the products are needed, and it is not changed.
func balance(u, v []float32, r int) {
	gv := gramOf(v, r)
	valuesV, q := eigen(gv, r) // v = q sqrt(values) times orthonormal rows
	gu := make([]float64, r*r)
	for i := 0; i < len(u); i += r {
		addGram(gu, u[i:][:r])
	}
	root := make([]float64, r)
	for j := range r {
		root[j] = math.Sqrt(max(valuesV[j], 0))
	}
	// the product's own squares: sqrt(values) qT gu q sqrt(values)
	m := make([]float64, r*r)
	for a := range r {
		for b := range r {
			var sum float64
			for i := range r {
				var inner float64
				for j := range r {
					inner += gu[i*r+j] * q[j*r+b]
				}
				sum += q[i*r+a] * inner
			}
			m[a*r+b] = root[a] * sum * root[b]
		}
	}
	squares, t := eigen(m, r)
	// new rows: tT 1/sqrt(values) qT v, each by the fourth root of its square
	mix := make([]float64, r*r)
	for j := range r {
		long := math.Sqrt(math.Sqrt(max(squares[j], 0)))
		for i := range r {
			var sum float64
			for a := range r {
				if root[a] > 1e-9*root[0] {
					sum += q[i*r+a] / root[a] * t[a*r+j]
				}
			}
			mix[i*r+j] = sum * long
		}
	}
	copy(v, rotate(v, mix, r, r))
}

// columns is the content of a record: v in numbers; nil where it is none.
func (l *lowRank) columns(v []float32, r int) []byte {
	w := l.width()
	var most float32
	for _, x := range v {
		most = max(most, x, -x)
	}
	if !(most > 0) || math.IsInf(float64(most), 0) {
		return nil
	}
	limit := float32(1<<13 - 1)
	if l.kind == toF32 {
		limit = 1<<21 - 1
	}
	scale := limit / most
	out := make([]byte, l.cols*l.r*w)
	for start := 0; start < l.cols; start += blockCols {
		width := min(blockCols, l.cols-start)
		block, from := out[start*l.r*w:], v[start*r:]
		for j := range r {
			for k := range width {
				x := uint64(int64(math.RoundToEven(float64(from[j*blockCols+k] * scale))))
				if w == 4 {
					storeElem(block[4*(j*width+k):], x, 4)
				} else {
					storeElem(block[2*(j&^1*width+2*k+j&1):], x, 2)
				}
			}
		}
	}
	return out
}
