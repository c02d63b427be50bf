package prefix

import "slices"

// descend maps what it can without a search, for graphs whose first descent takes too long: in about the time
// that it takes to read them. Vertices of g of one tree with the same inputs are mapped together to those of
// a: first those from which the same grows, then those from which most does.
func (s *solver) descend() {
	for v := range s.phi {
		s.phi[v] = -1
	}
	clear(s.used)
	ofG, ofA := map[uint64][]int32{}, map[uint64][]int32{}
	for v, t := range s.ofG {
		if t >= 0 {
			k := s.g.classOf(v, t, func(e uint32) uint32 { return e })
			ofG[k] = append(ofG[k], int32(v))
		}
	}
	for u, t := range s.ofA {
		if t >= 0 {
			k := s.a.classOf(u, t, func(e uint32) uint32 { return e })
			ofA[k] = append(ofA[k], int32(u))
		}
	}
	mapped := 0
	seen := make([]bool, len(s.ofG))
	for v, t := range s.ofG {
		if t < 0 || seen[v] || !s.ready(v) {
			continue
		}
		var ours, theirs []int32
		for _, w := range ofG[s.g.classOf(v, t, func(e uint32) uint32 { return e })] {
			if !seen[w] && s.strictTwins(v, int(w)) {
				seen[w] = true
				ours = append(ours, w)
			}
		}
		k := s.g.classOf(v, t, func(e uint32) uint32 { return uint32(s.phi[e>>16])<<16 | e&0xffff })
		for _, u := range ofA[k] {
			if !s.used[u] && s.ofA[u] == t && s.fits(v, int(u)) {
				theirs = append(theirs, u)
			}
		}
		mapped += s.pairUp(ours, theirs)
	}
	s.len = mapped
	s.best = append(s.best[:0], s.phi...)
}

// classOf is a hash of a vertex's tree and of what its inputs are to be called.
func (n *intGraph) classOf(v int, tree int32, called func(e uint32) uint32) uint64 {
	h := mix(uint64(tree) + 1)
	commutes := n.commutes(v)
	for i, e := range n.inputs(v) {
		x := uint64(called(e)) << 17
		if !commutes {
			x += uint64(i) + 1
		}
		h += mix(x*0x9e3779b97f4a7c15 + 1)
	}
	return h
}

// pairUp maps as many of ours to theirs as there are, and returns how many.
func (s *solver) pairUp(ours, theirs []int32) (n int) {
	alike := map[uint64][]int32{}
	for _, u := range slices.Backward(theirs) {
		alike[s.downA[u]] = append(alike[s.downA[u]], u)
	}
	take := func(v, u int32) {
		s.phi[v], s.used[u] = u, true
		n++
	}
	var left []int32
	for _, v := range ours {
		d := s.downG[v]
		if same := alike[d]; len(same) > 0 {
			take(v, same[len(same)-1])
			alike[d] = same[:len(same)-1]
		} else {
			left = append(left, v)
		}
	}
	theirs = slices.DeleteFunc(theirs, func(u int32) bool { return s.used[u] })
	most := func(out [][]int32) func(a, b int32) int {
		return func(a, b int32) int { return len(out[b]) - len(out[a]) }
	}
	slices.SortStableFunc(left, most(s.outG))
	slices.SortStableFunc(theirs, most(s.outA))
	for i := range min(len(left), len(theirs)) {
		take(left[i], theirs[i])
	}
	return n
}
