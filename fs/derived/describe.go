package derived

import (
	"slices"

	"ckptfs/cas/recipe"
	"ckptfs/fs/control"
)

// Describe is what is told of the way: its bases with their names, where Name found them.
func (w *Way) Describe() *control.StoredAs {
	out := w.StoredAs
	out.Order = w.order()
	out.Bases = w.named()
	out.MoreBases = w.some && len(out.Bases) > 1 && w.Op != opCombined
	return &out
}

// named are the bases as they are told: of what is combined one for each vector, else each tensor once.
func (w *Way) named() (all []control.BaseTensor) {
	if c, ok := w.last().(recipe.Combine); ok && w.Op == opCombined {
		weights := weights(c)
		for i, k := range w.vectors(len(c.C)) {
			b := w.base(k)
			b.Coefficient = weights[i]
			all = append(all, b)
		}
		return all
	}
	for k := range w.at {
		if b := w.base(k); !slices.Contains(all, b) {
			all = append(all, b)
		}
	}
	return all
}

// weights are what of each vector is in what c makes.
func weights(c recipe.Combine) (all []float64) {
	for _, x := range c.C {
		all = append(all, float64(x))
	}
	switch c.Form {
	case recipe.Tasks, recipe.TasksEach:
		all[0] = 1
		for _, x := range all[1:] {
			all[0] -= x
		}
	case recipe.Stock, recipe.StockEach:
		each := all[1] / float64(len(all)-1)
		for i := range all[1:] {
			all[1+i] = each
		}
	}
	if !c.Form.Goes() {
		return all
	}
	kept := 1.0
	for i := len(all) - 1; i > 0; i-- {
		of := all[i]
		all[i] *= kept
		if c.Form == recipe.Move || c.Form == recipe.MoveApart {
			kept *= 1 - of
		} else {
			kept *= float64(c.C[0])
		}
	}
	all[0] = kept
	return all
}

func (w *Way) last() recipe.Op {
	if len(w.program) == 0 {
		return nil
	}
	return w.program[len(w.program)-1]
}

// vectors are the bases that n vectors begin in.
func (w *Way) vectors(n int) []int {
	of := make([]int, n)
	take, ok := w.program[0].(recipe.Take)
	if !ok {
		return of
	}
	total, _ := take.Len()
	size, at := int64(take.Type.Size()), 0
	for _, g := range take.Groups {
		for k := range g.Repeat {
			for _, s := range g.Stretches {
				if total > 0 && at%(max(total/n, 1)) == 0 && at/max(total/n, 1) < n {
					of[at/max(total/n, 1)] = w.baseOf(int64(s.First+k*s.Step) * size)
				}
				at += s.Len
			}
		}
	}
	return of
}

// baseOf is the base in which a byte of all of them lies.
func (w *Way) baseOf(off int64) int {
	for i, n := range w.sizes {
		if off < n {
			return i
		}
		off -= n
	}
	return 0
}

func (w *Way) base(k int) control.BaseTensor {
	if at := w.at[k]; at != nil {
		return control.BaseTensor{Path: at.file.Path, Tensor: at.tensor().Name}
	}
	return control.BaseTensor{}
}
