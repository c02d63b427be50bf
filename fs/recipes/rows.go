package recipes

import (
	"math/bits"

	"ckptfs/cas"
	"ckptfs/cas/anchor"
)

// rowKeys are what rows are known by; 0: nothing.
//
// Of numbers that are not quantised it is the first window, of those at the first four multiples of 8
// elements, whose neighbours differ; else the places of the greatest of up to 1024 elements.
type rowKeys []anchor.Key

const (
	rowWindows = 4
	maxGroup   = 1024
	atOnce     = 1 << 20 // bytes that are read at once
)

// rowKey is the key of a row that p, numbers of bfloat16, begins with.
func rowKey(p []byte, quantised bool) anchor.Key {
	if quantised {
		if k, ok := anchor.GroupKey(p); ok {
			return k
		}
		return 0
	}
	for i := 0; i < rowWindows && len(p) >= anchor.Width; i++ {
		if k, ok := anchor.WindowKey(p); ok {
			return k
		}
		p = p[anchor.Width:]
	}
	return 0
}

// keysOfSource are those of the rows of a source, of which n elements are looked at.
func (f *Finder) keysOfSource(s *source, cols, n int64, quantised bool) rowKeys {
	rows := s.t.NumElements() / cols
	keys := make(rowKeys, rows)
	for r := range rows {
		p := f.halves(s, r*cols, n)
		if p == nil {
			return nil
		}
		keys[r] = rowKey(p, quantised)
	}
	return keys
}

// looks is how many chunks of a source tell whether a target has rows of it.
const looks = 16

// mayHave reports whether rows of a source are wanted, as far as some of its chunks tell.
func (f *Finder) mayHave(s *source, cols, n int64, quantised bool, wanted map[anchor.Key]bool) bool {
	per := int64(cas.ChunkSize / s.typ.Size())
	chunks := int64(len(s.chunks))
	if chunks <= looks {
		return true
	}
	for i := range int64(looks) {
		k := i * chunks / looks
		for r := (k*per + cols - 1) / cols; r*cols+n <= min((k+1)*per, s.t.NumElements()); r++ {
			if wanted[rowKey(f.halves(s, r*cols, n), quantised)] {
				return true
			}
		}
	}
	return false
}

// keysOfTarget are those of the rows of a target.
func keysOfTarget(t *Target, cols, n int64) (rowKeys, error) {
	numbers := asNumbers(t.Tensor)
	elems, size := int64(1), int64(0)
	if format, ok := formatOf(t.Tensor); ok {
		e, k := format.Block()
		elems, size = int64(e), int64(k)
	} else {
		size = int64(types[t.Tensor.DType].Size())
	}
	rows, row := t.Tensor.NumElements()/cols, cols/elems*size
	part := n / elems * size
	keys := make(rowKeys, rows)
	buf := make([]byte, 4*maxGroup)
	for r := int64(0); r < rows; {
		many := min(rows-r, max(1, atOnce/row))
		length := many * row
		if many == 1 {
			length = part
		}
		p, err := t.Read(r*row, int(length))
		if err != nil {
			return nil, err
		}
		for i := range many {
			q := p[i*row:][:part]
			if numbers.Quantised() {
				if k, ok := numbers.GroupKey(q); ok {
					keys[r+i] = k
				}
				continue
			}
			keys[r+i] = rowKey(numbers.AsBF16(buf, q), false)
		}
		r += many
	}
	return keys, nil
}

// rowOf is a row of a source; none: it is not known.
type rowOf struct {
	source int32
	row    int32
}

var none = rowOf{-1, 0}

func (r rowOf) next(by int) rowOf { return rowOf{r.source, r.row + int32(by)} }

