package recipes

import (
	"cmp"
	"slices"

	"ckptfs/cas/anchor"
)

const (
	maxCols  = 1 << 20
	maxRanks = 64
	minVotes = 2 // windows that must say the same
)

// byColumns is the layout by parts of rows, of sources that have as many.
func (f *Finder) byColumns(t *Target, sources []*source) (layout, error) {
	cols := colsOf(t.Tensor)
	if cols == 0 || cols > maxCols {
		return nil, nil
	}
	rows := t.Tensor.NumElements() / cols
	if _, quantised := formatOf(t.Tensor); quantised {
		return f.byRanks(t, sources, cols, rows)
	}
	size := int64(types[t.Tensor.DType].Size())
	for _, row := range []int64{0, rows / 2} {
		p, err := t.Read(row*cols*size, int(cols*size))
		if err != nil {
			return nil, err
		}
		p = asNumbers(t.Tensor).AsBF16(make([]byte, len(p)), p)
		at := map[anchor.Key]int64{} // windows of the row; -1: there are several
		for i := int64(0); 2*i+anchor.Width <= int64(len(p)); i++ {
			if k, ok := anchor.WindowKey(p[2*i:]); ok {
				if _, twice := at[k]; twice {
					at[k] = -1
				} else {
					at[k] = i
				}
			}
		}
		l := columns{cols: cols}
		for i, s := range sources {
			its := colsOf(s.t)
			if its == 0 || its == cols || its > maxCols || s.t.NumElements() != rows*its {
				continue
			}
			if by, ok := shiftOf(at, f.halves(s, row*its, its)); ok {
				from, end := max(0, by), min(cols, by+its)
				l.parts = append(l.parts, part{from, end - from, i, from - by, its})
			}
		}
		if l.parts = apart(l.parts); len(l.parts) > 0 {
			return l, nil
		}
	}
	return nil, nil
}

// shiftOf is how much farther on the elements of p, numbers of bfloat16, are among the windows at.
func shiftOf(at map[anchor.Key]int64, p []byte) (by int64, ok bool) {
	votes := map[int64]int{}
	for i := int64(0); 2*i+anchor.Width <= int64(len(p)); i += 8 {
		if k, ok := anchor.WindowKey(p[2*i:]); ok {
			if to, is := at[k]; is && to >= 0 {
				votes[to-i]++
			}
		}
	}
	most := minVotes - 1
	for shift, n := range votes {
		if n > most || n == most && ok && shift < by {
			by, most, ok = shift, n, true
		}
	}
	return by, ok
}

// aside are parts in order, without those that lie over others.
func apart(all []part) (parts []part) {
	slices.SortStableFunc(all, func(a, b part) int { return cmp.Compare(a.at, b.at) })
	for _, p := range all {
		if k := len(parts) - 1; p.n > 0 && (k < 0 || parts[k].at+parts[k].n <= p.at) {
			parts = append(parts, p)
		}
	}
	return parts
}

// byRanks is byColumns for what is quantised: one of so many equal parts of the rows of a source.
func (f *Finder) byRanks(t *Target, sources []*source, cols, rows int64) (layout, error) {
	for i, s := range sources {
		its := colsOf(s.t)
		if its <= cols || its%cols != 0 || its/cols > maxRanks || s.t.NumElements() != rows*its {
			continue
		}
		for rank := range its / cols {
			l := columns{cols, []part{{0, cols, i, rank * cols, its}}}
			p, err := newPlan(t, sources, l)
			if p == nil || err != nil {
				return nil, err
			}
			if ok, err := f.check(t, p); ok || err != nil {
				return l, err
			}
		}
	}
	return nil, nil
}
