package recipes

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"ckptfs/cas/half"
	"ckptfs/cas/recipe"
)

func rounded(x []float32, to recipe.Type) []float32 {
	for i, v := range x {
		switch to {
		case recipe.BF16:
			x[i] = half.FromBF16(half.ToBF16(math.Float32bits(v)))
		case recipe.F16:
			x[i] = half.FromF16(half.ToF16(math.Float32bits(v)))
		}
	}
	return x
}

// TestFit: what is merged by rules that people use comes out as they wrote it, beside parents that have no
// part in it.
func TestFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 20000
	for _, to := range []recipe.Type{recipe.BF16, recipe.F16, recipe.F32} {
		parents := make([][]float32, 5)
		origin := make([]float32, n)
		for i := range origin {
			origin[i] = float32(rng.NormFloat64() * 0.02)
		}
		for k := range parents {
			p := make([]float32, n)
			for i := range p {
				p[i] = origin[i] + float32(rng.NormFloat64()*0.001)
			}
			parents[k] = rounded(p, to)
		}
		for _, c := range []struct {
			what string
			of   []int
			op   recipe.Combine
		}{
			{"0.7 A + 0.3 B", []int{0, 2}, recipe.Combine{Form: recipe.Sum, C: []float32{0.7, 0.3}}},
			{"the same in half", []int{0, 2}, recipe.Combine{Form: recipe.SumEach, C: []float32{0.7, 0.3}}},
			{"soup", []int{1, 3, 4}, recipe.Combine{Form: recipe.Mean, C: []float32{3, 0, 0}}},
			{"lerp", []int{4, 1}, recipe.Combine{Form: recipe.Lerp, C: []float32{0, 0.35}}},
			{"task", []int{0, 1, 2}, recipe.Combine{Form: recipe.Task, C: []float32{0, 0.5, 0}}},
			{"EMA", []int{0, 1}, recipe.Combine{Form: recipe.Sum, C: []float32{0.999, 1 - 0.999}}},
			{"tasks", []int{1, 0, 2}, recipe.Combine{Form: recipe.Tasks, C: []float32{0, 0.6, 0.5}}},
			{"tasks in half", []int{1, 0, 2}, recipe.Combine{Form: recipe.TasksEach,
				C: []float32{0, to.Round(0.6), to.Round(0.35)}}},
			{"three tasks", []int{3, 0, 2, 4}, recipe.Combine{Form: recipe.TasksEach,
				C: []float32{0, to.Round(0.3), to.Round(0.4), to.Round(0.2)}}},
			{"stock in half", []int{2, 1, 4, 0}, recipe.Combine{Form: recipe.StockEach,
				C: []float32{to.Round(1 - to.Round(0.61)), to.Round(0.61), 0, 0}}},
			{"three", []int{0, 1, 2}, recipe.Combine{Form: recipe.Sum, C: []float32{0.5, 0.3, 0.2}}},
		} {
			if c.op.Form == recipe.StockEach && to == recipe.F32 {
				continue
			}
			c.op.To = to
			m := Mix{c.of, c.op}
			var all []float32
			for _, i := range c.of {
				all = append(all, parents[i]...)
			}
			want := make([]float32, n)
			m.Op.Combined(want, all)
			got := Fit(want, parents, to)
			if got == nil {
				t.Errorf("type %d, %s: nothing is found", to, c.what)
				continue
			}
			a, b := slices.Sorted(slices.Values(got.Of)), slices.Sorted(slices.Values(c.of))
			if share := got.Share(want, parents); share < 0.999 || !slices.Equal(a, b) {
				t.Errorf("type %d, %s: %v, of which %.5f comes out", to, c.what, *got, share)
			}
		}
		theta := 0.9
		want := make([]float32, n)
		for i := range want {
			a := float32(math.Sin(0.7*theta)/math.Sin(theta)) * parents[0][i]
			want[i] = a + float32(math.Sin(0.3*theta)/math.Sin(theta))*parents[1][i]
		}
		rounded(want, to)
		odd := make([]float32, n) // shares that nobody writes
		for i := range odd {
			odd[i] = 2.71828*parents[0][i] - 1.41421*parents[1][i] - 0.30707*parents[2][i]
		}
		if got := Fit(rounded(odd, to), parents, to); got == nil {
			t.Errorf("type %d: shares that nobody writes are not found", to)
		}
		if got := Fit(want, parents, to); got == nil || to != recipe.F32 && got.Share(want, parents) < 0.99 {
			t.Errorf("type %d, spherical: %v", to, got)
		}
		version := make([]float32, n)
		for i := range version {
			version[i] = parents[0][i] + float32(rng.NormFloat64()*0.0005)
		}
		if got := Fit(rounded(version, to), parents, to); got != nil {
			t.Errorf("type %d: a fine-tune is %v", to, *got)
		}
	}
}

// TestFitWithout: what is no finite number, in a merge or in what it is merged of, says nothing of the others.
func TestFitWithout(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const n = 20000
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, spoil := range map[string]func(want []float32, x [][]float32){
		"one NaN near the head": func(want []float32, _ [][]float32) { want[7] = nan },
		"infinities":            func(want []float32, _ [][]float32) { want[0], want[n-1] = inf, -inf },
		"every eighth is NaN": func(want []float32, _ [][]float32) {
			for i := 0; i < n; i += 8 {
				want[i] = nan
			}
		},
		"NaN in a parent": func(want []float32, x [][]float32) { want[9], x[2][9], x[0][11], want[11] = nan, nan, inf, inf },
		"a parent of NaN alone": func(_ []float32, x [][]float32) {
			for i := range x[1] {
				x[1][i] = nan
			}
		},
	} {
		x := make([][]float32, 3)
		for k := range x {
			for range n {
				x[k] = append(x[k], float32(rng.NormFloat64()*0.02))
			}
			rounded(x[k], recipe.BF16)
		}
		is := Mix{[]int{0, 2}, recipe.Combine{Form: recipe.Sum, To: recipe.BF16, C: []float32{0.7, 0.3}}}
		want := make([]float32, n)
		is.Op.Combined(want, slices.Concat(x[0], x[2]))
		spoil(want, x)
		if got := Fit(want, x, recipe.BF16); got == nil || !slices.Equal(got.Of, is.Of) ||
			!slices.Equal(got.Op.C, is.Op.C) {
			t.Errorf("%s: %v", name, got)
		}
	}
	all := slices.Repeat([]float32{nan}, n)
	if got := Fit(all, [][]float32{all, all}, recipe.BF16); got != nil {
		t.Errorf("of NaN alone: %v", *got)
	}
}
