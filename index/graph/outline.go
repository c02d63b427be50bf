package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/document"
	"ckptfs/formats"
)

// Outline is what a graph is, without what its source calls things, and with its layers in numbers.
type Outline struct {
	Kind  Kind
	Layer []uint32 // by vertex: its place in OutlineReader.Layers
	First []int32  // In[First[v]:First[v+1]] are the inputs of v
	In    []uint32 // vertex << 16 | output
}

// OutlineReader reads the outlines of many records, one after the other. The zero value is ready.
type OutlineReader struct {
	// Layers are the layers met so far, each once: op, config, whether its inputs commute, and the parameters
	// that identity is made of. None ever changes.
	Layers []Vertex

	out     Outline
	numbers map[string]uint32 // strings met so far
	strings []string
	table   []uint32 // by string of the record: its number
	used    int      // of table, in order of first use
	// layer is the vertex being read: a word each for op, config and the parameters' slots, types,
	// dimensions.
	layer []uint64
	words []uint64 // of all Layers
	ends  []int    // of a layer's words
	slots []uint32 // open addressing: place in Layers + 1, 0 is free

	p   []byte
	i   int
	err error
}

// Read reads the outline of the graph that Decode reads from p. It is overwritten by the next Read. Names are
// passed over; all else is checked as Decode and Graph.Check do.
func (r *OutlineReader) Read(p []byte) (*Outline, error) {
	r.p, r.i, r.err, r.used = p, 0, nil, 0
	o := &r.out
	o.Layer, o.In, o.First = o.Layer[:0], o.In[:0], append(o.First[:0], 0)
	r.head()
	n := r.count(6)
	if n > MaxVertices {
		r.fail("%d vertices", n)
	}
	for v := 0; v < n && r.err == nil; v++ {
		r.vertex(v)
	}
	if r.err == nil && (r.used != len(r.table) || r.i != len(p)) {
		r.fail("%d strings, %d used; %d bytes after the end", len(r.table), r.used, len(p)-r.i)
	}
	r.p = nil
	return o, r.err
}

func (r *OutlineReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("graph: %s: %w", fmt.Sprintf(format, args...), cas.ErrCorrupt)
	}
	r.p, r.i = nil, 0
}

// head reads what is before the vertices.
func (r *OutlineReader) head() {
	d := document.Reader{P: r.p, Of: "graph"}
	d.Magic(magic)
	r.out.Kind = Kind(d.Byte())
	if d.Err == nil && !r.out.Kind.valid() {
		d.Fail("%s", r.out.Kind)
	}
	r.table = r.table[:0]
	for n := d.Count(1); n > 0 && d.Err == nil; n-- {
		p := d.Take(d.Count(1))
		number, ok := r.numbers[string(p)]
		if !ok {
			if r.numbers == nil {
				r.numbers = map[string]uint32{}
			}
			number = uint32(len(r.strings))
			r.strings = append(r.strings, string(p))
			r.numbers[r.strings[number]] = number
		}
		r.table = append(r.table, number)
	}
	r.i = len(r.p) - len(d.P)
	if r.err = d.Err; r.err != nil {
		r.p, r.i = nil, 0
	}
}

// num reads a number.
func (r *OutlineReader) num() uint64 {
	if r.i < len(r.p) && r.p[r.i] < 0x80 {
		r.i++
		return uint64(r.p[r.i-1])
	}
	return r.long()
}

func (r *OutlineReader) long() uint64 {
	x, n := binary.Uvarint(r.p[r.i:])
	if n <= 0 || n > 1 && r.p[r.i+n-1] == 0 || x > math.MaxInt64 {
		r.fail("bad number")
		return 0
	}
	r.i += n
	return x
}

// count reads how many items of at least size bytes follow.
func (r *OutlineReader) count(size int) int {
	n := r.num()
	if n > uint64((len(r.p)-r.i)/size) {
		r.fail("count %d in %d bytes", n, len(r.p)-r.i)
		return 0
	}
	return int(n)
}

// name passes over a name.
func (r *OutlineReader) name() {
	r.i++
	if r.i > len(r.p) {
		r.fail("cut short")
	}
	r.i += r.count(1)
}

