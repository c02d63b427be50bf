package lowrank

import "math"

// fine is by what part of a unit of the last place the numbers of a factor may move the prediction, where r
// numbers serve so many elements. At half as much each number would take a bit more.
func fine(r, elems int) float64 { return min(max(float64(r)/float64(3*elems), 1./1024), 1./64) }

// trialElems is about how many elements tell what factors are worth.
const trialElems = 32 << 10

// fitted are the factors of a sample of a tensor, as they are to be tried. The rows of v are orthogonal, and
// the first explain the most.
type fitted struct {
	m            *matrix
	r, e         int
	v            []float32
	rmsU, rmsV   []float64 // root mean squares of the factors' numbers, by rank
	fineU, fineV float64
}

// stepV is the step in which the numbers of the columns' factor are stored.
func (f *fitted) stepV() float64 { return f.step(f.rmsU, f.fineV) }

// step is by how much the numbers of a factor may be off, if those of the other have these root mean squares.
func (f *fitted) step(other []float64, fine float64) float64 {
	var sum float64
	for _, x := range other {
		sum += x * x
	}
	return math.Ldexp(fine, f.e) * math.Sqrt(12/sum)
}

// best is the rank, even and at most so high, at which a tensor of so many rows takes the least. It is 0 if
// no rank saves a tenth of what deltas take.
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

// bitsOf is about how many bits a number of so many steps takes.
func bitsOf(size float64) float64 { return math.Log2(1+size) + 2 }

// fitted are factors for a tensor of so many rows, as balance makes them.
func (m *matrix) fitted(u, v []float32, r, e, rows int) *fitted {
	f := &fitted{
		m: m.some(max(8, min(trialElems, rows*m.cols/16)/m.width)),
		r: r, e: e, fineV: fine(r, rows), fineU: fine(r, m.cols),
	}
	var singular []float64
	f.v, singular = balance(u, v, r)
	for _, x := range singular {
		f.rmsU = append(f.rmsU, math.Sqrt(x/float64(m.rows)))
		f.rmsV = append(f.rmsV, math.Sqrt(x/float64(m.cols)))
	}
	return f
}
