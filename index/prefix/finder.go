package prefix

import (
	"slices"
	"sync"

	"ckptfs/index/graph"
)

var finders = sync.Pool{New: func() any { return new(finder) }}

// finder is one query's working memory.
type finder struct {
	x      *index
	opt    Query
	budget int // nodes of the search that are left
	work   int // what they may look at
	asked  asked

	// How an arch is compared with g where keys do not say what is in common.
	solver solver
	built  bool     // the solver knows g
	stored intGraph // the arch
	trust  bool     // keys say what is in common, twins or not
	verify bool     // trust no key

	// The archs that may win.
	sounded []uint32   // those that sound has considered
	ranks   []uint64   // of lists with bitmaps: how much each puts out, about; below, its place
	bitmaps []filtered // what filter reads
	blocks  []filtered // their posting.any
	tally   tally      // what readLists adds up
	members []uint32   // of one list

	best   found
	phi    []int32 // of best, if it is phiOf
	phiOf  uint32
	doubts []found // possibly better than best; doubtful
	solved []found // of doubtful archs
	cut    []found // where the budget ended a search: length is what is possible
}

// found is a candidate. The zero value is beaten by all.
type found struct {
	arch   uint32
	length int
	model  Model
	exact  bool
	// The search that is to find length has this budget, and looks for no less than one more than floor.
	budget, work, floor int
}

func (a *found) better(b *found) bool {
	return a.length > b.length || a.length == b.length && a.length > 0 && a.model.better(b.model)
}

func (f *finder) find(x *index, g *graph.Graph, opt Query) (Match, bool) {
	f.x, f.opt, f.budget, f.work = x, opt, opt.Budget, defaultWork
	if f.budget == 0 {
		f.budget = DefaultBudget
	}
	f.built, f.trust, f.verify = false, false, false
	f.asked.hash(x, g)
	if len(f.asked.lists) == 0 {
		return Match{}, false
	}
	if f.asked.twins || f.asked.shared {
		if m, ok := f.guess(); ok {
			return m, true
		}
	}
	f.search()
	m, ok := f.answer()
	if ok && m.Length != f.best.length { // two keys collided
		f.verify = true
		f.search()
		m, ok = f.answer()
	}
	return m, ok
}

// guess searches as if twins were no matter, and verifies the winner alone. No arch has more in common with g
// than its keys say, so if this one has as much it is the answer. It may take a quarter of the budget to find
// out.
func (f *finder) guess() (Match, bool) {
	f.trust = true
	f.search()
	f.trust = false
	n, visited := f.best.length, f.solver.visited
	f.best.budget, f.best.work, f.best.floor = f.budget/4, f.work/4, n-1
	m, ok := f.answer()
	f.budget -= f.solver.visited - visited
	f.work -= f.solver.worked
	return m, ok && m.Length == n
}

// newest is how many of a list's latest are weighed before the list is read. What was stored lately is most
// like what is asked for now, and the better the best known, the less has to be read.
const newest = 4

// probed is how many lists are sounded so before one is read.
const probed = 8

// search sets f.best.
func (f *finder) search() {
	f.phiOf = none
	f.best, f.cut, f.solved, f.doubts, f.sounded = found{}, f.cut[:0], f.solved[:0], f.doubts[:0],
		f.sounded[:0]
	for i := range min(probed, len(f.asked.lists)) {
		if f.sound(i) && i == 0 {
			return
		}
	}
	if !f.filter() {
		f.readLists()
	}
	slices.SortFunc(f.doubts, func(a, b found) int {
		if a.better(&b) {
			return -1
		}
		return 1
	})
	for i := range f.doubts {
		if p := &f.doubts[i]; p.better(&f.best) {
			f.consider(p.arch)
		} else {
			break
		}
	}
}

// sound considers the best of list i and the latest. It reports whether, among the archs in the list that are
// in none before it, none is better than the best.
func (f *finder) sound(i int) bool {
	c := f.asked.lists[i].class
	a := f.x.champion(c)
	if a == none {
		return false
	}
	if m, ok := f.model(a); ok && m.Seq == f.x.archs[a].models[0].Seq {
		// Among those none weighs more than rest[i], and no model is better.
		if n, exact := f.consider(a); n >= f.asked.rest[i] && exact {
			return true
		}
	}
	f.members = f.x.classes[c].post.latest(newest, f.members[:0])
	for _, a := range f.members {
		if !slices.Contains(f.sounded, a) {
			f.sounded = append(f.sounded, a)
			f.consider(a)
		}
	}
	return false
}