// text is the number of the string that a number names.
func (r *OutlineReader) text(i uint64) uint64 {
	switch {
	case i > uint64(r.used) || i >= uint64(len(r.table)):
		r.fail("string %d of %d", i, len(r.table))
		return 0
	case i == uint64(r.used):
		r.used++
	}
	return uint64(r.table[i])
}

func (r *OutlineReader) vertex(v int) {
	o := &r.out
	r.name()
	op, config := r.text(r.num()), r.text(r.num())
	n := r.num()
	if n>>1 > uint64(len(r.p)-r.i) {
		r.fail("%d inputs in %d bytes", n>>1, len(r.p)-r.i)
		return
	}
	r.layer = append(r.layer[:0], op<<1|n&1, config)
	for range n >> 1 {
		from := r.num()
		back, out := from>>1, uint64(0)
		if from&1 != 0 {
			if out = r.num(); out == 0 || out > MaxOutput {
				r.fail("output %d", out)
			}
		}
		if back == 0 || back > uint64(v) {
			r.fail("input of vertex %d, %d before it", v, back)
			return
		}
		o.In = append(o.In, uint32(uint64(v)-back)<<16|uint32(out))
	}
	o.First = append(o.First, int32(len(o.In)))
	for range r.count(4) {
		r.name()
		slot := r.num()
		name := r.text(slot >> 1)
		dtype := r.text(r.num())
		if r.err != nil {
			return
		}
		words := len(r.layer)
		r.layer = append(r.layer, name, dtype)
		if r.strings[dtype] != "" {
			dims := r.count(1)
			r.layer = append(r.layer, uint64(dims))
			for range dims {
				r.layer = append(r.layer, r.num())
			}
		}
		if slot&1 != 0 { // attached
			r.layer = r.layer[:words]
		}
	}
	if r.err == nil {
		o.Layer = append(o.Layer, r.number())
	}
}

// number is the place of r.layer in Layers.
func (r *OutlineReader) number() uint32 {
	h := hashWords(r.layer)
	if 2*len(r.Layers) >= len(r.slots) {
		r.grow()
	}
	mask := len(r.slots) - 1
	i := h & mask
	for ; r.slots[i] != 0; i = (i + 1) & mask {
		if n := r.slots[i] - 1; slices.Equal(r.wordsOf(int(n)), r.layer) {
			return n
		}
	}
	w := r.layer
	v := Vertex{Op: r.strings[w[0]>>1], Commutative: w[0]&1 != 0, Config: r.strings[w[1]]}
	if v.Commutative && !MayCommute(v.Op) {
		r.fail("the inputs of %s do not commute", v.Op)
		return 0
	}
	for w = w[2:]; len(w) > 0; {
		p := Param{Slot: r.strings[w[0]], DType: formats.DType(r.strings[w[1]])}
		if w = w[2:]; p.DType != "" {
			for _, d := range w[1 : 1+w[0]] {
				p.Shape = append(p.Shape, int64(d))
			}
			w = w[1+w[0]:]
		}
		v.Params = append(v.Params, p)
	}
	r.Layers = append(r.Layers, v)
	r.words = append(r.words, r.layer...)
	r.ends = append(r.ends, len(r.words))
	r.slots[i] = uint32(len(r.Layers))
	return r.slots[i] - 1
}

func (r *OutlineReader) wordsOf(n int) []uint64 {
	if n == 0 {
		return r.words[:r.ends[0]]
	}
	return r.words[r.ends[n-1]:r.ends[n]]
}

func hashWords(words []uint64) int {
	h := uint64(0)
	for _, w := range words {
		h = (h ^ h>>29 ^ w) * 0xbf58476d1ce4e5b9
	}
	return int(h ^ h>>32)
}

func (r *OutlineReader) grow() {
	r.slots = make([]uint32, max(64, 2*len(r.slots)))
	mask := len(r.slots) - 1
	for n := range r.Layers {
		i := hashWords(r.wordsOf(n)) & mask
		for r.slots[i] != 0 {
			i = (i + 1) & mask
		}
		r.slots[i] = uint32(n) + 1
	}
}
