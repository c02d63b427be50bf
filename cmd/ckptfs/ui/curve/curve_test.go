package curve

import (
	"math"
	"slices"
	"testing"
)

func TestReduce(t *testing.T) {
	y := make([]float64, 100_000)
	for i := range y {
		y[i] = math.Sin(float64(i) / 1000)
	}
	y[777], y[55_555] = 9, -9 // spikes
	for i := 20_000; i < 30_000; i++ {
		y[i] = math.NaN()
	}
	y[99_000] = math.Inf(1)
	got := Reduce(nil, y, nil, 500)
	if len(got) > 2500 || got[0].I != 0 || got[len(got)-1].I != len(y)-1 {
		t.Errorf("%d points, %v to %v", len(got), got[0], got[len(got)-1])
	}
	for _, spike := range []int{777, 55_555} {
		if !slices.ContainsFunc(got, func(p Point) bool { return p.I == spike }) {
			t.Errorf("the spike at %d is lost", spike)
		}
	}
	if !slices.ContainsFunc(got, func(p Point) bool { return p.I == 99_000 && math.IsNaN(p.Y) }) {
		t.Error("one value that is none leaves no gap")
	}
	gaps := 0
	for i, p := range got {
		if i > 0 && p.I <= got[i-1].I || p.X != float64(p.I) {
			t.Fatalf("%v after %v", p, got[i-1])
		}
		if math.IsNaN(p.Y) {
			gaps++
		} else if p.Y != y[p.I] {
			t.Fatalf("%v is %g", p, y[p.I])
		}
	}
	if gaps < 40 || gaps > 200 {
		t.Errorf("%d gaps", gaps)
	}
	few := Reduce([]float64{5, 6, 7}, []float64{1, 2, math.Inf(-1)}, []bool{true, false, true}, 500)
	if len(few) != 2 || few[0] != (Point{5, 1, 0}) || few[1].X != 7 || !math.IsNaN(few[1].Y) {
		t.Errorf("%v", few)
	}
	if got := Reduce(nil, nil, nil, 5); len(got) != 0 {
		t.Errorf("%v of nothing", got)
	}
}
