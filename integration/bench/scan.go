package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"ckptfs/index/graph"
)

// compact is a graph in numbers of 16 bits, the way EvoStore's providers keep it ("compact architecture graph"):
//
//	n                 vertices
//	label[n]          of the vertex: equal configurations have equal labels
//	from[n+1]         in[from[v]:from[v+1]] are the inputs of v, in order
//	to[n+1]           out[to[v]:to[v+1]] are the consumers of v, one for each edge
//	in[…], out[…]
type compact []uint16

// labels numbers configurations. The lowest bit says that the inputs commute.
type labels map[string]uint16

func (l labels) of(v *graph.Vertex) uint16 {
	key := fmt.Sprintf("%q %q %v", v.Op, v.Config, v.Params)
	n, ok := l[key]
	if !ok {
		n = uint16(len(l)) << 1
		l[key] = n
	}
	if v.Commutative {
		n |= 1
	}
	return n
}

// compact is the graph in that form; its inputs must all be outputs 0.
func (l labels) compact(g *graph.Graph) compact {
	n := len(g.Vertices)
	out := make([][]uint16, n)
	c := compact{uint16(n)}
	for i := range g.Vertices {
		c = append(c, l.of(&g.Vertices[i]))
	}
	var in []uint16
	for i := range g.Vertices {
		c = append(c, uint16(len(in)))
		for _, e := range g.Vertices[i].Inputs {
			in = append(in, uint16(e.Vertex))
			out[e.Vertex] = append(out[e.Vertex], uint16(i))
		}
	}
	c = append(c, uint16(len(in)))
	edges := 0
	for _, o := range out {
		c = append(c, uint16(edges))
		edges += len(o)
	}
	c = append(c, uint16(edges))
	c = append(c, in...)
	for _, o := range out {
		c = append(c, o...)
	}
	return c
}

func (c compact) vertices() int         { return int(c[0]) }
func (c compact) label(v uint16) uint16 { return c[1+v] }
func (c compact) in(v uint16) []uint16 {
	n := uint16(c.vertices())
	edges := c[3+3*n:]
	return edges[c[1+n+v]:c[2+n+v]]
}
func (c compact) out(v uint16) []uint16 {
	n := uint16(c.vertices())
	edges := c[3+3*n+c[1+2*n]:]
	return edges[c[2+2*n+v]:c[3+2*n+v]]
}

// bytes are those of c; compactOf is the graph of such bytes. Both share memory.
func (c compact) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), 2*len(c)) }

func compactOf(p []byte) compact {
	if uintptr(unsafe.Pointer(&p[0]))%2 != 0 {
		c := make(compact, len(p)/2)
		for i := range c {
			c[i] = binary.LittleEndian.Uint16(p[2*i:])
		}
		return c
	}
	return unsafe.Slice((*uint16)(unsafe.Pointer(&p[0])), len(p)/2)
}

// prefixer is the working memory of the paper's Algorithm 1 for one new graph.
type prefixer struct {
	g        compact
	visits   []uint16 // by g's vertex: inputs that are in the prefix
	phi      []uint16 // g's vertex → the stored one's, plus 1
	used     []bool   // by the stored graph's vertex
	frontier []uint16 // g's vertices in the prefix, in the order in which they were found
}

func (p *prefixer) ask(g compact) {
	p.g = g
	p.visits, p.phi = make([]uint16, g.vertices()), make([]uint16, g.vertices())
	p.frontier = p.frontier[:0]
	clear(p.used)
}

// length is that of the longest common prefix with a stored graph. Among vertices that are equal and have the
// same inputs it takes the first: where there are such it is a lower bound.
func (p *prefixer) length(a compact) int {
	for _, v := range p.frontier {
		p.used[p.phi[v]-1] = false
	}
	clear(p.visits)
	clear(p.phi)
	p.frontier = p.frontier[:0]
	if n := a.vertices(); len(p.used) < n {
		p.used = make([]bool, n)
	}
	for v := range uint16(p.g.vertices()) {
		if len(p.g.in(v)) > 0 {
			continue
		}
		for u := range uint16(a.vertices()) {
			if !p.used[u] && a.label(u) == p.g.label(v) && len(a.in(u)) == 0 {
				p.take(v, u)
				break
			}
		}
	}
	for i := 0; i < len(p.frontier); i++ {
		v := p.frontier[i]
		for _, w := range p.g.out(v) {
			if p.visits[w]++; int(p.visits[w]) < len(p.g.in(w)) {
				continue
			}
			for _, x := range a.out(p.phi[v] - 1) {
				if a.label(x) == p.g.label(w) && !p.used[x] && p.fits(w, a, x) {
					p.take(w, x)
					break
				}
			}
		}
	}
	return len(p.frontier)
}

func (p *prefixer) take(v, u uint16) {
	p.phi[v] = u + 1
	p.used[u] = true
	p.frontier = append(p.frontier, v)
}

// fits reports whether x's inputs are the counterparts of w's.
func (p *prefixer) fits(w uint16, a compact, x uint16) bool {
	in, want := p.g.in(w), a.in(x)
	if len(in) != len(want) {
		return false
	}
	if p.g.label(w)&1 == 0 {
		for i, v := range in {
			if p.phi[v] != want[i]+1 {
				return false
			}
		}
		return true
	}
	for _, u := range want { // as bags
		n := 0
		for i, v := range in {
			if p.phi[v] == u+1 {
				n++
			}
			if want[i] == u {
				n--
			}
		}
		if n != 0 {
			return false
		}
	}
	return true
}

// answer is the best model so far.
type answer struct {
	length  int
	quality float64
	seq     uint64
}

func (a *answer) offer(length int, quality float64, seq uint64) {
	if length > a.length || length == a.length && length > 0 &&
		(quality > a.quality || quality == a.quality && seq > a.seq) {
		*a = answer{length, quality, seq}
	}
}

// scanned is what a plain scan holds of a model.
type scanned struct {
	quality float64
	graph   compact
}

// scan asks every stored model.
func (p *prefixer) scan(stored []scanned, g compact) (best answer) {
	p.ask(g)
	for seq := range stored {
		s := &stored[seq]
		best.offer(p.length(s.graph), s.quality, uint64(seq))
	}
	return best
}

// value is a model as Redis holds it: the quality, and the graph.
func (s *scanned) value() []byte {
	return append(binary.LittleEndian.AppendUint64(nil, math.Float64bits(s.quality)), s.graph.bytes()...)
}
