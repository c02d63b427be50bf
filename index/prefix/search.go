package prefix

import "slices"

// search maps the vertices from v on, where mapped are. False when the budget ended it.
//
// Where a vertex has one counterpart left and no other vertex could want that, mapping it is right: it takes
// nothing from anyone. So there are choices only among twins: vertices of equal configuration whose inputs
// are the same vertices.
func (s *solver) search(v, mapped int) bool {
	from := v
	defer func() {
		for ; from < v; from++ {
			if u := s.phi[from]; u >= 0 {
				s.used[u] = false
			}
		}
	}()
	free, rivals := s.free, s.rivals // not used below the next search
	for ; v < len(s.ofG); v++ {
		s.phi[v] = -1
		t := s.ofG[v]
		if t < 0 || !s.ready(v) {
			continue
		}
		free = free[:0]
		each := 1 + len(s.g.inputs(v))
		if !s.spend((len(s.group[t]) + len(s.twins[t])) * each) {
			return false
		}
		for _, u := range s.group[t] {
			if !s.used[u] && s.fits(v, int(u)) {
				free = append(free, u)
			}
		}
		if len(free) == 0 {
			continue
		}
		rivals = rivals[:0]
		for _, w := range s.twins[t] {
			if int(w) > v && s.strictTwins(v, int(w)) {
				rivals = append(rivals, w)
			}
		}
		if len(rivals) > 0 || len(free) > 1 && len(s.outG[v]) > 0 {
			break
		}
		s.phi[v] = free[0]
		s.used[free[0]] = true
		mapped++
	}
	s.free, s.rivals = free, rivals
	s.spend(v - from)
	if v == len(s.ofG) {
		if mapped > s.len {
			s.len = mapped
			s.best = append(s.best[:0], s.phi...)
		}
		return true
	}
	if s.len >= 0 && s.turned && mapped+s.bound(v) <= s.len {
		return s.work >= 0
	}
	order := s.order(v, free, rivals)
	if s.work < 0 {
		return false
	}
	for _, u := range order {
		if s.len == s.ceil {
			return true
		}
		s.visited++
		if s.budget--; s.budget < 0 && s.len >= 0 {
			return false
		}
		s.phi[v] = u
		if u < 0 {
			s.turned = true
			if !s.search(v+1, mapped) {
				return false
			}
			continue
		}
		s.used[u] = true
		done := s.search(v+1, mapped+1)
		s.turned = true
		s.used[u] = false
		if !done {
			s.phi[v] = -1
			return false
		}
	}
	s.phi[v] = -1
	return true
}

// strictTwins reports whether two vertices of g of one tree have the same inputs.
func (s *solver) strictTwins(v, w int) bool {
	a, b := s.g.inputs(v), s.g.inputs(w)
	if len(a) > 1 && s.g.commutes(v) {
		return sameBag(len(a), func(i int) uint32 { return a[i] }, b)
	}
	return slices.Equal(a, b)
}

func sameBag(n int, a func(int) uint32, b []uint32) bool {
	if n == 2 {
		x, y := a(0), a(1)
		return x == b[0] && y == b[1] || x == b[1] && y == b[0]
	}
	x := make([]uint32, n)
	for i := range x {
		x[i] = a(i)
	}
	y := slices.Clone(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// order sorts the free counterparts of v: the most alike first, and those last that a rival would rather
// have. Twins from which equal trees grow are interchangeable: one is enough. With more rivals than
// counterparts v may go without, -1, and does so before it takes one that a rival would rather have.
func (s *solver) order(v int, free, rivals []int32) []int32 {
	all := s.scored[:0]
next:
	for i, u := range free {
		if s.treeA[u] {
			for k, w := range free[:i] {
				if s.treeA[w] && s.downA[w] == s.downA[u] {
					s.spend(k)
					continue next
				}
			}
			if !s.spend(i) {
				return nil
			}
		}
		score, fuel := same, 64
		if s.downG[v] != s.downA[u] {
			score = s.alike(int32(v), u, &fuel)
			if !s.spend(len(rivals)) {
				return nil
			}
			for _, w := range rivals {
				if s.downG[w] == s.downA[u] {
					score -= same
					break
				}
			}
		}
		all = append(all, scored{u, score})
	}
	if len(rivals) >= len(free) {
		all = append(all, scored{-1, -1})
	}
	s.scored = all
	if !s.spend(kept * len(all)) {
		return nil
	}
	slices.SortStableFunc(all, func(a, b scored) int { return b.score - a.score })
	out := make([]int32, len(all))
	for i := range all {
		out[i] = all[i].u
	}
	return out
}

// scored is a counterpart, and how alike it is.
type scored struct {
	u     int32
	score int
}

// kept is what a counterpart costs that is kept while the search is below: so memory is bounded as work is.
const kept = 16

// same is more than alike gives where there is a difference.
const same = 1 << 16

// alike guesses how much of what follows from v also follows from u.
func (s *solver) alike(v, u int32, fuel *int) int {
	score := 0
	for _, w := range s.outG[v] {
		looked := 0
		for _, x := range s.outA[u] {
			looked++
			if s.ofG[w] == s.ofA[x] {
				score++
				if s.downG[w] == s.downA[x] {
					score += 4
				} else if *fuel--; *fuel > 0 {
					score += s.alike(w, x, fuel)
				}
				break
			}
		}
		if !s.spend(looked) {
			return score
		}
	}
	return score
}

// bound is how many of the vertices from v on can still be mapped at most.
func (s *solver) bound(v int) int {
	if !s.spend(len(s.ofG) + len(s.ofA) + len(s.left) + len(s.g.in) + len(s.a.in)) {
		return 0
	}
	clear(s.left)
	for w, t := range s.ofG {
		if w < v {
			s.aliveG[w] = s.phi[w] >= 0
			continue
		}
		alive := t >= 0
		for _, e := range s.g.inputs(w) {
			alive = alive && s.aliveG[e>>16]
		}
		s.aliveG[w] = alive
		if alive {
			s.left[t]++
		}
	}
	n := 0
	for u, t := range s.ofA {
		if s.used[u] {
			s.aliveA[u] = true
			continue
		}
		alive := t >= 0
		for _, e := range s.a.inputs(u) {
			alive = alive && s.aliveA[e>>16]
		}
		s.aliveA[u] = alive
		if alive && s.left[t] > 0 {
			s.left[t]--
			n++
		}
	}
	return n
}
