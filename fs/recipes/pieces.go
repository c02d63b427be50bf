package recipes

import (
	"cmp"
	"slices"
)

// piece is n elements of a target from at on, which are those from first on of a source, or zeros.
type piece struct {
	at, n  int64
	source int
	first  int64
}

// pieces are a layout: in order, none over another. What lies between them is unknown.
type pieces []piece

const maxPieces = 1 << 18

// add adds a piece behind all others, or makes the last one longer.
func (l pieces) add(p piece) pieces {
	if k := len(l) - 1; k >= 0 && l[k].source == p.source && l[k].at+l[k].n == p.at &&
		(p.source < 0 || l[k].first+l[k].n == p.first) {
		l[k].n += p.n
		return l
	}
	return append(l, p)
}

func (l pieces) runs(first, n int64, add func(source int, first, n int64)) {
	i, found := slices.BinarySearchFunc(l, first, func(p piece, at int64) int { return cmp.Compare(p.at, at) })
	if !found {
		i--
	}
	for n > 0 {
		m := n
		switch {
		case i >= 0 && first < l[i].at+l[i].n:
			m = min(n, l[i].at+l[i].n-first)
			add(l[i].source, l[i].first+first-l[i].at, m)
		default:
			if i+1 < len(l) {
				m = min(n, l[i+1].at-first)
			}
			if m > 0 {
				add(unknown, 0, m)
			}
		}
		first, n = first+m, n-m
		if i+1 < len(l) && first >= l[i+1].at {
			i++
		}
	}
}

// columns is a layout of rows that are made of parts of others' rows of the same number.
type columns struct {
	cols  int64
	parts []part // in order, none over another
}

// part is n columns of a target from at on, which are those from first on of a source with rows of cols.
type part struct {
	at, n       int64
	source      int
	first, cols int64
}

func (l columns) runs(first, n int64, add func(source int, first, n int64)) {
	for n > 0 {
		r, c := first/l.cols, first%l.cols
		end := min(l.cols, c+n)
		n -= end - c
		first += end - c
		for _, p := range l.parts {
			if p.at+p.n <= c {
				continue
			}
			if p.at >= end {
				break
			}
			if p.at > c {
				add(unknown, 0, p.at-c)
				c = p.at
			}
			m := min(end, p.at+p.n) - c
			add(p.source, r*p.cols+p.first+c-p.at, m)
			c += m
		}
		if c < end {
			add(unknown, 0, end-c)
		}
	}
}

// known is how many of n elements lie in a source.
func known(l layout, n int64) (sum int64) {
	switch l := l.(type) {
	case pieces:
		for _, p := range l {
			if p.source >= 0 {
				sum += p.n
			}
		}
		return sum
	case columns:
		for _, p := range l.parts {
			sum += p.n
		}
		return sum * (n / l.cols)
	}
	return n
}
