package lowrank

import "math"

// Fit sets the exponent, and returns the rows' factor that fits best to the chunk raw, which was base, and to
// the columns' factor. All else of the shape must be set.
func (l *Shape) Fit(s *Scratch, raw, base, columns []byte) []byte {
	w, rows := l.Kind.Width(), l.Rows()
	v := room(&s.columns, widthOf(l.Cols)*l.Rank)
	l.singles(v, columns)
	m := &s.m
	m.reset(rows, l.Cols)
	e := middle(raw, l.Kind)
	for i := range rows {
		from, to := 0, min(l.Cols, l.At+l.N-i*l.Cols)
		if i == 0 {
			from = l.At
		}
		at := (i*l.Cols - l.At + from) * w
		m.set(i, from, to, raw[at:], base[at:], l.Kind, e)
	}
	u := make([]float32, rows*l.Rank)
	diag := squares(v, l.Rank)
	m.solveRows(u, v, diag, true, math.Ldexp(1, e))
	return l.quantise(u, diag, e)
}

// singles sets v to the columns' factor in single precision, as a matrix has it.
func (l *Shape) singles(v []float32, columns []byte) {
	w := l.Kind.Width()
	done := singles(v, columns[:l.Cols/blockCols*blockCols*l.Rank*w], w) / w
	clear(v[done:])
	for start := done / l.Rank; start < l.Cols; start += blockCols {
		width := min(blockCols, l.Cols-start)
		block, to := columns[start*l.Rank*w:], v[start*l.Rank:]
		for j := range l.Rank {
			for k := range width {
				if w == 4 {
					to[j*blockCols+k] = float32(number24(block[4*(j*width+k):]))
				} else {
					to[j*blockCols+k] = float32(int16(le.Uint16(block[2*(j&^1*width+2*k+j&1):])))
				}
			}
		}
	}
}

// quantise makes numbers of u, in steps that move the prediction by little of the last place at the exponent
// e. It sets the exponent of the shape.
func (l *Shape) quantise(u, diag []float32, e int) []byte {
	var sum float64
	for _, x := range diag {
		sum += float64(x)
	}
	// the square of the prediction's error is step²/12 times the mean square of a column
	step := math.Ldexp(1, e) * fine(l.Rank, l.Cols) / math.Sqrt(sum/float64(l.Cols)/12+1e-300)
	limit := float64(math.MaxInt16)
	if l.Kind == F32 {
		limit = 1<<23 - 1
	}
	var most float64
	for _, x := range u {
		if a := math.Abs(float64(x)); a > most && !math.IsInf(a, 0) {
			most = a
		}
	}
	step = max(step, most/limit)
	exp := math.Ceil(math.Log2(step))
	l.Exp = int8(min(max(exp, math.MinInt8), math.MaxInt8))
	step = math.Ldexp(1, int(l.Exp))
	w := l.Kind.Width()
	out := make([]byte, len(u)*w)
	for i, x := range u {
		q := math.RoundToEven(float64(x) / step)
		if !(math.Abs(q) <= limit) {
			q = 0
		}
		l.Kind.store(out[i*w:], int64(q))
	}
	return out
}
