package codec

import "math"

// predictRows sets 16 columns of so many rows of p to what is predicted of base, and says of how many it did.
func (l *lowRank) predictRows(p, base, u, v []byte, rows int) int {
	if !wide {
		return 0
	}
	w := l.width()
	stride := l.cols * w
	// the kernels check nothing
	last := (rows-1)*stride + blockCols*w
	_, _, _, _ = p[:last], base[:last], u[:rows*l.r*w], v[:l.r*blockCols*w]
	if l.kind != toF32 {
		kernel := predictBF16AVX512
		if l.kind == toF16 {
			kernel = predictF16AVX512
		}
		kernel(&p[0], &base[0], stride, rows, &u[0], &v[0], l.r/2, float32(math.Ldexp(1, int(l.e))))
		return rows
	}
	scale := math.Ldexp(1, int(l.e))
	for i := 0; i < rows; {
		var f [16 * MaxRank]float64
		n := min(rows-i, len(f)/l.r)
		if n >= 4 {
			n &^= 3
		}
		for k := range n * l.r {
			f[k] = float64(number24(u[(i*l.r+k)*4:]))
		}
		if n >= 4 {
			predictF32x4AVX512(&p[i*stride], &base[i*stride], stride, n/4, &f[0], &v[0], l.r, scale)
		} else {
			predictF32x1AVX512(&p[i*stride], &base[i*stride], stride, n, &f[0], &v[0], l.r, scale)
		}
		i += n
	}
	return rows
}

// fitRows is fitRowsPortable for all columns.
func (m *matrix) fitRows(g, u, v []float32, r int, flags uint64) {
	if !wide {
		m.fitRowsPortable(g, u, v, r, 0, flags)
		return
	}
	n := m.rows * m.width
	_, _, _, _, _ = g[:m.rows*r*blockCols], u[:m.rows*r], v[:m.width*r], m.d[:n], m.w[:n]
	for b := 0; b < m.width; b += fitBlock {
		fitRowsAVX512(&g[0], &u[0], &v[b*r], &m.d[b], &m.w[b], r, m.rows, 4*m.width, flags)
	}
}

// fitCols is fitColsPortable for all rows.
func (m *matrix) fitCols(g, u, v []float32, r int, flags uint64) {
	from := 0
	if n := m.rows / 4; n > 0 && wide {
		k := m.rows * m.width
		_, _, _, _, _ = g[:m.width*r], u[:m.rows*r], v[:m.width*r], m.d[:k], m.w[:k]
		for b := 0; b < m.width; b += blockCols {
			fitColsAVX512(&g[b*r], &v[b*r], &u[0], &m.d[b], &m.w[b], r, n, 4*m.width, flags)
		}
		from = 4 * n
	}
	m.fitColsPortable(g, u, v, r, from, flags)
}
