package recipes

import (
	"math"

	"ckptfs/cas/recipe"
)

const (
	halfPrecision = 1.0 / 256 // of what people write, by how much bfloat16 has it otherwise
	foremost      = 256       // numbers that forms are tried on first
	stockShares   = 8         // half steps of bfloat16, each way
)

// stock sets m to the base among its vectors, and to the share of the others' mean, that explain s. Which
// share a program took was computed of the tensors, so it is looked for among the numbers of the type next to
// what was fitted.
func (m *Mix) stock(s numbersOf, to recipe.Type, c []float64) bool {
	if len(c) < 3 || to == recipe.F32 {
		return false
	}
	of, first := m.Of, spread(s.want, s.x, foremost)
	for base := range of {
		var others []int
		var sum, off float64
		for i, v := range c {
			if i != base {
				others, sum = append(others, of[i]), sum+v
			}
		}
		n := float64(len(others))
		for i, v := range c {
			if i != base {
				off = max(off, math.Abs(v-sum/n))
			}
		}
		if off > halfPrecision || math.Abs(c[base]+sum-1) > halfPrecision {
			continue
		}
		seen := map[float32]bool{}
		for k := -stockShares; k <= stockShares; k++ {
			share := to.Round(float32(sum * (1 + float64(k)*halfPrecision/2)))
			if seen[share] {
				continue
			}
			seen[share] = true
			m.Op = recipe.Combine{Form: recipe.StockEach, To: to, C: make([]float32, len(of))}
			m.Op.C[0], m.Op.C[1] = to.Round(1-share), share
			for _, order := range orders(len(others)) {
				m.Of = []int{of[base]}
				for _, i := range order {
					m.Of = append(m.Of, others[i])
				}
				if m.Share(first.want, first.x) >= nearly && m.Share(s.want, s.x) >= exactly {
					return true
				}
			}
		}
	}
	m.Of = of
	return false
}

// tasks sets m to the base among its vectors, and to the shares of the others' differences from it that were
// added, that explain s. Programs that compute in half precision have the shares in it, too.
func (m *Mix) tasks(s numbersOf, to recipe.Type, c, sigma []float64) bool {
	var sum float64
	for _, v := range c {
		sum += v
	}
	if len(c) < 3 || math.Abs(sum-1) > halfPrecision {
		return false
	}
	of, first := m.Of, spread(s.want, s.x, foremost)
	for base := range of {
		choices := make([][]float64, len(c))
		for i, v := range c {
			choices[i] = round(v, max(sigma[i], halfPrecision/fewErrors))
		}
		choices[base] = []float64{0} // what the others leave of it
		for shares := range combinations(choices) {
			for _, form := range []recipe.Form{recipe.Tasks, recipe.TasksEach} {
				m.Of, m.Op = []int{of[base]}, recipe.Combine{Form: form, To: to, C: []float32{0}}
				for i, v := range shares {
					if v == 0 {
						continue
					}
					w := float32(v)
					if form == recipe.TasksEach {
						w = to.Round(w)
					}
					m.Of, m.Op.C = append(m.Of, of[i]), append(m.Op.C, w)
				}
				if len(m.Of) > 2 && m.Share(first.want, first.x) >= nearly && m.Share(s.want, s.x) >= exactly {
					return true
				}
			}
		}
	}
	m.Of = of
	return false
}
