// Package curve reduces curves of very many points to what a screen can show.
package curve

import "math"

// Point is one of a curve; Y is NaN where there is a gap.
type Point struct {
	X float64
	Y float64
	I int // its index in what was reduced
}

// Reduce keeps at most 5·n points of y over x: of each of n stretches of equally many points the first and
// the last, the least and the greatest, and a gap if there is one. Extremes are exact, and so is the end.
// keep says which indices there are; nil: all. What is no finite number is a gap.
func Reduce(x, y []float64, keep []bool, n int) []Point {
	var all []Point
	for i := range y {
		if keep != nil && !keep[i] {
			continue
		}
		p := Point{X: float64(i), Y: y[i], I: i}
		if x != nil {
			p.X = x[i]
		}
		if math.IsInf(p.Y, 0) {
			p.Y = math.NaN()
		}
		all = append(all, p)
	}
	if n < 1 || len(all) <= 5*n {
		return all
	}
	var out []Point
	for k := range n {
		some := all[k*len(all)/n : (k+1)*len(all)/n]
		least, most := -1, -1
		gap := -1
		for i, p := range some {
			switch {
			case math.IsNaN(p.Y):
				gap = i
			case least < 0:
				least, most = i, i
			case p.Y < some[least].Y:
				least = i
			case p.Y > some[most].Y:
				most = i
			}
		}
		taken := map[int]bool{0: true, len(some) - 1: true}
		for _, i := range []int{least, most, gap} {
			if i >= 0 {
				taken[i] = true
			}
		}
		if least < 0 && gap >= 0 {
			taken = map[int]bool{gap: true} // nothing but a gap
		}
		for i, p := range some {
			if taken[i] {
				out = append(out, p)
			}
		}
	}
	return out
}
