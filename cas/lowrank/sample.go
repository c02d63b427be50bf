package lowrank

import (
	"math"
	"slices"
)

// rowsOf are whole rows of the stretches, so many at most. The first of them are as well spread as all. Of
// more than most columns, 64 here and there are taken. e is the exponent of the last place of numbers that
// count as 1.
func rowsOf(s []Stretch, cols int, kind Kind, rows, most int) (m *matrix, e int) {
	w := placesOf(kind).w
	var have []int // rows of each
	s = slices.DeleteFunc(slices.Clone(s), func(t Stretch) bool {
		return len(t.Raw) != len(t.Base) || len(t.Raw)%w != 0 || t.At < 0 ||
			len(t.Raw)/w-before(t, cols) < cols
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

// before is how many elements of a stretch come before its first whole row.
func before(t Stretch, cols int) int { return (cols - int(t.At%int64(cols))) % cols }

// some are the first rows, n at most.
func (m *matrix) some(n int) *matrix {
	p := m.part(0, min(n, m.rows))
	return &p
}

// RowsIn is how many rows of so many columns a tensor with these stretches has, at least.
func RowsIn(s []Stretch, cols int, kind Kind) int {
	var end int64
	for _, t := range s {
		end = max(end, t.At+int64(len(t.Raw)/kind.Width()))
	}
	return int(min(end/int64(cols), math.MaxInt32))
}
