package lowrank

import (
	"math"
	"math/rand/v2"
)

const (
	// factorElems is how many elements factors are made from.
	factorElems = 4 << 20
	// rangeRows is from how many rows factors are made first.
	rangeRows = 256
	// fewRank is the rank that is looked for first. Looking for spare more shows how large noise is.
	fewRank = 16
	spare   = 4
	// maxTurns is how often factors looks at what is left.
	maxTurns = 4
)

// Factor makes the columns' factor of a tensor of so many columns from stretches of it. These should be
// spread over the tensor and have some hundred rows. ok is false when factors would not pay.
func Factor(s []Stretch, cols int, kind Kind) (columns []byte, ok bool) {
	if kind == 0 || cols < MinCols || cols > maxColumns {
		return nil, false
	}
	most := mostRank(cols, kind)
	m, e := rowsOf(s, cols, kind, max(factorElems/widthOf(cols), 4), cols)
	if m.rows < minSpan || most < 2 {
		return nil, false
	}
	few := m.some(max(rangeRows, m.rows/8))
	u, v, r := few.factors(e)
	l, rows := Shape{Kind: kind, Cols: cols}, RowsIn(s, cols, kind)
	for last := false; r > 0; last, few = true, m {
		f := few.fitted(u, v, r, e, rows)
		r = f.best(rows, most)
		if v = first(f.v, f.r, r); r > 0 && last {
			l.Rank = r
			columns = l.columns(v, f.stepV())
			return columns, columns != nil
		}
		u = m.polish(v, r, e)
	}
	return nil, false
}

// polish makes v fit better, and returns the rows' factor that fits v.
func (m *matrix) polish(v []float32, r, e int) []float32 {
	u, exact := make([]float32, m.rows*r), math.Ldexp(1, e)
	if r > 0 {
		m.solveRows(u, v, squares(v, r), true, exact)
		m.solveCols(u, v, r, exact)
	}
	return u
}

// factors are the rows' and the columns' factor, of rank r. The first turn counts all numbers alike, which
// shows a large difference. Later turns count each by how exact it is: that shows a small difference, once
// the large one is taken off.
func (m *matrix) factors(e int) (u, v []float32, r int) {
	rest, clear := *m, 1.3 // for what is left
	for turn := 0; turn < maxTurns && r < MaxRank; turn++ {
		if turn > 0 {
			rest, clear = m.white(u, v, r), 2
		}
		more, n := rest.subspace(fewRank+spare, e, clear)
		if n > fewRank {
			more, n = rest.subspace(MaxRank+spare, e, clear)
		}
		if n = min(n, MaxRank-r); n == 0 && turn > 0 {
			break
		}
		n += n % 2
		v, r = beside(v, more, r, n, m.width), r+n
		u = m.polish(v, r, e)
	}
	return u, v, r
}

// white is what the factors leave of d, in units of how exact each number is.
func (m *matrix) white(u, v []float32, r int) matrix {
	p := matrix{rows: m.rows, cols: m.cols, width: m.width, tile: m.rows * fitBlock}
	p.d, p.w = make([]float32, m.rows*m.width), make([]float32, m.rows*m.width)
	at := 0
	for b := 0; b < m.width; b += fitBlock {
		at += copy(p.d[at:], m.d[m.at(0, b):][:m.rows*fitBlock])
	}
	m.roots(p.w)
	if r > 0 {
		p.leave(p.d, u, v, r, fitAll)
	} else {
		for i, w := range p.w {
			p.d[i] *= w
		}
	}
	for i, w := range p.w { // now all count alike
		if w > 0 {
			p.w[i] = 1
		}
	}
	return p
}

// roots sets to to the square roots of the weights, which are even powers of two: those of all rows of 64
// columns, then those of the next 64.
func (m *matrix) roots(to []float32) {
	for b := 0; b < m.width; b += fitBlock {
		for _, w := range m.w[m.at(0, b):][:m.rows*fitBlock] {
			if x := math.Float32bits(w); x > 0 {
				to[0] = math.Float32frombits((x>>23 + 127) / 2 << 23)
			} else {
				to[0] = 0
			}
			to = to[1:]
		}
	}
}

// subspace finds r orthogonal rows, k at most, of which all rows of the matrix are combinations, but for
// noise. A row counts if it is clear times as large as noise would be.
func (m *matrix) subspace(k, e int, clear float64) (v []float32, r int) {
	v, u, k := m.span(k, 2)
	if k == 0 {
		return nil, 0
	}
	values, vectors := eigen(gram(u, k), k)
	var total, floor float64
	for b := 0; b < m.width; b += fitBlock {
		at := m.at(0, b)
		for i, w := range m.w[at:][:m.rows*fitBlock] {
			if w > 0 {
				d := m.d[at+i]
				total += float64(d * d)
				floor += float64(1 / w)
			}
		}
	}
	floor *= math.Ldexp(1, 2*e) / 12
	// The rest is noise. The largest values of a matrix of noise are about edge squared times its mean
	// square. Rounding alone makes floor.
	n, cols := float64(m.rows), float64(m.cols)
	edge := math.Sqrt(n) + math.Sqrt(cols)
	for r = 0; r < k; r++ {
		if free := (1 - float64(r)/n) * (1 - float64(r)/cols); total < 1.03*floor*free {
			break
		}
		if noise := total / n / cols; !(values[r] > clear*noise*edge*edge) {
			break
		}
		total -= values[r]
	}
	if r = min(r, MaxRank); r == 0 {
		return nil, 0
	}
	return mix(v, vectors, k, r), r
}

// span finds k rows at most, orthogonal and of length 1, which explain most of the matrix, and their shares u
// of each row. More times explain more.
func (m *matrix) span(k, times int) (v, u []float32, n int) {
	k = min(k, m.rows, m.cols)
	rng := rand.New(rand.NewPCG(1, 2))
	u = make([]float32, m.rows*k)
	for i := range u {
		u[i] = float32(1 - 2*int(rng.Uint32()&1))
	}
	for range times {
		v = make([]float32, m.width*k)
		m.fitCols(v, u, v, k, fitD)
		if v, k = orthonormal(v, k, times); k == 0 {
			return nil, nil, 0
		}
		u = m.products(v, k)
	}
	return v, u, k
}

// columns is the columns' factor as it is stored: v in numbers of such steps, or of greater ones where v is
// too large for them. It is nil where v is none.
func (l *Shape) columns(v []float32, step float64) []byte {
	w := l.Kind.Width()
	var most float32
	for _, x := range v {
		most = max(most, x, -x)
	}
	if !(most > 0) || math.IsInf(float64(most), 0) {
		return nil
	}
	limit := 1<<13 - 1.
	if l.Kind == F32 {
		limit = 1<<22 - 1
	}
	scale := 1 / max(step, float64(most)/limit)
	if !(scale < math.MaxFloat32) {
		return nil
	}
	out := make([]byte, l.Cols*l.Rank*w)
	for start := 0; start < l.Cols; start += blockCols {
		width := min(blockCols, l.Cols-start)
		block, from := out[start*l.Rank*w:], v[start*l.Rank:]
		for j := range l.Rank {
			for k := range width {
				x := int64(math.RoundToEven(float64(from[j*blockCols+k]) * scale))
				if w == 4 {
					le.PutUint32(block[4*(j*width+k):], uint32(x))
				} else {
					le.PutUint16(block[2*(j&^1*width+2*k+j&1):], uint16(x))
				}
			}
		}
	}
	return out
}
