package lowrank

import (
	"math"
	"math/bits"
	"slices"
)

// fine is what part of a unit of the last place numbers of factors may move what is predicted by, where r of
// them serve so many elements: were it half as much, each would take a bit more.
func fine(r, elems int) float64 { return min(max(float64(r)/float64(3*elems), 1./1024), 1./64) }

// trialElems is of how many elements it is told, about, what factors are worth.
const trialElems = 32 << 10

// fitted are factors of columns, the rows of v, which are orthogonal and come in the order of what they
// explain, and what they are to be tried with.
type fitted struct {
	m            *matrix
	r, e         int
	v            []float32
	rmsU, rmsV   []float64 // of their numbers, by rank
	fineU, fineV float64
}

// stepV is in what steps the numbers of columns are stored.
func (f *fitted) stepV() float64 { return f.step(f.rmsU, f.fineV) }

// step is by how much a factor's numbers may be off.
func (f *fitted) step(other []float64, fine float64) float64 {
	var sum float64
	for _, x := range other {
		sum += x * x
	}
	return math.Ldexp(fine, f.e) * math.Sqrt(12/sum)
}

// best is of how many ranks, an even number of so many at most, a tensor of so many rows takes the least; 0:
// it takes no tenth less than as deltas.
func (f *fitted) best(rows, most int) int {
	r := f.r
	u := make([]float32, f.m.rows*r)
	f.m.solveRows(u, f.v, squares(f.v, r), true, math.Ldexp(1, f.e))
	t := newTrial(f.m, f.e)
	least := 0.9 * t.bits() * float64(rows) * float64(f.m.cols)
	best, sum := 0, 0.0
	stepU, stepV := f.step(f.rmsV, f.fineU), f.stepV()
	for j := range min(r, most) {
		t.take(u, f.v, r, j)
		sum += float64(rows)*bitsOf(f.rmsU[j]/stepU) + float64(f.m.cols)*bitsOf(f.rmsV[j]/stepV)
		if j%2 == 0 {
			continue
		}
		if all := sum + t.bits()*float64(rows)*float64(f.m.cols); all < least {
			best, least = j+1, all
		}
	}
	return best
}

// bitsOf is what a number takes, about, that is so large, in steps.
func bitsOf(size float64) float64 { return math.Log2(1+size) + 2 }

// trial is what is left of differences, as it would be stored.
type trial struct {
	m    *matrix
	rest []float32
	unit []float32 // the inverse of that of the last place
}

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

// take takes the product of column j of u and row j of v off.
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

// bits are what an element takes, about: the entropy of how many units it is off, of which those of many have
// bits that are as good as random.
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

const (
	// minSpan is of how many rows, at least, it is told.
	minSpan = 4
	// mayBeRows and mayBeCols are of how much of a tensor it is told whether it may be of low rank.
	mayBeRows, mayBeCols = 64, 256
	// SampleRows is of how many rows, at most, it is told whether it may be of a higher rank.
	SampleRows = 192
	// minHigh is the size of a tensor, in bytes, from which it is looked at for a higher rank: that takes
	// some milliseconds.
	minHigh = 4 << 20
	// maxColumns is how long the columns may be, in bytes: a record that others need (segment.MaxBased) is no
	// longer.
	maxColumns = 1 << 20
)

// mostRank is the highest rank, an even number, that columns have room for.
func mostRank(cols int, kind Kind) int { return min(MaxRank, maxColumns/(cols*kind.Width())&^1) }

// MayBe tells cheaply from some stretches of a tensor of so many rows whether the difference is of low rank
// enough to pay: from what is left of a sample of rows and columns that low rank explains, beside what would
// be left of noise. The stretches should have SampleRows in all, if there are so many.
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

func mayBe(s []Stretch, rows, cols int, kind Kind, k, most int) bool {
	m, e := rowsOf(s, cols, kind, most, mayBeCols)
	few := k <= fewRank
	moved := m.moved() // few of an embedding's, say, which low rank would explain whatever they are
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
	// Of noise as much as it is free in is explained as well.
	free := (1 - float64(k)/float64(moved)) * (1 - float64(k)/float64(m.cols))
	scale := float32(1 / math.Sqrt(free))
	for i := range t.unit {
		t.unit[i] *= scale
	}
	return t.bits()+each*float64(k)/2 < 0.9*delta
}

// moved is how many rows differ at all.
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
