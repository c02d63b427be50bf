package graph

import (
	"bytes"
	"encoding/binary"
	"slices"

	"ckptfs/cas"
)

// ID is a BLAKE3-128.
type ID [16]byte

// Hasher computes the identities of vertices. The zero value is ready; one serves many graphs, one after the other, and
// keeps its memory.
type Hasher struct {
	buf  []byte
	ins  [][20]byte
	last struct { // layers often repeat: the configuration hashed last
		op, config string
		id         ID
	}
}

// Config is C(v): what the layer is, whatever it is connected to.
func (h *Hasher) Config(v *Vertex) ID {
	if len(v.Params) == 0 && v.Op != "" && v.Op == h.last.op && v.Config == h.last.config {
		return h.last.id
	}
	b := append(h.buf[:0], "CKV1"...)
	b = appendString(b, v.Op)
	b = appendString(b, v.Config)
	n := 0
	for i := range v.Params {
		if !v.Params[i].Attached {
			n++
		}
	}
	b = binary.AppendUvarint(b, uint64(n))
	for i := range v.Params {
		p := &v.Params[i]
		if p.Attached {
			continue
		}
		b = appendString(b, p.Slot)
		b = appendString(b, string(p.DType))
		if p.DType != "" {
			b = binary.AppendUvarint(b, uint64(len(p.Shape)))
			for _, d := range p.Shape {
				b = binary.AppendUvarint(b, uint64(d))
			}
		}
	}
	h.buf = b
	id := sum(b)
	if len(v.Params) == 0 {
		h.last.op, h.last.config, h.last.id = v.Op, v.Config, id
	}
	return id
}

// Vertex is T(v) of a vertex with configuration config, where t holds T of those before it.
func (h *Hasher) Vertex(v *Vertex, config ID, t []ID) ID {
	b := append(h.buf[:0], config[:]...)
	if v.Commutative {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v.Inputs)))
	if v.Commutative && len(v.Inputs) > 1 {
		h.ins = h.ins[:0]
		for _, in := range v.Inputs {
			var e [20]byte
			copy(e[:], t[in.Vertex][:])
			binary.LittleEndian.PutUint32(e[16:], uint32(in.Output))
			h.ins = append(h.ins, e)
		}
		slices.SortFunc(h.ins, func(a, b [20]byte) int { return bytes.Compare(a[:], b[:]) })
		for i := range h.ins {
			b = append(b, h.ins[i][:]...)
		}
	} else {
		for _, in := range v.Inputs {
			b = append(b, t[in.Vertex][:]...)
			b = binary.LittleEndian.AppendUint32(b, uint32(in.Output))
		}
	}
	h.buf = b
	return sum(b)
}

func sum(p []byte) ID {
	h := cas.Sum(p)
	return ID(h[:16])
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Configs is C(v) of every vertex.
func Configs(g *Graph) []ID {
	var h Hasher
	out := make([]ID, len(g.Vertices))
	for i := range g.Vertices {
		out[i] = h.Config(&g.Vertices[i])
	}
	return out
}

// Trees is T(v) of every vertex, for the configurations that Configs gave.
func Trees(g *Graph, configs []ID) []ID {
	var h Hasher
	out := make([]ID, len(g.Vertices))
	for i := range g.Vertices {
		out[i] = h.Vertex(&g.Vertices[i], configs[i], out[:i])
	}
	return out
}

// Key is the key of the vertex that has k others of the same T before it.
func Key(t ID, k int) uint64 {
	x := binary.LittleEndian.Uint64(t[:])
	if k == 0 {
		return x
	}
	x += uint64(k) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Keys gives each T its key.
func Keys(trees []ID) []uint64 {
	seen := make(map[ID]int, len(trees))
	out := make([]uint64, len(trees))
	for i, t := range trees {
		out[i] = Key(t, seen[t])
		seen[t]++
	}
	return out
}
