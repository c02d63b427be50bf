package prefix

import "slices"

// mapping is a map of vertices of g into a that is being made.
type mapping struct {
	g, a *intGraph // g is the new graph, a the stored one
	phi  []int32   // g's vertex → a's, -1 for none
	used []bool    // a's vertices that phi reaches
}

// ready reports whether all inputs of v are mapped.
func (s *mapping) ready(v int) bool {
	for _, e := range s.g.inputs(v) {
		if s.phi[e>>16] < 0 {
			return false
		}
	}
	return true
}

// fits reports whether the inputs of u are the counterparts of those of v.
func (s *mapping) fits(v, u int) bool {
	in, want := s.g.inputs(v), s.a.inputs(u)
	if len(in) > 1 && s.g.commutes(v) {
		return sameBag(len(in), func(i int) uint32 { return uint32(s.phi[in[i]>>16])<<16 | in[i]&0xffff },
			want)
	}
	for i, e := range in {
		if uint32(s.phi[e>>16])<<16|e&0xffff != want[i] {
			return false
		}
	}
	return true
}

// take maps v to u if it may be: their inputs are counterparts, and u is no other's.
func (s *mapping) take(v, u int) bool {
	if s.used[u] || s.g.label[v] != s.a.label[u] || len(s.g.inputs(v)) != len(s.a.inputs(u)) ||
		!s.ready(v) || !s.fits(v, u) {
		return false
	}
	s.phi[v], s.used[u] = int32(u), true
	return true
}

// align maps by the order of the vertices: where the two differ it goes on at the nearest place from which
// they agree again. A mutant and what it is a mutant of are in one order, so mostly all that they have in
// common is mapped. It returns how many vertices are; there may be a longer prefix.
func (s *mapping) align() (mapped int) {
	g, a := s.g.label, s.a.label
	s.phi, s.used = resizeTo(s.phi, len(g)), resize(s.used, len(a))
	for v := range s.phi {
		s.phi[v] = -1
	}
	for v, u := 0, 0; v < len(g) && u < len(a); {
		if g[v] == none {
			v++
			continue
		}
		if g[v] != a[u] {
			i, j := agreeAgain(g[v:], a[u:])
			if v, u = v+i, u+j; i+j > 0 {
				continue
			}
		} else if s.take(v, u) {
			mapped++
		}
		v, u = v+1, u+1
	}
	return mapped + s.fillIn()
}

// What align looks at: so many vertices further, and that so many agree.
const (
	furthest = 8
	agreeing = 3
)

// agreeAgain is how much of g and of a is to be left out for what follows to agree; 0, 0 for no such place.
func agreeAgain(g, a []uint32) (i, j int) {
	for d := 1; d <= furthest; d++ {
		for i := max(0, d-len(a)+1); i <= min(d, len(g)-1); i++ {
			x, y := g[i:], a[d-i:]
			n := min(agreeing, len(x), len(y))
			if slices.Equal(x[:n], y[:n]) {
				return i, d - i
			}
		}
	}
	return 0, 0
}

// fillIn maps what align left out, wherever a counterpart is left. It looks at few pairs.
func (s *mapping) fillIn() (mapped int) {
	left, from := 8*(len(s.phi)+len(s.used)), 0
	for v, l := range s.g.label {
		if l == none || s.phi[v] >= 0 || !s.ready(v) {
			continue
		}
		for from < len(s.used) && s.used[from] {
			from++
		}
		for u := from; u < len(s.used); u++ {
			if left--; left < 0 {
				return mapped
			}
			if !s.used[u] && s.take(v, u) {
				mapped++
				break
			}
		}
	}
	return mapped
}
