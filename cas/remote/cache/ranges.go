package cache

import (
	"cmp"
	"slices"
)

// span is the bytes [from, to) of an object.
type span struct{ from, to int64 }

// spans are ascending, and no two of them touch.
type spans []span

// reaching is the number of the first span that ends at off, or behind it.
func (p spans) reaching(off int64) int {
	i, _ := slices.BinarySearchFunc(p, off, func(x span, off int64) int { return cmp.Compare(x.to, off) })
	return i
}

// has reports whether all of s, which is not empty, is in p.
func (p spans) has(s span) bool {
	i := p.reaching(s.from)
	return i < len(p) && p[i].from <= s.from && s.to <= p[i].to
}

// add puts s in, and returns how many bytes are new.
func (p *spans) add(s span) (fresh int64) {
	if s.from >= s.to {
		return 0
	}
	first := p.reaching(s.from)
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