// weigh takes an arch that weighs at most so much if it is better than the best, or notes that it may be.
// known: it weighs that.
func (f *finder) weigh(a uint32, most int, known bool) {
	p := found{arch: a, length: most, model: f.x.top[a], exact: true}
	if !p.better(&f.best) { // mostly
		return
	}
	var ok bool
	if p.model, ok = f.model(a); !ok || !p.better(&f.best) {
		return
	}
	if !known {
		p.length = f.weight(a)
	}
	switch {
	case !p.better(&f.best):
	case f.doubtful(a):
		f.doubts = append(f.doubts, p)
	default:
		f.best = p
	}
}

// model is the best model of an arch that is not excluded.
func (f *finder) model(a uint32) (Model, bool) {
	for _, m := range f.x.archs[a].models {
		if f.opt.Exclude == nil || !f.opt.Exclude(m.Seq) {
			return m, true
		}
	}
	return Model{}, false
}

// weight is how many keys of g the arch holds.
func (f *finder) weight(a uint32) int {
	n, weights := 0, f.asked.weights.partial
	for _, c := range f.x.archs[a].classes {
		n += int(weights[c])
	}
	return n
}

// doubtful reports whether the arch may have less in common with g than it has keys.
func (f *finder) doubtful(a uint32) bool {
	return !f.trust && (f.verify || f.asked.twins || f.asked.shared && f.x.archs[a].twins)
}

// consider weighs an arch, and takes it if it is better than the best. It returns the length, and whether
// that is exact.
func (f *finder) consider(a uint32) (int, bool) {
	m, ok := f.model(a)
	if !ok {
		return 0, true
	}
	p := found{arch: a, length: f.weight(a), model: m, exact: true}
	if f.doubtful(a) {
		if !p.better(&f.best) {
			return p.length, false
		}
		for i := range f.solved {
			if s := &f.solved[i]; s.arch == a {
				return s.length, s.exact
			}
		}
		if f.budget == 0 || f.work < pace || f.opt.Stop != nil && f.opt.Stop() {
			f.cut = append(f.cut, p)
			return 0, false
		}
		phi := f.align(a, p.length)
		if phi == nil {
			p, phi = f.solve(p)
		}
		f.solved = append(f.solved, p)
		if p.better(&f.best) {
			f.phi, f.phiOf = append(f.phi[:0], phi...), a
		}
	}
	if p.better(&f.best) {
		f.best = p
	}
	return p.length, p.exact
}

// align maps g into an arch by the order of their vertices. nil: that are not n vertices.
func (f *finder) align(a uint32, n int) []int32 {
	f.stored.read(f.x.archs[a].shape)
	f.solver.g, f.solver.a = &f.asked.ints, &f.stored
	if f.solver.align() != n {
		return nil
	}
	return f.solver.phi
}

// solve finds the length of a candidate that align has read and not mapped.
func (f *finder) solve(p found) (found, []int32) {
	before := f.solver.visited
	p.floor = f.best.length
	if p.floor == 0 || p.model.better(f.best.model) {
		p.floor--
	}
	// One architecture does not take all the work, so that others have their turn.
	p.exact = f.run(limits{f.budget, f.work / 2, f.opt.Stop}, p.floor)
	f.budget = max(0, f.budget-(f.solver.visited-before))
	f.work -= f.solver.worked
	if p.length = f.solver.len; p.length == p.floor {
		p.length = 0
	}
	if !p.exact {
		f.cut = append(f.cut, found{arch: p.arch, length: f.solver.ceil, model: p.model})
	}
	return p, f.solver.best
}

// run runs the solver on the arch that align has read.
func (f *finder) run(l limits, floor int) (exact bool) {
	if !f.built {
		f.solver.build(&f.asked.ints)
		f.built = true
	}
	return f.solver.solve(&f.stored, l, floor)
}

// answer reads the pairs off the two graphs.
func (f *finder) answer() (Match, bool) {
	if f.best.length == 0 {
		return Match{}, false
	}
	phi, n := f.phi, f.best.length
	if f.phiOf != f.best.arch {
		if phi = f.align(f.best.arch, n); phi == nil {
			f.run(limits{f.best.budget, f.best.work, f.opt.Stop}, f.best.floor)
			phi, n = f.solver.best, f.solver.len
		}
	}
	m := Match{Model: f.best.model, Length: n, Exact: true, Pairs: make([]Pair, 0, n)}
	for _, c := range f.cut {
		m.Exact = m.Exact && !c.better(&f.best)
	}
	for v, u := range phi {
		if u >= 0 {
			m.Pairs = append(m.Pairs, Pair{v, int(u)})
		}
	}
	return m, true
}
