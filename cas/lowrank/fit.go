package codec

import (
	"math"

	"ckptfs/cas"
)

// EncodeLowRank appends raw to dst against base and what columns, which FactorColumns made of the tensor's columns, predicts of the difference. at is the index in
// the tensor of the first element. It returns dst as it was and false unless that takes at most the given number of bytes. What was encoded has been
// decoded again and compared.
func EncodeLowRank(dst, raw, base, columns []byte, cols int, at int64, h Hint, most int) (out []byte, ok bool) {
	l := lowRank{kind: lowRankKind(h), cols: cols}
	if l.kind == 0 || len(raw) != len(base) || len(raw) < minLen || len(raw) > cas.MaxChunk || cols < minCols || at < 0 {
		return dst, false
	}
	w := l.width()
	l.n, l.at = len(raw)/w, int(at%int64(cols))
	l.r = len(columns) / w / cols
	if len(raw)%w != 0 || l.r < 2 || l.r > MaxRank || l.r%2 != 0 || len(columns) != l.r*cols*w {
		return dst, false
	}
	s := predictions.Get().(*prediction)
	defer predictions.Put(s)
	u := l.fit(s, raw, base, columns)
	n := len(dst)
	out = l.append(dst)
	out = append(out, 0, 0, 0, 0, 0)
	c, out := Encode(out, u, ColumnsHint(h))
	le.PutUint32(out[n+lowRankHead-5:], uint32(len(out)-n-lowRankHead))
	out[n+lowRankHead-1] = c
	p := room(&s.p, len(base))
	l.predict(s, p, base, u, columns)
	from := len(out)
	state := planeStates.Get().(*planeState)
	id, out, ok := state.encodeDelta(append(out, 0), raw, p, h, most-(from+1-n))
	planeStates.Put(state)
	if !ok {
		return dst, false
	}
	out[from] = id
	if decodeLowRank(output{p: raw, verify: true}, out[n:], base, columns) != nil {
		return out[:n], false
	}
	return out, true
}

// fit sets e, and returns the rows' factor of the chunk.
func (l *lowRank) fit(s *prediction, raw, base, columns []byte) []byte {
	w, rows := l.width(), l.rows()
	v := room(&s.v, widthOf(l.cols)*l.r)
	l.singles(v, columns)
	m := &s.m
	m.reset(rows, l.cols)
	e := middle(raw, l.kind)
	for i := range rows {
		from, to := 0, min(l.cols, l.at+l.n-i*l.cols)
		if i == 0 {
			from = l.at
		}
		at := (i*l.cols - l.at + from) * w
		m.set(i, from, to, raw[at:], base[at:], l.kind, e)
	}
	u := make([]float32, rows*l.r)
	diag := squares(v, l.r)
	m.solveRows(u, v, diag, true, math.Ldexp(1, e))
	return l.quantise(u, diag, e)
}

// singles sets v to the columns' factor in single precision.
func (l *lowRank) singles(v []float32, columns []byte) {
	w := l.width()
	done := singles(v, columns[:l.cols/blockCols*blockCols*l.r*w], w) / w
	clear(v[done:])
	for start := done / l.r; start < l.cols; start += blockCols {
		width := min(blockCols, l.cols-start)
		block, to := columns[start*l.r*w:], v[start*l.r:]
		for j := range l.r {
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

// quantise makes numbers of u, in steps that move what is predicted by little of the last place at the exponent e.
func (l *lowRank) quantise(u, diag []float32, e int) []byte {
	var sum float64
	for _, x := range diag {
		sum += float64(x)
	}
	// of what is predicted the error's square is step²/12 times the mean square of a column
	step := math.Ldexp(1, e) * fine(l.r, l.cols) / math.Sqrt(sum/float64(l.cols)/12+1e-300)
	limit := float64(math.MaxInt16)
	if l.kind == toF32 {
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
	l.e = int8(min(max(exp, math.MinInt8), math.MaxInt8))
	step = math.Ldexp(1, int(l.e))
	w := l.width()
	out := make([]byte, len(u)*w)
	for i, x := range u {
		q := math.RoundToEven(float64(x) / step)
		if !(math.Abs(q) <= limit) {
			q = 0
		}
		storeElem(out[i*w:], uint64(int64(q)), w)
	}
	return out
}
