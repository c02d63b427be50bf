package lowrank

import (
	"math"

	"ckptfs/cas/simd"
)

// predictColumns is how many columns predictRows takes at a time, where it has so many.
func (l *Shape) predictColumns() int {
	if simd.Has(simd.AVX2) && l.Kind != F32 {
		return 4 * blockCols
	}
	return blockCols
}

// predictRows sets one or four blocks of columns, v, of so many rows of p to what is predicted of base, and
// says of how many rows it did. f is u in double precision, of kind 3.
func (l *Shape) predictRows(p, base, u []byte, f []float64, v []byte, rows, cols int) int {
	if !simd.Has(simd.AVX2) {
		return 0
	}
	w := l.Kind.Width()
	stride := l.Cols * w
	// the kernels check nothing
	last := (rows-1)*stride + cols*w
	_, _, _, _ = p[:last], base[:last], u[:rows*l.Rank*w], v[:l.Rank*cols*w]
	if l.Kind != F32 {
		kernel := simd.Widest(predictBF16x1AVX2, predictBF16x1AVX512)
		switch {
		case l.Kind == F16 && cols > blockCols:
			kernel = simd.Widest(predictF16x4AVX2, predictF16x4AVX512)
		case l.Kind == F16:
			kernel = simd.Widest(predictF16x1AVX2, predictF16x1AVX512)
		case cols > blockCols:
			kernel = simd.Widest(predictBF16x4AVX2, predictBF16x4AVX512)
		}
		kernel(&p[0], &base[0], stride, rows, &u[0], &v[0], l.Rank/2, float32(math.Ldexp(1, int(l.Exp))))
		return rows
	}
	scale := math.Ldexp(1, int(l.Exp))
	_ = f[:rows*l.Rank]
	n := simd.Widest(2, 4) // rows that a kernel takes
	if times := rows / n; times > 0 {
		simd.Widest(predictF32x2AVX2, predictF32x4AVX512)(
			&p[0], &base[0], stride, times, &f[0], &v[0], l.Rank, scale)
	}
	if i := rows / n * n; i < rows {
		simd.Widest(predictF32x1AVX2, predictF32x1AVX512)(
			&p[i*stride], &base[i*stride], stride, rows-i, &f[i*l.Rank], &v[0], l.Rank, scale)
	}
	return rows
}

// fitRows is fitRowsPortable, but for the order in which it sums up.
func (m *matrix) fitRows(sums, u, v []float32, r int, flags uint64) {
	if !simd.Has(simd.AVX2) {
		m.fitRowsPortable(sums, u, v, r, flags)
		return
	}
	m.check(u, v, r)
	_ = sums[:m.rows*r*blockCols]
	for b := 0; b < m.width; b += fitBlock {
		at := m.at(0, b)
		simd.Widest(fitRowsAVX2, fitRowsAVX512)(
			&sums[0], &u[0], &v[b*r], &m.d[at], &m.w[at], r, m.rows, 4*fitBlock, flags)
	}
}

// leave is leavePortable, but for that order.
func (m *matrix) leave(x, u, v []float32, r int, flags uint64) {
	if !simd.Has(simd.AVX2) {
		m.leavePortable(x, u, v, r, flags)
		return
	}
	m.check(u, v, r)
	_ = x[m.at(m.rows-1, m.width-1)]
	for b := 0; b < m.width; b += fitBlock {
		at := m.at(0, b)
		simd.Widest(leaveAVX2, leaveAVX512)(
			&x[at], &u[0], &v[b*r], &m.d[at], &m.w[at], r, m.rows, 4*fitBlock, flags)
	}
}

// check is for the kernels, which check nothing.
func (m *matrix) check(u, v []float32, r int) {
	last := m.at(m.rows-1, m.width-1)
	_, _, _, _ = u[:m.rows*r], v[:m.width*r], m.d[:last+1], m.w[:last+1]
}

// fitCols is fitColsPortable of all rows, but for that order.
func (m *matrix) fitCols(sums, u, v []float32, r int, flags uint64) {
	from := 0
	if n := m.rows / 4; n > 0 && simd.Has(simd.AVX2) {
		m.check(u, v, r)
		_ = sums[:m.width*r]
		for b := 0; b < m.width; b += blockCols {
			at := m.at(0, b)
			simd.Widest(fitColsAVX2, fitColsAVX512)(
				&sums[b*r], &v[b*r], &u[0], &m.d[at], &m.w[at], r, n, 4*fitBlock, flags)
		}
		from = 4 * n
	}
	m.fitColsPortable(sums, u, v, r, from, flags)
}

// differences is differencesPortable.
func differences(d, w []float32, raw, base []byte, kind Kind, e int) {
	n := 0
	if simd.Has(simd.AVX2) {
		n = len(d) / blockCols
	}
	p := placesOf(kind)
	if k := n * blockCols; n > 0 {
		_, _, _ = w[:k], raw[:k*p.w], base[:k*p.w]
		kernel := simd.Widest(differencesBF16AVX2, differencesBF16AVX512)
		switch kind {
		case F16:
			kernel = simd.Widest(differencesF16AVX2, differencesF16AVX512)
		case F32:
			kernel = simd.Widest(differencesF32AVX2, differencesF32AVX512)
		}
		kernel(&d[0], &w[0], &raw[0], &base[0], n, uint64(p.least), uint64(e+127+p.mantissa))
		d, w, raw, base = d[k:], w[k:], raw[k*p.w:], base[k*p.w:]
	}
	differencesPortable(d, w, raw, base, kind, e)
}

// singles sets dst to whole blocks of numbers of w bytes in single precision, and says of how many bytes it
// did.
func singles(dst []float32, src []byte, w int) int {
	n := len(src) / 64
	if !simd.Has(simd.AVX2) || n == 0 {
		return 0
	}
	_ = dst[:n*64/w]
	if w == 4 {
		simd.Widest(singles24AVX2, singles24AVX512)(&dst[0], &src[0], n)
	} else {
		simd.Widest(singles16AVX2, singles16AVX512)(&dst[0], &src[0], n)
	}
	return n * 64
}
