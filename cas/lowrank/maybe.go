package lowrank

import (
	"math"
	"slices"
)

const (
	// minSpan is the fewest rows that tell anything.
	minSpan = 4
	// mayBeRows and mayBeCols are how much of a tensor tells whether it may be of low rank.
	mayBeRows, mayBeCols = 64, 256
	// SampleRows is how many rows, at most, tell whether it may be of a higher rank.
	SampleRows = 192
	// minHigh is the size of a tensor, in bytes, from which a higher rank is looked for, which takes
	// milliseconds.
	minHigh = 4 << 20
	// maxColumns is the most bytes of a columns' factor: a record that others need is no longer
	// (segment.MaxBased).
	maxColumns = 1 << 20
)

// mostRank is the highest even rank for which the columns' factor has room.
func mostRank(cols int, kind Kind) int { return min(MaxRank, maxColumns/(cols*kind.Width())&^1) }

// MayBe tells cheaply from stretches of a tensor of so many rows and columns whether factors may pay. It
// compares what low rank explains of a sample of rows and columns with what it would explain of noise. The
// stretches should have SampleRows rows, if the tensor has so many.
func MayBe(s []Stretch, rows, cols int, kind Kind) bool {
	if kind == 0 || cols < MinCols || cols > maxColumns || rows < minSpan {
		return false
	}
	most := mostRank(cols, kind)
	few := min(fewRank, most)
	if few < 2 {
		return false
	}
	if mayBe(s, rows, cols, kind, few, mayBeRows) {
		return true
	}
	if int64(rows)*int64(cols)*int64(kind.Width()) < minHigh {
		return false
	}
	// Above this rank factors would take as much as a difference does.
	k := min(most, int(int64(rows)*int64(cols)/(3*int64(rows+cols))))
	return k > few && mayBe(s, rows, cols, kind, k, SampleRows)
}

// mayBe is MayBe for rank k, from so many rows at most.
func mayBe(s []Stretch, rows, cols int, kind Kind, k, most int) bool {
	m, e := rowsOf(s, cols, kind, most, mayBeCols)
	few := k <= fewRank
	moved := m.moved() // low rank explains few rows, an embedding's say, whatever they are
	if k = min(k+spare, m.cols/2, moved*2/3); k < minSpan || !few && k <= fewRank+spare {
		return false
	}
	t := newTrial(m, e)
	delta, each := t.bits(), bitsOf(100)*(1/float64(rows)+1/float64(cols))
	if 0.9*delta < 4*each {
		return false
	}
	v, u, k := m.span(k, 1)
	if k == 0 {
		return false
	}
	m.leave(t.rest, u, v, k, fitD|fitLeft)
	// Low rank explains that share of noise, too, which it is free to choose.
	free := (1 - float64(k)/float64(moved)) * (1 - float64(k)/float64(m.cols))
	scale := float32(1 / math.Sqrt(free))
	for i := range t.unit {
		t.unit[i] *= scale
	}
	return t.bits()+each*float64(k)/2 < 0.9*delta
}

// moved is how many rows of the matrix are not zero.
func (m *matrix) moved() (n int) {
	for i := range m.rows {
		for b := 0; b < m.width; b += fitBlock {
			if slices.ContainsFunc(m.d[m.at(i, b):][:fitBlock], func(x float32) bool { return x != 0 }) {
				n++
				break
			}
		}
	}
	return n
}
