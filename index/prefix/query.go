package prefix

import (
	"sync"

	"ckptfs/index/graph"
)

// DefaultBudget bounds the search among twins: nodes of the search in one query, about a microsecond each for
// a hundred layers.
const DefaultBudget = 2_000

// defaultWork bounds what the nodes of one query look at, in vertices and inputs: about half a second. Only
// graphs of tens of thousands of vertices come to it.
const defaultWork = 1 << 27

// Query says what to leave out and how long to search.
type Query struct {
	Budget  int                   // nodes of the search among twins; 0: DefaultBudget
	Stop    func() bool           // asked now and then; once true the best so far is the answer; nil: never
	Exclude func(seq uint64) bool // nil: nothing; called under the catalogue's lock
	Pin     bool                  // pin the model found
}

// Match is the answer to a query.
type Match struct {
	Model  Model
	Length int    // vertices in common
	Pairs  []Pair // which they are, ascending by New
	Exact  bool   // no live model wins over this one; false: the search ended before that was sure

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
