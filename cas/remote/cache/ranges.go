package cache

import "slices"

// span is the bytes [from, to) of an object.
type span struct{ from, to int64 }

// spans are ascending, and no two of them touch.
type spans []span

// has reports whether all of s is in p.
func (p spans) has(s span) bool {
	i, ok := slices.BinarySearchFunc(p, s.from, func(x span, from int64) int {
		switch {
		case x.to <= from:
			return -1
		case x.from > from:
			return 1
		}
		return 0
	})
	return ok && s.to <= p[i].to
}

// add puts s in, and returns how many bytes are new.
func (p *spans) add(s span) (fresh int64) {
	if s.from >= s.to {
		return 0
	}
	first := slices.IndexFunc(*p, func(x span) bool { return x.to >= s.from })
	if first < 0 {
		first = len(*p)
	}
	last := first
	fresh = s.to - s.from
	for ; last < len(*p) && (*p)[last].from <= s.to; last++ {
		x := (*p)[last]
		fresh -= max(0, min(x.to, s.to)-max(x.from, s.from))
		s.from, s.to = min(s.from, x.from), max(s.to, x.to)
	}
	*p = slices.Replace(*p, first, last, s)
	return fresh
}

// bytes is how many p has.
func (p spans) bytes() (n int64) {
	for _, s := range p {
		n += s.to - s.from
	}
	return n
}
