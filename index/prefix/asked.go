package prefix

import (
	"cmp"
	"slices"

	"ckptfs/index/graph"
)

// asked is the graph g of a query, and what of it an index knows.
type asked struct {
	ints   intGraph
	trees  []key   // by vertex
	at     []spot  // by vertex: where its tree is
	states []uint8 // by vertex
	twins  bool    // some tree that is known occurs twice in g
	shared bool    // some tree that is known occurs twice in an architecture

	seen    weights // tree → how often in g
	weights tally   // class → keys of g in it
	lists   []list  // the lists of these classes, shortest first
	rest    []int   // weight of lists[i:]

	folded  []uint32 // folded classes of which g has a key
	lacking []key    // of g that may be in one
	ring    keyring  // of an architecture in one
}

// hash finds what of g is known to x, and where.
func (q *asked) hash(x *index, g *graph.Graph) {
	q.ints.reset()
	q.trees, q.at = q.trees[:0], q.at[:0]
	q.seen.reset(len(g.Vertices))
	q.weights.reset(len(x.classes))
	q.twins, q.shared = false, false
	q.states = q.states[:0]
	q.folded, q.lacking = q.folded[:0], q.lacking[:0]
	for i := range g.Vertices {
		v := &g.Vertices[i]
		q.ints.addInputs(v)
		l, t, at, state := none, key(0), nowhere, q.state(v)
		if state != unknown {
			c, ok := x.configs.find(v, false)
			if !ok {
				state = unknown
			} else {
				l = label(c, v)
				t = x.tree(l, q.ints.inputs(i), q.trees)
				at, state = q.look(x, i, t, state)
			}
		}
		if state == unknown {
			l = none
		}
		q.ints.label = append(q.ints.label, l)
		q.trees = append(q.trees, t)
		q.at = append(q.at, at)
		q.states = append(q.states, state)
	}
	q.lists = q.lists[:0]
	for _, c := range q.weights.touched {
		q.lists = append(q.lists, list{c, uint32(x.classes[c].post.n), int(q.weights.partial[c])})
	}
	for _, c := range q.folded {
		a := x.classes[c].post.list[0]
		q.ring.read(x, a)
		q.seen.reset(len(q.ring.keys))
		for _, k := range q.ring.keys {
			q.seen.add(k, 1)
		}
		n := 0
		for _, k := range q.lacking {
			n += q.seen.get(k)
		}
		q.weights.addOne(c, uint16(n))
		q.lists = append(q.lists, list{c, 1, n})
		q.shared = q.shared || x.archs[a].twins
	}
	slices.SortFunc(q.lists, func(a, b list) int { return cmp.Compare(a.n, b.n) })
	q.rest = resize(q.rest, len(q.lists)+1)
	for i := len(q.lists) - 1; i >= 0; i-- {
		q.rest[i] = q.rest[i+1] + q.lists[i].weight
	}
}

// What is known of a vertex of g: its tree is in no arch; it follows from one in a folded class; it is in a
// line.
const (
	unknown = iota
	perhaps
	known
)

// state is what is known of v by its inputs.
func (q *asked) state(v *graph.Vertex) uint8 {
	s := uint8(known)
	for _, in := range v.Inputs {
		s = min(s, q.states[in.Vertex])
	}
	return s
}

// look finds the tree of vertex v of g, and weighs its class. What follows from a tree in a folded class is
// in that class or nowhere: it is weighed when all are known.
func (q *asked) look(x *index, v int, t key, state uint8) (spot, uint8) {
	if state == perhaps {
		k, _ := q.seen.again(t, v)
		q.twins = q.twins || k > 0
		q.lacking = append(q.lacking, x.secret.again(t, k))
		return nowhere, perhaps
	}
	at := x.locate(t, q.ints.inputs(v), q.at)
	if at.class == none {
		return at, unknown
	}
	if k, _ := q.seen.again(t, v); k == 0 {
		q.count(x, at.class, t)
	} else {
		q.twins = true
		t = x.secret.again(t, k)
		if s := x.dict.find(t); s.class != none {
			q.count(x, s.class, t)
		}
	}
	c := &x.classes[at.class]
	if c.folded {
		return at, perhaps
	}
	q.shared = q.shared || c.line[at.pos]&twins != 0
	return at, known
}

// count adds a key to the weight of its class, at once unless that is folded.
func (q *asked) count(x *index, c uint32, k key) {
	if !x.classes[c].folded {
		q.weights.addOne(c, 1)
		return
	}
	q.lacking = append(q.lacking, k)
	if !slices.Contains(q.folded, c) {
		q.folded = append(q.folded, c)
	}
}
