package derived

import (
	"fmt"

	"ckptfs/cas/quant"
	"ckptfs/cas/recipe"
	"ckptfs/formats"
)

// A stretch is elements of the target, and where they are in the base.
type stretch struct{ to, from, n int64 }

const (
	maxStretches = 4096 // of a chunk, that are looked at
	maxHead      = 512  // rows of a head
)

// order says which elements of the base are taken, and in which order; "": all of them, as they are. That AWQ
// has the inputs first is not told.
func (w *Way) order() string {
	if len(w.program) == 0 || w.Op == opCombined || w.Op == opDequantised || w.Format == scales ||
		w.Format == quant.AWQ.String() {
		return ""
	}
	take, ok := w.program[0].(recipe.Take)
	if !ok || take.Type.Size() == 0 {
		return ""
	}
	base := w.at[0]
	for _, at := range w.at {
		if at == nil || base == nil || at.file != base.file || at.n != base.n {
			return "" // of several tensors, or of what is gone
		}
	}
	switch w.transposes() {
	case 1:
		return "transposed"
	case 2:
		return "axes in reverse order"
	}
	runs := w.stretches(take)
	if len(runs) == 0 {
		return ""
	}
	if len(runs) == 1 && runs[0].to == runs[0].from &&
		w.tensor.NumElements() == base.tensor().NumElements() {
		return ""
	}
	return orderOf(runs, w.tensor, base.tensor())
}

// transposes is how often what is taken is transposed.
func (w *Way) transposes() (n int) {
	for _, op := range w.program {
		if _, ok := op.(recipe.Transpose); ok {
			n++
		}
	}
	return n
}

// stretches are those of take, in elements of the whole tensors.
func (w *Way) stretches(take recipe.Take) (runs []stretch) {
	size := int64(take.Type.Size())
	to := w.firstElement()
	add := func(from, n int64) {
		if k := len(runs) - 1; k >= 0 && runs[k].from+runs[k].n == from {
			runs[k].n += n
		} else if len(runs) < maxStretches {
			runs = append(runs, stretch{to, from, n})
		}
		to += n
	}
	for _, g := range take.Groups {
		for k := range g.Repeat {
			for _, s := range g.Stretches {
				first, n := int64(s.First+k*s.Step), int64(s.Len)
				for i, length := range w.sizes {
					length /= size
					if first < length && n > 0 {
						m := min(n, length-first)
						add(w.at[i].at/size+first, m)
						first, n = first+m, n-m
					}
					first -= min(first, length)
					if n == 0 {
						break
					}
				}
			}
			if len(runs) == maxStretches {
				return runs
			}
		}
	}
	return runs
}

// firstElement is the first of the tensor that the chunk that was looked at has whole.
func (w *Way) firstElement() int64 {
	switch op := w.program[len(w.program)-1].(type) {
	case recipe.Quantise:
		elems, size := op.Quantiser.Format.Block()
		return (w.first + int64(op.Head)) / int64(size) * int64(elems)
	default:
		return w.first / int64(max(w.tensor.DType.Bits()/8, 1))
	}
}

// orderOf names the order of runs, of a tensor from its base.
func orderOf(runs []stretch, t, base *formats.Tensor) string {
	cols, wide := columns(t), columns(base)
	switch {
	case len(runs) == 1 && runs[0].from-runs[0].to >= 0 && (runs[0].from-runs[0].to)%wide == 0 && cols == wide:
		first := (runs[0].from - runs[0].to) / wide
		return fmt.Sprintf("rows %d–%d", first, first+t.NumElements()/wide-1)
	case cols == wide && eachRow(runs, cols, func(to, from int64) bool { return true }):
		rows := t.NumElements() / cols
		for head := int64(4); head <= min(rows, maxHead); head += 2 {
			if rows%head != 0 {
				continue
			}
			for _, back := range []bool{false, true} {
				if eachRow(runs, cols, func(to, from int64) bool { return roped(to, head, back) == from }) {
					return "rope-permuted"
				}
			}
		}
		return "rows in another order"
	case cols < wide:
		first := runs[0].from%wide - runs[0].to%cols
		for _, r := range runs {
			if first < 0 || r.n > cols-r.to%cols || r.from%wide != first+r.to%cols || r.from/wide != r.to/cols {
				return "elements in another order"
			}
		}
		return fmt.Sprintf("columns %d–%d", first, first+cols-1)
	}
	return "elements in another order"
}

// columns is how many elements a row has.
func columns(t *formats.Tensor) int64 {
	if len(t.Shape) == 0 {
		return 1
	}
	return max(t.Shape[len(t.Shape)-1], 1)
}

// eachRow reports whether runs keep rows together, and ok is true of each: of where it is, and where it was.
func eachRow(runs []stretch, cols int64, ok func(to, from int64) bool) bool {
	for _, r := range runs {
		if r.to%cols != r.from%cols {
			return false
		}
		for k := int64(0); k <= (r.to%cols+r.n-1)/cols; k++ {
			if !ok(r.to/cols+k, r.from/cols+k) {
				return false
			}
		}
	}
	return true
}

// roped is the row in which rotary embeddings have row r, in heads of so many rows, as package recipes says;
// or the other way around.
func roped(r, head int64, back bool) int64 {
	h, i := r/head*head, r%head
	if back {
		return h + i%(head/2)*2 + i/(head/2)
	}
	return h + i%2*(head/2) + i/2
}
