package prefix

import (
	"encoding/binary"
	"slices"

	"ckptfs/index/graph"
)

// intGraph is a graph in numbers. Equal labels are equal configurations and equal flags commutative.
type intGraph struct {
	label []uint32 // configuration << 1 | commutative; none for one that nothing stored has
	first []int32  // in[first[v]:first[v+1]] are the inputs of v
	in    []uint32 // vertex << 16 | output
}

const none = ^uint32(0)

func (n *intGraph) reset() {
	n.label, n.in = n.label[:0], n.in[:0]
	n.first = append(n.first[:0], 0)
}

// of sets n to a graph.
func (n *intGraph) of(all *configs, g *graph.Graph) {
	n.reset()
	for i := range g.Vertices {
		v := &g.Vertices[i]
		c, _ := all.find(v, true)
		n.label = append(n.label, label(c, v))
		n.addInputs(v)
	}
}

func (n *intGraph) addInputs(v *graph.Vertex) {
	for _, in := range v.Inputs {
		n.in = append(n.in, uint32(in.Vertex)<<16|uint32(in.Output))
	}
	n.first = append(n.first, int32(len(n.in)))
}

func (n *intGraph) inputs(v int) []uint32 { return n.in[n.first[v]:n.first[v+1]] }

func (n *intGraph) commutes(v int) bool { return n.label[v]&1 != 0 }

// An intGraph is kept as bytes. For each vertex:
//
//	label << 2 | form    number; form 0: no inputs, 1: the vertex before, output 0; 2: inputs follow
//	n                    number, form 2 only: inputs, then for each
//	    back << 1 | far  number: own position - input's position; far: an output that is not 0 follows
//	    output           number
//
// A vertex of a chain takes two or three bytes so.
const (
	formRoot = iota
	formChain
	formAny
)

func (n *intGraph) append(p []byte) []byte {
	for v, l := range n.label {
		in := n.inputs(v)
		switch {
		case len(in) == 0:
			p = binary.AppendUvarint(p, uint64(l)<<2) // formRoot
			continue
		case len(in) == 1 && v > 0 && in[0] == uint32(v-1)<<16:
			p = binary.AppendUvarint(p, uint64(l)<<2|formChain)
			continue
		}
		p = binary.AppendUvarint(p, uint64(l)<<2|formAny)
		p = binary.AppendUvarint(p, uint64(len(in)))
		for _, e := range in {
			back := uint64(v) - uint64(e>>16)
			if out := uint64(e & 0xffff); out == 0 {
				p = binary.AppendUvarint(p, back<<1)
			} else {
				p = binary.AppendUvarint(p, back<<1|1)
				p = binary.AppendUvarint(p, out)
			}
		}
	}
	return p
}

// read sets n to what append wrote.
func (n *intGraph) read(p string) {
	n.reset()
	i := 0
	number := func() uint64 {
		c := p[i]
		i++
		if c < 0x80 {
			return uint64(c)
		}
		x := uint64(c & 0x7f)
		for s := 7; ; s += 7 {
			c := p[i]
			i++
			x |= uint64(c&0x7f) << s
			if c < 0x80 {
				return x
			}
		}
	}
	for v := uint64(0); i < len(p); v++ {
		x := number()
		n.label = append(n.label, uint32(x>>2))
		switch x & 3 {
		case formChain:
			n.in = append(n.in, uint32(v-1)<<16)
		case formAny:
			for range number() {
				back := number()
				e := uint32(v-back>>1) << 16
				if back&1 != 0 {
					e |= uint32(number())
				}
				n.in = append(n.in, e)
			}
		}
		n.first = append(n.first, int32(len(n.in)))
	}
}

// sound reports whether p is an intGraph, of labels of so many configurations: read trusts that.
func sound(p string, configs uint32) bool {
	i := 0
	number := func() uint64 {
		for x, s := uint64(0), 0; i < len(p) && s < 35; s += 7 {
			c := p[i]
			i++
			if x |= uint64(c&0x7f) << s; c < 0x80 {
				return x
			}
		}
		i = len(p) + 1
		return 0
	}
	v := uint64(0)
	for ; i < len(p); v++ {
		x := number()
		if x>>3 >= uint64(configs) || x&3 > formAny || x&3 == formChain && v == 0 {
			return false
		}
		if x&3 != formAny {
			continue
		}
		for n := number(); n > 0 && i <= len(p); n-- {
			back := number()
			if back>>1 == 0 || back>>1 > v || back&1 != 0 && number() > 0xffff {
				return false
			}
		}
	}
	return i == len(p) && v <= graph.MaxVertices
}

// trees gives each vertex the number of its tree: two vertices, of one graph or of two, have equal numbers
// exactly if they have equal labels and inputs of equal trees (in any order where they commute). It is a key
// without hashing.
type trees struct {
	// of has the trees of the vertices of the graph it was built for; -1 where the label is none, or an
	// input's.
	of    []int32
	first []int32  // keys[first[t]:first[t+1]] are the inputs of tree t
	keys  []uint32 // tree << 16 | output
	label []uint32
	slots []int32 // open addressing: tree + 1, 0 is free
	key   []uint32
}

// build numbers the vertices of g.
func (t *trees) build(g *intGraph) {
	n := len(g.label)
	size := 16
	for size < 2*n {
		size *= 2
	}
	if cap(t.slots) < size {
		t.slots = make([]int32, size)
	}
	t.slots = t.slots[:size]
	clear(t.slots)
	t.of, t.keys, t.label = t.of[:0], t.keys[:0], t.label[:0]
	t.first = append(t.first[:0], 0)
	for v := range n {
		if g.label[v] == none || !t.keyOf(g, v, t.of) {
			t.of = append(t.of, -1)
			continue
		}
		i, found := t.find(g.label[v])
		if !found {
			t.label = append(t.label, g.label[v])
			t.keys = append(t.keys, t.key...)
			t.first = append(t.first, int32(len(t.keys)))
			t.slots[i] = int32(len(t.label))
		}
		t.of = append(t.of, t.slots[i]-1)
	}
}

// match appends to of the trees of a's vertices, -1 for one that is in no tree of the graph built for.
func (t *trees) match(a *intGraph, of []int32) []int32 {
	for v, l := range a.label {
		tree := int32(-1)
		if t.keyOf(a, v, of) {
			if i, found := t.find(l); found {
				tree = t.slots[i] - 1
			}
		}
		of = append(of, tree)
	}
	return of
}

// keyOf sets t.key to the inputs of v. False when one of them has no tree.
func (t *trees) keyOf(g *intGraph, v int, of []int32) bool {
	t.key = t.key[:0]
	for _, e := range g.inputs(v) {
		tree := of[e>>16]
		if tree < 0 {
			return false
		}
		t.key = append(t.key, uint32(tree)<<16|e&0xffff)
	}
	if len(t.key) > 1 && g.commutes(v) {
		slices.Sort(t.key)
	}
	return true
}

// find is the slot of the tree of label and t.key, or of where it would be.
func (t *trees) find(label uint32) (slot int, found bool) {
	h := (uint64(label) + 1) * 0x9e3779b97f4a7c15
	for _, k := range t.key {
		h = (h ^ h>>29 ^ uint64(k)) * 0xbf58476d1ce4e5b9
	}
	h ^= h >> 32
	mask := len(t.slots) - 1
	for i := int(h) & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s == 0 {
			return i, false
		}
		if t.label[s-1] == label && slices.Equal(t.keys[t.first[s-1]:t.first[s]], t.key) {
			return i, true
		}
	}
}
