package recipes

import "ckptfs/cas/recipe"

// run is elements of the bases.
type run struct{ first, n int }

// appendRun appends a run, or makes the last one longer.
func appendRun(runs []run, first, n int) []run {
	if k := len(runs) - 1; k >= 0 && runs[k].first+runs[k].n == first {
		runs[k].n += n
		return runs
	}
	return append(runs, run{first, n})
}

// groups finds what repeats in runs: a few stretches, each of which is moved on by a step of its own. ok is
// false when that is more than a program may have.
func groups(runs []run) (all []recipe.Group, ok bool) {
	for len(runs) > 0 {
		period, times := 1, 1
		for p := 1; p <= min(recipe.MaxStretches, len(runs)); p++ {
			if n := repeats(runs, p); n > 1 && n*p > period*times {
				period, times = p, n
			}
		}
		g := recipe.Group{Repeat: times}
		for q, r := range runs[:period] {
			s := recipe.Stretch{First: r.first, Len: r.n}
			if times > 1 {
				s.Step = runs[period+q].first - r.first
			}
			g.Stretches = append(g.Stretches, s)
		}
		if all = append(all, g); len(all) > recipe.MaxGroups {
			return nil, false
		}
		runs = runs[period*times:]
	}
	return all, true
}

// repeats is how often the first p runs come, each moved on by a step of its own.
func repeats(runs []run, p int) int {
	n := 1
	for ; (n+1)*p <= len(runs); n++ {
		for q := range p {
			first, before, now := runs[q], runs[(n-1)*p+q], runs[n*p+q]
			if now.n != first.n || now.first-before.first != runs[p+q].first-first.first {
				return n
			}
		}
	}
	return n
}
