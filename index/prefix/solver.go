package prefix

import "slices"

// solver finds the longest common prefix of two graphs. Where no tree that both hold occurs twice in either,
// there is one such prefix and it is read off; else it is searched for by branch and bound.
type solver struct {
	trees   // of g
	mapping // phi: what is being tried
	ofA     []int32
	countG  []int32 // by tree
	countA  []int32

	best []int32 // the longest phi found
	len  int     // of best

	// The search, in what the two have in common.
	ofG    []int32   // of, less what a has not
	group  [][]int32 // by tree: a's vertices
	twins  [][]int32 // by tree: g's vertices
	outG   [][]int32 // consumers
	outA   [][]int32
	downG  []uint64 // what follows from a vertex, as a hash
	downA  []uint64
	aliveG []bool
	aliveA []bool
	treeA  []bool  // what follows from the vertex is a tree: each has one input
	left   []int32 // by tree
	ceil   int     // no prefix is longer
	turned bool    // the first descent is over, in which bound would not pay
	effort
	choice
}

// effort is what a search may still do, and did.
type effort struct {
	budget  int         // nodes
	visited int         // nodes of all searches
	work    int         // what may still be looked at; below 0 the search ends
	worked  int         // what the last solve looked at
	look    int         // stop is asked when work has come down to this
	stop    func() bool // or nil
}

// choice is about the vertex that search is at.
type choice struct {
	free, rivals []int32
	scored       []scored
}

// limits bound a search. Nodes are few, but one may look at all of both graphs, or at all pairs of twins.
type limits struct {
	nodes int
	work  int         // vertices and inputs that are looked at
	stop  func() bool // true: the search is to end; asked now and then; nil: never
}

// pace is how much is looked at between two looks at stop: some milliseconds.
const pace = 1 << 20

// spend counts n vertices or inputs that were looked at. False when the search is to end.
func (s *effort) spend(n int) bool {
	if s.work -= n; s.work < s.look && s.work >= 0 {
		s.look = s.work - pace
		if s.stop != nil && s.stop() {
			s.work = -1
		}
	}
	return s.work >= 0
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// resizeTo is a slice of n items, whatever they are.
func resizeTo[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

// solve looks for a prefix of g and a that is longer than floor, with s.build(s.g) called before, and sets
// s.best and s.len to the longest it found; s.len is floor when it found none. It keeps to the limits, but
// that with floor -1 there always is a first descent, and reports whether they sufficed to know that no
// prefix is longer.
func (s *solver) solve(a *intGraph, l limits, floor int) (exact bool) {
	s.a, s.worked = a, 0
	s.ofA = s.match(a, s.ofA[:0])
	n := len(s.label)
	s.countG, s.countA = resize(s.countG, n), resize(s.countA, n)
	for _, t := range s.of {
		if t >= 0 {
			s.countG[t]++
		}
	}
	for _, t := range s.ofA {
		if t >= 0 {
			s.countA[t]++
		}
	}
	ambiguous := false
	s.ceil = 0
	for t := range n {
		g, a := s.countG[t], s.countA[t]
		s.ceil += int(min(g, a))
		ambiguous = ambiguous || a > 0 && (a > 1 || g > 1)
	}
	s.phi = resize(s.phi, len(s.g.label))
	if ambiguous && s.identical() {
		s.len = s.ceil
		for v := range s.phi {
			s.phi[v] = int32(v)
		}
		s.best = append(s.best[:0], s.phi...)
		return true
	}
	if ambiguous {
		s.budget, s.work, s.look, s.stop = l.nodes, l.work, l.work-pace, l.stop
		if s.ceil <= floor {
			s.len = floor
			return true
		}
		s.len = floor
		s.prepare()
		s.turned = false
		done := s.search(0, 0)
		s.worked = l.work - max(s.work, 0)
		if !done && s.len < 0 {
			s.descend()
		}
		return done || s.len == s.ceil
	}
	at := s.countA // tree → a's vertex + 1
	clear(at)
	for u, t := range s.ofA {
		if t >= 0 {
			at[t] = int32(u) + 1
		}
	}
	s.len = s.ceil
	for v, t := range s.of {
		s.phi[v] = -1
		if t >= 0 {
			s.phi[v] = at[t] - 1
		}
	}
	s.best = append(s.best[:0], s.phi...)
	return true
}

// identical reports whether the graphs are one, in one order: a model saved again.
func (s *solver) identical() bool {
	return s.ceil == len(s.g.label) && slices.Equal(s.g.label, s.a.label) &&
		slices.Equal(s.g.first, s.a.first) && slices.Equal(s.g.in, s.a.in)
}

func (s *solver) prepare() {
	n, ng, na := len(s.label), len(s.of), len(s.ofA)
	s.group, s.twins = lists(s.group, n), lists(s.twins, n)
	s.outG, s.outA = lists(s.outG, ng), lists(s.outA, na)
	s.ofG = append(s.ofG[:0], s.of...)
	for v, t := range s.of {
		if t >= 0 && s.countA[t] > 0 {
			s.twins[t] = append(s.twins[t], int32(v))
			for _, e := range s.g.inputs(v) {
				s.outG[e>>16] = append(s.outG[e>>16], int32(v))
			}
		} else {
			s.ofG[v] = -1
		}
	}
	for u, t := range s.ofA {
		if t >= 0 {
			s.group[t] = append(s.group[t], int32(u))
			for _, e := range s.a.inputs(u) {
				s.outA[e>>16] = append(s.outA[e>>16], int32(u))
			}
		}
	}
	s.used = resize(s.used, na)
	s.aliveG, s.aliveA = resize(s.aliveG, ng), resize(s.aliveA, na)
	s.left = resize(s.left, n)
	s.downG, s.downA = down(s.downG, s.g, s.ofG), down(s.downA, s.a, s.ofA)
	s.treeA = resize(s.treeA, na)
	for u := na - 1; u >= 0; u-- {
		s.treeA[u] = true
		for _, x := range s.outA[u] {
			s.treeA[u] = s.treeA[u] && s.treeA[x] && len(s.a.inputs(int(x))) == 1
		}
	}
}

func lists(s [][]int32, n int) [][]int32 {
	if cap(s) < n {
		s = append(s[:cap(s)], make([][]int32, n-cap(s))...)
	}
	s = s[:n]
	for i := range s {
		s[i] = s[i][:0]
	}
	return s
}

// down hashes for each vertex what follows from it, and as which input.
func down(h []uint64, n *intGraph, of []int32) []uint64 {
	h = resize(h, len(of))
	for w := len(of) - 1; w >= 0; w-- {
		if of[w] < 0 {
			continue
		}
		h[w] = mix(h[w] + uint64(of[w]) + 1)
		for i, e := range n.inputs(w) {
			as := uint64(e&0xffff) << 17
			if !n.commutes(w) {
				as += uint64(i) + 1
			}
			h[e>>16] += mix(h[w] + as*0x9e3779b97f4a7c15)
		}
	}
	return h
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
