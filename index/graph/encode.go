package graph

import (
	"encoding/binary"
	"fmt"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/document"
	"ckptfs/formats"
)

const magic = "CKG1"

// Encode is the record of g.
func (g *Graph) Encode() ([]byte, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	e := encoder{strings: map[string]int{}}
	var last string
	for i := range g.Vertices {
		v := &g.Vertices[i]
		last = e.name(last, v.Name)
		e.ref(v.Op)
		e.ref(v.Config)
		comm := 0
		if v.Commutative {
			comm = 1
		}
		e.num(len(v.Inputs)<<1 | comm)
		for _, in := range v.Inputs {
			if in.Output == 0 {
				e.num((i - in.Vertex) << 1)
			} else {
				e.num((i-in.Vertex)<<1 | 1)
				e.num(in.Output)
			}
		}
		e.num(len(v.Params))
		for j := range v.Params {
			p := &v.Params[j]
			last = e.name(last, p.Tensor)
			e.slot(p)
			e.ref(string(p.DType))
			if p.DType != "" {
				e.num(len(p.Shape))
				for _, d := range p.Shape {
					e.num(int(d))
				}
			}
		}
	}
	out := append([]byte(magic), byte(g.Kind))
	out = binary.AppendUvarint(out, uint64(len(e.order)))
	for _, s := range e.order {
		out = appendString(out, s)
	}
	out = binary.AppendUvarint(out, uint64(len(g.Vertices)))
	return append(out, e.p...), nil
}

type encoder struct {
	p       []byte
	strings map[string]int
	order   []string
}

func (e *encoder) num(n int) { e.p = binary.AppendUvarint(e.p, uint64(n)) }

func (e *encoder) ref(s string) { e.num(e.index(s)) }

func (e *encoder) slot(p *Param) {
	n := e.index(p.Slot) << 1
	if p.Attached {
		n |= 1
	}
	e.num(n)
}

func (e *encoder) index(s string) int {
	i, ok := e.strings[s]
	if !ok {
		i = len(e.order)
		e.strings[s] = i
		e.order = append(e.order, s)
	}
	return i
}

func (e *encoder) name(last, s string) string {
	n := shared(last, s)
	e.p = appendString(append(e.p, byte(n)), s[n:])
	return s
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func shared(a, b string) int {
	n := min(len(a), len(b), 255)
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Decode reads what Encode wrote and nothing else. The error wraps cas.ErrCorrupt, or cas.ErrNewer for a
// later version. It takes at most 256 bytes of memory for each of p.
func Decode(p []byte) (*Graph, error) {
	g := &Graph{}
	d := decoder{Reader: document.Reader{P: p, Of: "graph"}, strings: []string{}}
	if err := d.graph(g); err != nil {
		return nil, err
	}
	if err := g.Check(); err != nil {
		return nil, fmt.Errorf("graph: %w: %w", err, cas.ErrCorrupt)
	}
	return g, nil
}

func (d *decoder) graph(g *Graph) error {
	if d.Magic(magic); d.Err != nil {
		return d.Err
	}
	g.Kind = Kind(d.Byte())
	d.table()
	n := d.Count(6)
	if n > MaxVertices {
		d.Fail("%d vertices", n)
		return d.Err
	}
	g.Vertices = slices.Grow(g.Vertices, n)[:n]
	var last string
	for i := range g.Vertices {
		if d.Err != nil {
			return d.Err
		}
		last = d.vertex(&g.Vertices[i], i, last)
	}
	if d.Err == nil && d.used != len(d.strings) {
		d.Fail("%d strings, %d used", len(d.strings), d.used)
	}
	return d.End()
}

// table reads the strings.
func (d *decoder) table() {
	d.strings = make([]string, d.Count(1))
	known := make(map[string]bool, len(d.strings))
	for i := range d.strings {
		s := string(d.Take(d.Count(1)))
		if known[s] {
			d.Fail("string %q twice", s)
		}
		known[s] = true
		d.strings[i] = s
	}
}

func (d *decoder) vertex(v *Vertex, i int, last string) string {
	v.Name = d.name(last)
	last = v.Name
	v.Op, v.Config = d.ref(), d.ref()
	n := d.Num()
	v.Commutative = n&1 != 0
	if n>>1 > int64(len(d.P)) {
		d.Fail("%d inputs in %d bytes", n>>1, len(d.P))
		return ""
	}
	v.Inputs = slices.Grow(v.Inputs, int(n>>1))[:n>>1]
	for j := range v.Inputs {
		from := d.Num()
		if from>>1 > int64(i) {
			d.Fail("input of vertex %d, %d before it", i, from>>1)
			return ""
		}
		in := Input{Vertex: i - int(from>>1)}
		if from&1 != 0 {
			out := d.Num()
			if out == 0 || out > MaxOutput {
				d.Fail("output %d", out)
				return ""
			}
			in.Output = int(out)
		}
		v.Inputs[j] = in
	}
	params := d.Count(4)
	v.Params = slices.Grow(v.Params, params)[:params]
	for j := range v.Params {
		p := &v.Params[j]
		p.Tensor = d.name(last)
		last = p.Tensor
		slot := d.Num()
		p.Slot, p.Attached = d.string(slot>>1), slot&1 != 0
		p.DType = formats.DType(d.ref())
		if p.DType != "" {
			dims := d.Count(1)
			p.Shape = slices.Grow(p.Shape, dims)[:dims]
			for k := range p.Shape {
				p.Shape[k] = d.Num()
			}
		}
		if d.Err != nil {
			return ""
		}
	}
	return last
}

// decoder is a document.Reader with the strings of a record.
type decoder struct {
	document.Reader

	strings []string
	used    int // of strings, in order of first use
}

func (d *decoder) ref() string { return d.string(d.Num()) }

func (d *decoder) string(i int64) string {
	switch {
	case i > int64(d.used) || i >= int64(len(d.strings)):
		d.Fail("string %d of %d", i, len(d.strings))
		return ""
	case i == int64(d.used):
		d.used++
	}
	return d.strings[i]
}

func (d *decoder) name(last string) string {
	n := int(d.Byte())
	rest := d.Take(d.Count(1))
	if d.Err != nil {
		return ""
	}
	if n > len(last) || n < min(len(last), 255) && len(rest) > 0 && rest[0] == last[n] {
		d.Fail("name shares %d bytes of %d", n, len(last))
		return ""
	}
	if len(rest) == 0 {
		return last[:n]
	}
	return last[:n] + string(rest)
}
