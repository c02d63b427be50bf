package prefix

import (
	"slices"

	"ckptfs/index/graph"
)

// hash finds what of g is known, and where.
func (f *finder) hash(g *graph.Graph) {
	x := f.x
	f.ints.reset()
	f.trees, f.at = f.trees[:0], f.at[:0]
	f.seen.reset(len(g.Vertices))
	f.weights.reset(len(g.Vertices))
	f.twins, f.shared = false, false
	f.states = f.states[:0]
	f.folded, f.lacking = f.folded[:0], f.lacking[:0]
	for i := range g.Vertices {
		v := &g.Vertices[i]
		f.ints.addInputs(v)
		l, t, at, state := none, key(0), nowhere, f.state(v)
		if state != unknown {
			c, ok := x.configs.find(v, false)
			if !ok {
				state = unknown
			} else {
				l = label(c, v)
				t = x.tree(l, f.ints.inputs(i), f.trees)
				at, state = f.look(i, t, state)
			}
		}
		if state == unknown {
			l = none
		}
		f.ints.label = append(f.ints.label, l)
		f.trees = append(f.trees, t)
		f.at = append(f.at, at)
		f.states = append(f.states, state)
	}
	f.lists = f.lists[:0]
	for _, e := range f.weights.entries {
		f.lists = append(f.lists, list{uint32(e.key), e.n})
	}
	for _, c := range f.folded {
		a := x.classes[c].post.list[0]
		f.ring.read(x, a)
		f.seen.reset(len(f.ring.keys))
		for _, k := range f.ring.keys {
			f.seen.add(k, 1)
		}
		n := 0
		for _, k := range f.lacking {
			n += f.seen.get(k)
		}
		f.weights.add(uint64(c), n)
		f.lists = append(f.lists, list{c, n})
		f.shared = f.shared || x.archs[a].twins
	}
	slices.SortFunc(f.lists,
		func(a, b list) int { return x.classes[a.class].post.n - x.classes[b.class].post.n })
	f.rest = resize(f.rest, len(f.lists)+1)
	for i := len(f.lists) - 1; i >= 0; i-- {
		f.rest[i] = f.rest[i+1] + f.lists[i].weight
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
func (f *finder) state(v *graph.Vertex) uint8 {
	s := uint8(known)
	for _, in := range v.Inputs {
		s = min(s, f.states[in.Vertex])
	}
	return s
}

// look finds the tree of vertex v of g, and weighs its class. What follows from a tree in a folded class is
// in that class or nowhere: it is weighed when all are known.
func (f *finder) look(v int, t key, state uint8) (spot, uint8) {
	if state == perhaps {
		k, _ := f.seen.again(t, v)
		f.twins = f.twins || k > 0
		f.lacking = append(f.lacking, f.x.secret.again(t, k))
		return nowhere, perhaps
	}
	at := f.x.locate(t, f.ints.inputs(v), f.at)
	if at.class == none {
		return at, unknown
	}
	if k, _ := f.seen.again(t, v); k == 0 {
		f.count(at.class, t)
	} else {
		f.twins = true
		t = f.x.secret.again(t, k)
		if s := f.x.dict.find(t); s.class != none {
			f.count(s.class, t)
		}
	}
	c := &f.x.classes[at.class]
	if c.folded {
		return at, perhaps
	}
	f.shared = f.shared || c.line[at.pos]&twins != 0
	return at, known
}

// count adds a key to the weight of its class, at once unless that is folded.
func (f *finder) count(c uint32, k key) {
	if !f.x.classes[c].folded {
		f.weights.add(uint64(c), 1)
		return
	}
	f.lacking = append(f.lacking, k)
	if !slices.Contains(f.folded, c) {
		f.folded = append(f.folded, c)
	}
}
