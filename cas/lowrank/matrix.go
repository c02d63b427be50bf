package lowrank

import (
	"math"
	"slices"

	"ckptfs/cas/half"
)

// Factors are fitted to differences in single precision, each with a weight. A number that was rounded may be
// off by half a unit of its last place, which depends on its exponent. Its weight is the inverse of the
// square of that unit.

const (
	// sharpest is by how many binary exponents a number may be known better than the middle one: a few tiny
	// numbers would be all that counts, and there is other noise than rounding.
	sharpest = 4
	// faintest is by how many exponents it may be known less well before it counts as not known.
	faintest = 20
)

// places is the width of a kind's numbers in bytes, the bits of their mantissa, and the least exponent in
// single precision.
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

// float is the number that p begins with.
func float(p []byte, kind Kind) float32 {
	switch kind {
	case BF16:
		return half.FromBF16(le.Uint16(p))
	case F16:
		return half.FromF16(le.Uint16(p))
	}
	return math.Float32frombits(le.Uint32(p))
}

// exponent is the exponent of the last place of x, a finite number.
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

// differencesPortable sets d to the differences of raw and base, and w to their weights. A number at the
// exponent e has weight 1; the most is that of one known better by sharpest. A number that is not finite, or
// whose base is not, has weight 0, and d is 0.
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

// In single precision the columns' factor is blocks of 16 columns: of each the r rows of 16 numbers. There
// are whole multiples of 64 columns; those past the last column are zero.

// widthOf is how many numbers a row of so many columns has.
func widthOf(cols int) int { return (cols + fitBlock - 1) &^ (fitBlock - 1) }

const (
	fitBlock = 64 // columns

	// The flags of fitting.
	fitD    = 0x0000ffff // d is not zeros
	fitW    = 0xffff0000 // w is not ones
	fitLeft = 1 << 32    // subtract what u and v predict
	fitAll  = fitD | fitW | fitLeft
)

// matrix is rows of differences d, of width numbers each, with their weights w. All rows of 64 columns lie
// together, then those of the next 64, tile numbers further.
type matrix struct {
	rows, cols, width, tile int
	d, w                    []float32
}

// reset makes m a matrix of zeros.
func (m *matrix) reset(rows, cols int) {
	n := rows * widthOf(cols)
	*m = matrix{
		rows: rows, cols: cols, width: widthOf(cols), tile: rows * fitBlock,
		d: room(&m.d, n), w: room(&m.w, n),
	}
	clear(m.d)
	clear(m.w)
}

// at is where column k of row i is.
func (m *matrix) at(i, k int) int { return k/fitBlock*m.tile + i*fitBlock + k%fitBlock }

// part is n rows from row i on.
func (m *matrix) part(i, n int) matrix {
	p := *m
	p.rows, p.d, p.w = n, m.d[i*fitBlock:], m.w[i*fitBlock:]
	return p
}

// set sets the columns of row i from one of them up to another to the differences of raw and base.
func (m *matrix) set(i, from, to int, raw, base []byte, kind Kind, e int) {
	for w := placesOf(kind).w; from < to; {
		n := min(fitBlock-from%fitBlock, to-from)
		at := m.at(i, from)
		differences(m.d[at:][:n], m.w[at:][:n], raw, base, kind, e)
		raw, base = raw[n*w:], base[n*w:]
		from += n
	}
}

// left sets x to what u and v leave of 16 numbers of a row of d, which begin at at, each times its weight.
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

// fitRowsPortable adds to sums, of r times 16 numbers a row, the products of v and of what u leaves of d,
// each times its weight.
func (m *matrix) fitRowsPortable(sums, u, v []float32, r int, flags uint64) {
	var x [blockCols]float32
	for i := range m.rows {
		for b := 0; b < m.width; b += blockCols {
			v := v[b*r:][:r*blockCols]
			m.left(&x, u[i*r:][:r], v, m.at(i, b), flags)
			for j := range r {
				sum := (*[blockCols]float32)(sums[(i*r+j)*blockCols:])
				v := (*[blockCols]float32)(v[j*blockCols:])
				for k, x := range x {
					sum[k] += x * v[k]
				}
			}
		}
	}
}

// fitColsPortable adds to sums, which is laid out as v, the products of u and of what u leaves of d, each
// times its weight, in rows from one of them on.
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

// leavePortable sets x, which is laid out as d and may be d, to what u leaves of d, each times its weight.
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
