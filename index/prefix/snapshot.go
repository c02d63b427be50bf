package prefix

import (
	"encoding/binary"
	"math"
	"math/bits"

	"ckptfs/cas"
	"ckptfs/cas/document"
	"ckptfs/formats"
	"ckptfs/index/graph"
)

// A snapshot is a catalogue as bytes, so that it need not be made again from the records. It is derived: the
// volume ignores one that is damaged or of another version. Numbers are little-endian, of 4 bytes unless
// said; a string is its length and the bytes; dtypes and slots are strings.
//
//	"CKP1"
//	hash         32 bytes: BLAKE3 of all that follows
//	secret       4 times 8 bytes
//	configs      n, then n times: id (8 bytes), op, config, parameters: n, then n times slot, dtype,
//	             dimensions: n, then n times 8 bytes
//	kinds        n, then n times
//	    kind
//	    archs    n, then n times: bytes of the shape, classes, models, and 1 twins | 2 swept; then, one after
//	             the other for all, the shapes, the classes, and the models: seq, quality and the caller's
//	             Tag, of 8, 8 and 16 bytes
//	    classes  n, then n times: size, 1 folded, keys in line, items of the list, words, base, champion;
//	             then the keys (8 bytes), the lists, the words (8 bytes)
//	    dict     slots, slots used, then all slots: key (8 bytes), class + 1, place
const snapshotMagic = "CKP1"

// Tag is what a caller knows a model's graph by.
type Tag [16]byte

// Snapshot is the catalogue as bytes. tag is called for every model.
func (c *Catalogue) Snapshot(tag func(seq uint64) Tag) []byte {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p := append(make([]byte, 0, 1<<20), snapshotMagic...)
	p = append(p, make([]byte, len(cas.Hash{}))...)
	le := binary.LittleEndian
	num := func(n int) { p = le.AppendUint32(p, uint32(n)) }
	words := func(p []byte, all any) []byte {
		p, _ = binary.Append(p, le, all) // it is a slice of integers
		return p
	}
	text := func(s string) { num(len(s)); p = append(p, s...) }
	for _, s := range c.secret {
		p = le.AppendUint64(p, s)
	}
	num(len(c.configs.all))
	for i := range c.configs.all {
		e := &c.configs.all[i]
		p = le.AppendUint64(p, e.id)
		text(e.op)
		text(e.config)
		num(len(e.params))
		for _, a := range e.params {
			text(a.Slot)
			text(string(a.DType))
			num(len(a.Shape))
			for _, d := range a.Shape {
				p = le.AppendUint64(p, uint64(d))
			}
		}
	}
	num(len(c.kinds))
	for kind, x := range c.kinds {
		num(int(kind))
		num(len(x.archs))
		swept := map[uint32]bool{}
		for _, a := range x.free {
			swept[a] = true
		}
		for i := range x.archs {
			a := &x.archs[i]
			num(len(a.shape))
			num(len(a.classes))
			num(len(a.models))
			num(bit(a.twins, 1) | bit(swept[uint32(i)], 2))
		}
		for i := range x.archs {
			p = append(p, x.archs[i].shape...)
		}
		for i := range x.archs {
			p = words(p, x.archs[i].classes)
		}
		for i := range x.archs {
			for _, m := range x.archs[i].models {
				p = le.AppendUint64(p, m.Seq)
				p = le.AppendUint64(p, math.Float64bits(m.Quality))
				t := tag(m.Seq)
				p = append(p, t[:]...)
			}
		}
		num(len(x.classes))
		for i := range x.classes {
			cl := &x.classes[i]
			p = words(p, []uint32{cl.size, uint32(bit(cl.folded, 1)), uint32(len(cl.line)),
				uint32(len(cl.post.list)), uint32(len(cl.post.words)), cl.post.base, x.champ[i]})
		}
		for i := range x.classes {
			p = words(p, x.classes[i].line)
		}
		for i := range x.classes {
			p = words(p, x.classes[i].post.list)
		}
		for i := range x.classes {
			p = words(p, x.classes[i].post.words)
		}
		num(len(x.dict.slots))
		num(x.dict.used)
		for _, s := range x.dict.slots {
			p = le.AppendUint64(p, s.key)
			p = le.AppendUint32(le.AppendUint32(p, s.class), s.pos)
		}
	}
	h := cas.Sum(p[len(snapshotMagic)+len(cas.Hash{}):])
	copy(p[len(snapshotMagic):], h[:])
	return p
}

