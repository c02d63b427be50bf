package lowrank

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// factorElems is of how many elements factors are made.
	factorElems = 4 << 20
	// rangeRows is from how many rows it is told what they have in common.
	rangeRows = 256
	// fewRank is the rank that is looked for first, and a few more, so that noise is seen.
	fewRank = 16
	spare   = 4
)

// rowsOf are whole rows of stretches, so many at most, the first of them as well spread as all; of more than
// so many columns 64 here and there. What counts as 1 is exact to the exponent e.
func rowsOf(s []Stretch, cols int, kind Kind, rows, most int) (m *matrix, e int) {
	w := placesOf(kind).w
	var have []int // rows of each
	s = slices.DeleteFunc(slices.Clone(s), func(t Stretch) bool {
		return len(t.Raw) != len(t.Base) || len(t.Raw)%w != 0 || t.At < 0 || len(t.Raw)/w-before(t, cols) < cols
	})
	var sum int
	for _, t := range s {
		have = append(have, (len(t.Raw)/w-before(t, cols))/cols)
		sum += have[len(have)-1]
	}
	m = new(matrix)
	m.reset(min(sum, rows), min(cols, most))
	if sum == 0 {
		return m, 0
	}
	e = middle(s[len(s)/2].Raw, kind)
	for row, turn := 0, 0; row < m.rows; turn++ {
		for i, t := range s {
			if turn >= have[i] || row == m.rows {
				continue
			}
			start := before(t, cols) + stride(turn, have[i])*cols
			for k := 0; k < m.cols; k += fitBlock {
				at := k
				if m.cols < cols {
					at = (cols - fitBlock) / (m.cols/fitBlock - 1) * (k / fitBlock)
				}
				m.set(row, k, min(k+fitBlock, m.cols), t.Raw[(start+at)*w:], t.Base[(start+at)*w:], kind, e)
			}
			row++
		}
	}
	return m, e
}

// stride is a permutation of n that goes through them in long strides.
func stride(i, n int) int {
	by := max(1, n*5/8)
	for gcd(by, n) != 1 {
		by++
	}
	return i * by % n
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// before is how many elements of a stretch are before its first whole row.
func before(t Stretch, cols int) int { return (cols - int(t.At%int64(cols))) % cols }

// some are so many rows, those that come first, or all.
func (m *matrix) some(n int) *matrix {
	p := m.part(0, min(n, m.rows))
	return &p
}

// Factor makes the columns' factor of a tensor of so many columns from stretches of it, which should be
// spread over it and have some hundred rows. ok is false when it would not pay.
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

// fitted are factors for a tensor of so many rows, as balance makes them.
func (m *matrix) fitted(u, v []float32, r, e, rows int) *fitted {
	f := &fitted{m: m.some(max(8, min(trialElems, rows*m.cols/16)/m.width)), r: r, e: e, fineV: fine(r, rows), fineU: fine(r, m.cols)}
	var singular []float64
	f.v, singular = balance(u, v, r)
	for _, x := range singular {
		f.rmsU = append(f.rmsU, math.Sqrt(x/float64(m.rows)))
		f.rmsV = append(f.rmsV, math.Sqrt(x/float64(m.cols)))
	}
	return f
}

// polish makes v fit better, and returns the rows' factor.
func (m *matrix) polish(v []float32, r, e int) []float32 {
	u, exact := make([]float32, m.rows*r), math.Ldexp(1, e)
	if r > 0 {
		m.solveRows(u, v, squares(v, r), true, exact)
		m.solveCols(u, v, r, exact)
	}
	return u
}

// factors are the columns' and the rows' factor, of rank r. Where all count as much a large difference is
// seen at once; of a small one what is exact tells, as soon as the large one is taken off.
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

const maxTurns = 4

// white is what is left of d, in units of how exact each number is.
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
	for i, w := range p.w { // by which they count as much
		if w > 0 {
			p.w[i] = 1
		}
	}
	return p
}

// roots sets to to the square roots of how numbers count, which are even powers of two, of all rows of 64
// columns before those of the next.
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

// RowsIn is how many rows of so many columns a tensor with these stretches has, at least.
func RowsIn(s []Stretch, cols int, kind Kind) int {
	var end int64
	for _, t := range s {
		end = max(end, t.At+int64(len(t.Raw)/kind.Width()))
	}
	return int(min(end/int64(cols), math.MaxInt32))
}

// subspace finds rows of which all of the matrix are combinations, but for noise, of which they are clear by
// so much: blocks of r orthogonal ones, k at most.
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
	// The rest is noise; of a matrix of noise the largest are about as these. Rounding alone makes as much as
	// the floor.
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

// span finds k rows at most, orthogonal and of length 1, that explain the most of the matrix or nearly so,
// the better the more times, and their share of each row.
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

// columns is the content of a record: v in numbers of such steps, or greater ones where they are too large;
// nil where it is none.
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