// byRows is the layout by rows that are as long as those of sources.
func (f *Finder) byRows(t *Target, sources []*source) (layout, error) {
	cols := colsOf(t.Tensor)
	format, quantised := formatOf(t.Tensor)
	n := min(cols, rowWindows*anchor.Width/2)
	if quantised {
		elems, _ := format.Block()
		if cols%int64(elems) != 0 {
			return nil, nil
		}
		n = min(cols, maxGroup) / int64(elems) * int64(elems)
	}
	if cols == 0 || n < anchor.Width/2 {
		return nil, nil
	}
	keys := make([]rowKeys, len(sources))
	rows, left := t.Tensor.NumElements()/cols, readPerByte*t.Tensor.NumElements()
	if rows > maxRows {
		return nil, nil
	}
	own, err := keysOfTarget(t, cols, n)
	if err != nil {
		return nil, err
	}
	wanted := make(map[anchor.Key]bool, len(own))
	for _, k := range own {
		wanted[k] = k != 0
	}
	table := map[anchor.Key]rowOf{}
	sum := int64(0)
	for i, s := range sources {
		all := s.t.NumElements()
		if colsOf(s.t) != cols || sum+all/cols > maxRows || all > left ||
			!f.mayHave(s, cols, n, quantised, wanted) {
			continue
		}
		sum, left = sum+all/cols, left-all
		keys[i] = f.keysOfSource(s, cols, n, quantised)
		for r, k := range keys[i] {
			// Of what is nearly the same as another the first one counts, until it turns out to be wrong.
			if of, twice := table[k]; !twice {
				table[k] = rowOf{int32(i), int32(r)}
			} else if of.source == int32(i) {
				table[k] = none
			}
		}
	}
	if len(table) == 0 {
		return nil, nil
	}
	at := make([]rowOf, rows)
	last := none
	for r, k := range own {
		at[r] = none
		if k == 0 {
			continue
		}
		// What goes on is believed before what is the only one.
		if on := last.next(1); last != none && int(on.row) < len(keys[on.source]) && keys[on.source][on.row] == k {
			at[r] = on
		} else if is, ok := table[k]; ok {
			at[r] = is
		}
		last = at[r]
	}
	// As with those ahead, so with those behind.
	for r := len(at) - 2; r >= 0; r-- {
		if on := at[r+1].next(-1); at[r+1] != none && on.row >= 0 && own[r] != 0 && at[r] != on &&
			keys[on.source][on.row] == own[r] {
			at[r] = on
		}
	}
	if quantised {
		smooth(at)
	}
	fill(at, keys)
	var l pieces
	for r, is := range at {
		if is == none {
			continue
		}
		l = l.add(piece{int64(r) * cols, cols, int(is.source), int64(is.row) * cols})
		if len(l) > maxPieces {
			return nil, nil
		}
	}
	if len(l) == 0 {
		return nil, nil
	}
	return l, nil
}

// smooth has a row go on as those around it do, whatever its key says: several may have most of their keys in
// common.
func smooth(at []rowOf) {
	for r := 1; r+1 < len(at); r++ {
		a := at[r-1]
		if a == none || at[r] == none || at[r].source == a.source {
			continue
		}
		for k := r + 1; k < min(len(at), r+smoothed); k++ {
			if at[k].source == a.source {
				if a.next(k-r+1) == at[k] {
					at[r] = a.next(1)
				}
				break
			}
		}
	}
}

// smoothed is how many rows in a row may have other keys.
const smoothed = 8

// fill guesses what rows are whose keys say nothing, by what lies around them: rows that go on, or every
// second one of those that do.
func fill(at []rowOf, keys []rowKeys) {
	has := func(r rowOf) bool { return r != none && r.row >= 0 && int(r.row) < len(keys[r.source]) }
	for range 2 {
		for r := 2; r+2 < len(at); r++ {
			if a, b := at[r-2], at[r+2]; at[r] == none && a != none && a.next(2) == b && at[r-1] != a.next(1) {
				at[r] = a.next(1)
			}
		}
	}
	for r := 0; r < len(at); r++ {
		if at[r] != none {
			continue
		}
		end := r
		for end < len(at) && at[end] == none {
			end++
		}
		before, after := none, none
		if r > 0 {
			before = at[r-1]
		}
		if end < len(at) {
			after = at[end]
		}
		// What goes on from before ends where what leads to after begins: heads begin at round numbers.
		cut := end
		switch {
		case before == none && after == none:
			return
		case before == none:
			cut = r
		case after != none && before.next(end-r+1) != after:
			for c := r; c <= end; c++ {
				if c == r || bits.TrailingZeros(uint(c)) > bits.TrailingZeros(uint(cut)) {
					cut = c
				}
			}
		}
		for k := r; k < end; k++ {
			guess := before.next(k - r + 1)
			if k >= cut {
				guess = after.next(k - end)
			}
			if guess.source >= 0 && has(guess) {
				at[k] = guess
			}
		}
		r = end
	}
}