func bit(is bool, b int) int {
	if is {
		return b
	}
	return 0
}

// Restore is the catalogue that Snapshot made p of, less the models that are not kept. The error wraps
// cas.ErrCorrupt, or cas.ErrNewer for a later version; then keep may have been called all the same. Memory is
// bounded by p's.
func Restore(p []byte, keep func(m Model, t Tag) bool) (*Catalogue, error) {
	r := restoring{Reader: document.Reader{P: p, Of: "snapshot"}}
	r.Magic(snapshotMagic)
	var h cas.Hash
	copy(h[:], r.Take(len(h)))
	if r.Err == nil && cas.Sum(r.P) != h {
		r.Fail("damaged")
	}
	c := New()
	for i := range c.secret {
		c.secret[i] = r.num64()
	}
	r.configs(&c.configs)
	var gone []uint64
	for n := r.count(4); n > 0 && r.Err == nil; n-- {
		kind := graph.Kind(r.num())
		x := c.indexOf(kind)
		r.index(x, uint32(len(c.configs.all)), func(a uint32, m Model, t Tag) {
			if c.where[m.Seq] = (place{kind, a}); !keep(m, t) {
				gone = append(gone, m.Seq)
			}
		})
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	for _, seq := range gone {
		c.Retire(seq)
	}
	return c, nil
}

type restoring struct{ document.Reader }

func (r *restoring) num() uint32 {
	if q := r.Take(4); q != nil {
		return binary.LittleEndian.Uint32(q)
	}
	return 0
}

func (r *restoring) num64() uint64 {
	if q := r.Take(8); q != nil {
		return binary.LittleEndian.Uint64(q)
	}
	return 0
}

// count reads how many items of at least size bytes follow.
func (r *restoring) count(size int) int {
	n := int(r.num())
	if n > len(r.P)/size {
		r.Fail("count %d in %d bytes", n, len(r.P))
		return 0
	}
	return n
}

func (r *restoring) text() string { return string(r.Take(r.count(1))) }

func restored[T uint32 | uint64](r *restoring, n int) []T {
	var of T
	p := r.Take(n * binary.Size(of))
	if p == nil {
		return nil
	}
	all := make([]T, n)
	_, _ = binary.Decode(p, binary.LittleEndian, all) // it is a slice of integers, and there are enough bytes
	return all
}

func (r *restoring) configs(c *configs) {
	for n := r.count(20); n > 0 && r.Err == nil; n-- {
		e := config{id: r.num64(), op: r.text(), config: r.text()}
		for k := r.count(12); k > 0 && r.Err == nil; k-- {
			a := graph.Param{Slot: r.text(), DType: formats.DType(r.text())}
			for d := r.count(8); d > 0; d-- {
				a.Shape = append(a.Shape, int64(r.num64()))
			}
			e.params = append(e.params, a)
		}
		e.hash = c.hash(e.op, e.config, e.params)
		c.add(e)
	}
}

// index reads the index of one kind.
func (r *restoring) index(x *index, configs uint32, model func(a uint32, m Model, t Tag)) {
	const archHead, classHead = 4, 7
	archs := r.count(4 * archHead)
	heads := restored[uint32](r, archs*archHead)
	var bytes, classes, models int
	for i := 0; i < len(heads); i += archHead {
		bytes, classes, models = bytes+int(heads[i]), classes+int(heads[i+1]), models+int(heads[i+2])
	}
	shapes := string(r.Take(bytes))
	held := restored[uint32](r, classes)
	if r.Err != nil || len(r.P) < 32*models {
		r.Fail("cut short")
		return
	}
	all := make([]Model, 0, models)
	x.archs, x.top = make([]arch, archs), make([]Model, archs)
	x.byShape = make(map[string]uint32, archs)
	for i := range x.archs {
		h, a := heads[archHead*i:], &x.archs[i]
		if h[3]&2 != 0 {
			x.free = append(x.free, uint32(i))
			continue
		}
		a.shape, shapes = shapes[:h[0]], shapes[h[0]:]
		a.classes, held = held[:h[1]:h[1]], held[h[1]:]
		a.twins = h[3]&1 != 0
		x.byShape[a.shape] = uint32(i)
		if !sound(a.shape, configs) {
			r.Fail("an architecture that is none")
			return
		}
		begin := len(all)
		for range h[2] {
			m := Model{Seq: r.num64(), Quality: math.Float64frombits(r.num64())}
			all = append(all, m)
			model(uint32(i), m, Tag(r.Take(16)))
		}
		if a.models = all[begin:len(all):len(all)]; len(a.models) == 0 {
			x.dead++
		} else {
			x.top[i] = a.models[0]
		}
	}
	r.classes(x, classHead)
	n := r.count(16)
	x.dict.used = int(r.num())
	p := r.Take(16 * n)
	if r.Err != nil {
		return
	}
	x.dict.slots = make([]slot, n)
	used := 0
	for i := range x.dict.slots {
		q := p[16*i:]
		s := slot{binary.LittleEndian.Uint64(q), binary.LittleEndian.Uint32(q[8:]),
			binary.LittleEndian.Uint32(q[12:])}
		if x.dict.slots[i] = s; s.class == 0 {
			continue
		}
		used++
		if s.class > uint32(len(x.classes)) ||
			!x.classes[s.class-1].folded && int(s.pos) >= len(x.classes[s.class-1].line) {
			r.Fail("a key that is nowhere")
			return
		}
	}
	if used != x.dict.used || used > 0 && used == n {
		r.Fail("%d keys, %d expected", used, x.dict.used)
	}
	for i := range x.archs {
		for _, c := range x.archs[i].classes {
			if c >= uint32(len(x.classes)) {
				r.Fail("a class that is not there")
				return
			}
		}
	}
}

func (r *restoring) classes(x *index, head int) {
	n := r.count(4 * head)
	heads := restored[uint32](r, n*head)
	var keys, items, words int
	for i := 0; i < len(heads); i += head {
		keys, items, words = keys+int(heads[i+2]), items+int(heads[i+3]), words+int(heads[i+4])
	}
	lines, lists, bitmaps := restored[uint64](r, keys), restored[uint32](r, items), restored[uint64](r, words)
	if r.Err != nil {
		return
	}
	x.classes, x.champ = make([]class, n), make([]uint32, n)
	for i := range x.classes {
		h, c := heads[head*i:], &x.classes[i]
		c.size, c.folded, x.champ[i] = h[0], h[1] != 0, h[6]
		c.line, lines = lines[:h[2]:h[2]], lines[h[2]:]
		c.post.list, lists = lists[:h[3]:h[3]], lists[h[3]:]
		c.post.n, c.post.base = len(c.post.list), h[5]
		last := uint64(0)
		if h[4] > 0 {
			c.post.words, bitmaps = bitmaps[:h[4]:h[4]], bitmaps[h[4]:]
			c.post.n, c.post.list = c.post.count(), nil
			c.post.sumUp()
			last = (uint64(h[5])+uint64(h[4]))*64 - uint64(bits.LeadingZeros64(c.post.words[h[4]-1])) - 1
		}
		for _, a := range c.post.list {
			last = max(last, uint64(a))
		}
		if x.champ[i] != none {
			last = max(last, uint64(x.champ[i]))
		}
		switch {
		case c.size == 0:
			*c = class{}
			x.unused = append(x.unused, uint32(i))
		case last >= uint64(len(x.archs)) || c.post.n == 0 || c.folded && c.post.list == nil ||
			!c.folded && int(c.size) != len(c.line):
			r.Fail("class %d is none", i)
			return
		}
	}
}
