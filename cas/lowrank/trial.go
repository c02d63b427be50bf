package lowrank

import (
	"math"
	"math/bits"
)

// trial is what factors leave of a sample of differences.
type trial struct {
	m    *matrix
	rest []float32
	unit []float32 // the inverse of each number's unit of the last place
}

// newTrial is a trial of m, from which nothing was taken yet.
func newTrial(m *matrix, e int) *trial {
	n := m.rows * m.width
	t := &trial{m: m, rest: make([]float32, n), unit: make([]float32, n)}
	at := 0
	for b := 0; b < m.width; b += fitBlock {
		from := m.at(0, b)
		at += copy(t.rest[at:], m.d[from:][:m.rows*fitBlock])
	}
	m.roots(t.unit)
	for i := range t.unit {
		t.unit[i] *= float32(math.Ldexp(1, -e))
	}
	return t
}

// take subtracts the product of column j of u and row j of v.
func (t *trial) take(u, v []float32, r, j int) {
	rest := t.rest
	for b := 0; b < t.m.width; b += fitBlock {
		for i := range t.m.rows {
			x := u[i*r+j]
			for c := b; c < b+fitBlock; c += blockCols {
				to := (*[blockCols]float32)(rest)
				for k, y := range (*[blockCols]float32)(v[c*r+j*blockCols:]) {
					to[k] -= x * y
				}
				rest = rest[blockCols:]
			}
		}
	}
}

// bits is about how many bits an element takes: the entropy of the classes of its magnitude in units of the
// last place, and the bits below the highest, which are as good as random.
func (t *trial) bits() float64 {
	var counts [32]int
	var extra, n int
	for i, unit := range t.unit {
		if unit == 0 {
			continue
		}
		x := math.Float32frombits(math.Float32bits(t.rest[i]*unit) &^ (1 << 31))
		q := uint32(min(x+0.5, 1<<30))
		class := bits.Len32(q)
		counts[class]++
		extra += class
		n++
	}
	if n == 0 {
		return 0
	}
	sum := float64(extra) / float64(n) // of each the sign, and what is below the highest bit
	for _, c := range counts {
		if c > 0 {
			p := float64(c) / float64(n)
			sum -= p * math.Log2(p)
		}
	}
	return sum
}
