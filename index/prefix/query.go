package prefix

import (
	"slices"
	"sync"

	"ckptfs/index/graph"
)

// DefaultBudget bounds the search among twins: nodes of the search in one query, about a microsecond each for a
// hundred layers.
const DefaultBudget = 2_000

// Query says what to leave out and how long to search.
type Query struct {
	Budget  int                   // nodes of the search among twins; 0: DefaultBudget
	Exclude func(seq uint64) bool // nil: nothing; called under the catalogue's lock
	Pin     bool                  // pin the model found
}

// Match is the answer to a query.
type Match struct {
	Model  Model
	Length int    // vertices in common
	Pairs  []Pair // which they are, ascending by New
	Exact  bool   // no live model wins over this one; false: the budget ended before that was sure

	unpin func()
}

// Pair is a vertex of the new graph and its counterpart in the stored one.
type Pair struct{ New, Stored int }

// Release drops the pin. A second call does nothing.
func (m *Match) Release() {
	if m.unpin != nil {
		m.unpin()
		m.unpin = nil
	}
}

// Find answers a query. False when no live model of g's kind has a root in common with g.
func (c *Catalogue) Find(g *graph.Graph, opt Query) (Match, bool) {
	if g.Check() != nil {
		return Match{}, false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	x := c.kinds[g.Kind]
	if x == nil {
		return Match{}, false
	}
	f := finders.Get().(*finder)
	defer finders.Put(f)
	m, ok := f.find(x, g, opt)
	f.x, f.opt = nil, Query{}
	if ok && opt.Pin {
		seq := m.Model.Seq
		c.pin(seq, 1)
		m.unpin = sync.OnceFunc(func() { c.pin(seq, -1) })
	}
	return m, ok
}

var finders = sync.Pool{New: func() any { return new(finder) }}

// finder is one query's working memory.
type finder struct {
	x      *index
	opt    Query
	budget int
	solver solver
	built  bool // the solver knows g

	net    net
	trees  []key
	at     []spot
	states []uint8
	stored net

	folded  []uint32 // folded classes of which g has a key
	lacking []key    // of g that may be in one
	ring    keyring

	seen    weights // tree → how often in g
	weights weights // class → keys of g in it
	lists   []list
	rest    []int // weight of lists[i:]
	twins   bool  // some tree that is known occurs twice in g
	shared  bool  // some tree that is known occurs twice in an architecture
	verify  bool  // trust no key

	partial []uint16 // by arch: weight of the lists read
	touched []uint32
	left    []uint32
	members []uint32
	doubts  []found
	sounded []uint32 // archs that sound has considered
	bitmaps []sifted

	best   found
	solved []found // of doubtful archs
	cut    []found // where the budget ended a search: length is what is possible
}

type list struct {
	class  uint32
	weight int
}

// found is a candidate. The zero value is beaten by all.
type found struct {
	arch   uint32
	length int
	model  Model
	exact  bool
	// The search that found length had this budget, and looked for no less than one more than floor.
	budget, floor int
}

func (a *found) better(b *found) bool {
	return a.length > b.length || a.length == b.length && a.length > 0 && a.model.better(b.model)
}

func (f *finder) find(x *index, g *graph.Graph, opt Query) (Match, bool) {
	f.x, f.opt, f.budget = x, opt, opt.Budget
	if f.budget == 0 {
		f.budget = DefaultBudget
	}
	f.built, f.verify = false, false
	f.hash(g)
	if len(f.lists) == 0 {
		return Match{}, false
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

// newest is how many of a list's latest are weighed before the list is read. What was stored lately is most like what is
// asked for now, and the better the best known, the less has to be read.
const newest = 4

// probed is how many lists are sounded so before one is read.
const probed = 8

// search sets f.best.
func (f *finder) search() {
	f.best, f.cut, f.solved, f.doubts, f.sounded = found{}, f.cut[:0], f.solved[:0], f.doubts[:0], f.sounded[:0]
	for i := range min(probed, len(f.lists)) {
		if f.sound(i) && i == 0 {
			return
		}
	}
	if !f.sift() {
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

// sound considers the best of list i and the latest. It reports whether, among the archs in the list that are in none before it, none is better than
// the best.
func (f *finder) sound(i int) bool {
	c := f.lists[i].class
	a := f.x.champion(c)
	if a == none {
		return false
	}
	if m, ok := f.model(a); ok && m.Seq == f.x.archs[a].models[0].Seq {
		// Among those none weighs more than rest[i], and no model is better.
		if n, exact := f.consider(a); n >= f.rest[i] && exact {
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

// readLists reads the posting lists, shortest first, adding up weights.
func (f *finder) readLists() {
	if n := len(f.x.archs); cap(f.partial) < n {
		f.partial = make([]uint16, n+n/4)
	}
	f.partial = f.partial[:cap(f.partial)]
	f.touched = f.touched[:0]
	i := 0
	for ; i < len(f.lists) && f.rest[i] >= f.best.length; i++ {
		if f.x.champion(f.lists[i].class) == none {
			continue
		}
		if f.sound(i) || f.rest[i] < f.best.length {
			break
		}
		f.read(i)
	}
	// No other arch can win now. Reading on narrows those that can; weighing one costs as much as reading weighing entries.
	left := f.possible(f.touched, f.rest[i])
	for ; i < len(f.lists) && len(left)*weighing > f.x.classes[f.lists[i].class].post.n; i++ {
		w := uint16(f.lists[i].weight)
		f.members = f.x.classes[f.lists[i].class].post.all(f.members[:0])
		for _, a := range f.members {
			if p := f.partial[a]; p != 0 {
				f.partial[a] = p + w
			}
		}
		left = f.possible(left, f.rest[i+1])
	}
	for _, a := range left {
		if n := int(f.partial[a]); n+f.rest[i] >= f.best.length {
			f.weigh(a, n, f.rest[i] == 0)
		}
	}
	for _, a := range f.touched {
		f.partial[a] = 0
	}
}

const weighing = 40

// weigh takes an arch if it is better than the best, or notes that it may be. known: it weighs n; else that is found out.
func (f *finder) weigh(a uint32, n int, known bool) {
	m, ok := f.model(a)
	if !ok {
		return
	}
	if !known {
		n = f.weight(a)
	}
	p := found{arch: a, length: n, model: m, exact: true}
	switch {
	case !p.better(&f.best):
	case f.doubtful(a):
		f.doubts = append(f.doubts, p)
	default:
		f.best = p
	}
}

// possible keeps of archs those that weigh as much as the best, or could with what is not read. It writes to f.left.
func (f *finder) possible(archs []uint32, rest int) []uint32 {
	f.left = resizeTo(f.left, len(archs))
	n := 0
	for _, a := range archs {
		f.left[n] = a
		if int(f.partial[a])+rest >= f.best.length {
			n++
		}
	}
	return f.left[:n]
}

// resizeTo is a slice of n items, whatever they are.
func resizeTo[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

// read adds list i to the partial weights, and considers the arch that then weighs most.
func (f *finder) read(i int) {
	w := uint16(f.lists[i].weight)
	most, top := uint16(0), none
	f.members = f.x.classes[f.lists[i].class].post.all(f.members[:0])
	for _, a := range f.members {
		p := f.partial[a]
		if p == 0 {
			f.touched = append(f.touched, a)
		}
		p += w
		f.partial[a] = p
		if p > most {
			most, top = p, a
		}
	}
	if int(most)+f.rest[i+1] > f.best.length {
		f.consider(top)
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
	n := 0
	for _, c := range f.x.archs[a].classes {
		n += f.weights.get(uint64(c))
	}
	return n
}

// doubtful reports whether the arch may have less in common with g than it has keys.
func (f *finder) doubtful(a uint32) bool {
	return f.verify || f.twins || f.shared && f.x.archs[a].twins
}

// consider weighs an arch, and takes it if it is better than the best. It returns the length, and whether that is exact.
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
		if f.budget == 0 {
			f.cut = append(f.cut, p)
			return 0, false
		}
		f.load(a)
		before := f.solver.visited
		p.budget, p.floor = f.budget, f.best.length
		if p.floor == 0 || p.model.better(f.best.model) {
			p.floor--
		}
		p.exact = f.solver.solve(&f.stored, p.budget, p.floor)
		f.budget = max(0, f.budget-(f.solver.visited-before))
		if p.length = f.solver.len; p.length == p.floor {
			p.length = 0
		}
		f.solved = append(f.solved, p)
		if !p.exact {
			f.cut = append(f.cut, found{arch: a, length: f.solver.ceil, model: m})
		}
	}
	if p.better(&f.best) {
		f.best = p
	}
	return p.length, p.exact
}

// load readies the solver for an arch.
func (f *finder) load(a uint32) {
	if !f.built {
		f.solver.g = &f.net
		f.solver.build(&f.net)
		f.built = true
	}
	f.stored.read(f.x.archs[a].shape)
}

// answer reads the pairs off the two graphs.
func (f *finder) answer() (Match, bool) {
	if f.best.length == 0 {
		return Match{}, false
	}
	f.load(f.best.arch)
	f.solver.solve(&f.stored, f.best.budget, f.best.floor)
	m := Match{Model: f.best.model, Length: f.solver.len, Exact: true, Pairs: make([]Pair, 0, f.solver.len)}
	for _, c := range f.cut {
		m.Exact = m.Exact && !c.better(&f.best)
	}
	for v, u := range f.solver.best {
		if u >= 0 {
			m.Pairs = append(m.Pairs, Pair{v, int(u)})
		}
	}
	return m, true
}
