package prefix

import (
	"slices"
	"sync/atomic"
)

// index is the catalogue of one kind.
type index struct {
	*identity
	dict    dict
	classes []class
	champ   []uint32 // by class: the best arch of its postings, none when that has to be looked for; atomic
	archs   []arch
	top     []Model // by arch: no model of it is better
	byShape map[string]uint32
	dead    int      // archs without models, free ones not counted
	free    []uint32 // archs swept
	unused  []uint32 // classes swept

	at      []spot  // of insert: by vertex, where its tree is
	isNew   []bool  // by vertex: no arch had its tree
	held    weights // class → keys of the new arch in it
	hits    []spot
	entries []key // that no arch had, though the inputs are had
	taken   []uint32
	members []uint32

	unfolding keyring
	mine      []bool // of unfold: by vertex, the class has its tree
	spots     []spot // as at
}

// class is the keys that the same architectures hold.
type class struct {
	size uint32 // keys
	// folded: one arch has it; line is nil, and of its keys only those are in the dictionary whose inputs are
	// not among them.
	folded bool
	line   []key // with flags
	post   posting
}

// What the low bits of a key in a line say.
const (
	entry = 1 << iota // it is in the dictionary: the key before it is none of its inputs'
	twins             // some arch holds the tree more than once
	flags = entry | twins
)

// spot is where a key is: its place in the line of a class. In a folded class the place says nothing.
type spot struct{ class, pos uint32 }

var nowhere = spot{class: none}

// locate finds the key of a tree with these inputs, where at says where the trees before it are.
func (x *index) locate(t key, inputs []uint32, at []spot) spot {
	for _, e := range inputs {
		s := at[e>>16]
		if s.class == none {
			continue
		}
		if line := x.classes[s.class].line; int(s.pos)+1 < len(line) && line[s.pos+1]&^flags == t {
			return spot{s.class, s.pos + 1}
		}
	}
	return x.dict.find(t)
}

type arch struct {
	shape   string // intGraph.append
	classes []uint32
	models  []Model // best first
	twins   bool    // some tree occurs twice
}

// add puts a model of the architecture r into the index. It returns the arch.
func (x *index) add(m Model, r *keyring) uint32 {
	if a, ok := x.byShape[string(r.text)]; ok {
		if len(x.archs[a].models) == 0 {
			x.dead--
		}
		x.place(a, m)
		return a
	}
	a := uint32(len(x.archs))
	if n := len(x.free); n > 0 {
		a = x.free[n-1]
		x.free = x.free[:n-1]
	} else {
		x.archs, x.top = append(x.archs, arch{}), append(x.top, Model{})
	}
	shape := string(r.text)
	x.byShape[shape] = a
	x.archs[a] = arch{shape: shape, twins: r.twins}
	x.insert(a, r)
	x.place(a, m)
	return a
}

// insert makes the classes of a new arch.
func (x *index) insert(a uint32, r *keyring) {
	n := len(r.trees)
	x.held.reset(n)
	x.hits, x.entries = x.hits[:0], x.entries[:0]
	x.isNew, x.at = resize(x.isNew, n), resizeTo(x.at, n)
	fresh := 0
	for v, t := range r.trees {
		for _, in := range r.ints.inputs(v) {
			x.isNew[v] = x.isNew[v] || x.isNew[in>>16]
		}
		x.at[v] = nowhere
		if x.isNew[v] { // what follows from a tree that no architecture has, none has
			fresh++
			continue
		}
		s := nowhere
		if first := r.first[v]; first < v {
			x.at[v] = x.at[first]
			x.isNew[v] = x.isNew[first]
			if s = x.at[v]; s.class != none {
				x.classes[s.class].line[s.pos] |= twins
			}
			s = x.dict.find(r.keys[v])
		} else {
			s = x.locate(t, r.ints.inputs(v), x.at)
			x.isNew[v] = s.class == none
		}
		if s.class == none {
			x.entries = append(x.entries, r.keys[v])
			fresh++
			continue
		}
		if x.classes[s.class].folded {
			x.unfold(s.class)
			s = x.dict.find(r.keys[v])
		}
		if r.first[v] == v {
			x.at[v] = s
		}
		x.hits = append(x.hits, s)
		x.held.add(uint64(s.class), 1)
	}
	mine := make([]uint32, 0, len(x.held.entries)+2)
	for _, e := range x.held.entries {
		c := uint32(e.key)
		if e.n < int(x.classes[c].size) {
			x.taken = x.taken[:0]
			for _, s := range x.hits {
				if s.class == c {
					x.taken = append(x.taken, s.pos)
				}
			}
			c = x.split(c, x.taken)
		}
		x.classes[c].post.add(a)
		mine = append(mine, c)
	}
	if fresh > 0 {
		c := x.newClass(class{size: uint32(fresh), post: posting{list: []uint32{a}, n: 1}, folded: true}, a)
		for _, key := range x.entries {
			x.dict.set(key, spot{class: c})
		}
		mine = append(mine, c)
	}
	x.archs[a].classes = mine
}

// unfold puts the keys of a class in line.
func (x *index) unfold(c uint32) {
	cl := &x.classes[c]
	r := &x.unfolding
	r.read(x, cl.post.list[0])
	x.mine = resize(x.mine, len(r.trees))
	x.spots = resizeTo(x.spots, len(r.trees))
	at := x.spots
	line := make([]key, 0, cl.size)
	for v, t := range r.trees {
		in := r.ints.inputs(v)
		at[v] = nowhere
		for _, e := range in {
			x.mine[v] = x.mine[v] || x.mine[e>>16]
		}
		here := x.mine[v]
		switch first := r.first[v]; {
		case first < v:
			at[v], x.mine[v] = at[first], x.mine[first]
			if s := at[v]; s.class == c {
				line[s.pos] |= twins
			}
			if !here {
				s := x.dict.find(r.keys[v])
				here = s.class == none || s.class == c
			}
		case !here:
			at[v] = x.locate(t, in, at)
			here = at[v].class == none || at[v].class == c
			x.mine[v] = here
		}
		if !here {
			continue
		}
		s := spot{c, uint32(len(line))}
		if r.first[v] == v {
			at[v] = s
		}
		k := r.keys[v] | entry
		if len(line) > 0 && r.first[v] == v {
			for _, e := range in {
				if r.trees[e>>16] == line[len(line)-1]&^flags {
					k &^= entry
				}
			}
		}
		if k&entry != 0 {
			x.dict.set(r.keys[v], s)
		}
		line = append(line, k)
	}
	cl.line, cl.folded = line, false
}

func (x *index) newClass(c class, champ uint32) uint32 {
	if n := len(x.unused); n > 0 {
		i := x.unused[n-1]
		x.unused = x.unused[:n-1]
		x.classes[i], x.champ[i] = c, champ
		return i
	}
	x.classes = append(x.classes, c)
	x.champ = append(x.champ, champ)
	return uint32(len(x.classes) - 1)
}

// split takes the keys at these places out of a class into one of their own, which is returned. Both are held
// by those that held the class.
func (x *index) split(c uint32, taken []uint32) uint32 {
	slices.Sort(taken)
	n := x.newClass(class{size: uint32(len(taken)), post: x.classes[c].post.clone()}, x.champ[c])
	old, part := &x.classes[c], &x.classes[n]
	old.size -= part.size
	// the line's beginning: nothing but its end needs another entry
	if line, m := old.line, len(taken); int(taken[m-1]) == m-1 {
		part.line, old.line = line[:m:m], line[m:]
		old.line[0] |= entry
	} else {
		part.line, old.line = make([]key, 0, m), make([]key, 0, len(line)-m)
		took := true // the key before
		for i, k := range line {
			take := len(taken) > 0 && int(taken[0]) == i
			if take != took {
				k |= entry
			}
			if took = take; take {
				taken = taken[1:]
				part.line = append(part.line, k)
			} else {
				old.line = append(old.line, k)
			}
		}
	}
	x.enter(c)
	x.enter(n)
	x.members = part.post.all(x.members[:0])
	for _, a := range x.members {
		x.archs[a].classes = append(x.archs[a].classes, n)
	}
	return n
}

// enter says in the dictionary where a class's entries are.
func (x *index) enter(c uint32) {
	for i, k := range x.classes[c].line {
		if k&entry != 0 {
			x.dict.set(k&^flags, spot{c, uint32(i)})
		}
	}
}

// place puts a model in its place among those of its arch.
func (x *index) place(a uint32, m Model) {
	ar := &x.archs[a]
	i, _ := slices.BinarySearchFunc(ar.models, m, func(have, want Model) int {
		if have.better(want) {
			return -1
		}
		return 1
	})
	ar.models = slices.Insert(ar.models, i, m)
	if i > 0 {
		return
	}
	x.top[a] = m
	for _, c := range ar.classes {
		if b := x.champ[c]; b != none && b != a &&
			(len(x.archs[b].models) == 0 || m.better(x.archs[b].models[0])) {
			x.champ[c] = a
		}
	}
}

// drop takes a model from its arch.
func (x *index) drop(a uint32, seq uint64) {
	ar := &x.archs[a]
	i := slices.IndexFunc(ar.models, func(m Model) bool { return m.Seq == seq })
	ar.models = slices.Delete(ar.models, i, i+1)
	if i > 0 {
		return
	}
	for _, c := range ar.classes {
		if x.champ[c] == a {
			x.champ[c] = none
		}
	}
}

func (x *index) retire(a uint32, seq uint64) {
	x.drop(a, seq)
	if len(x.archs[a].models) > 0 {
		return
	}
	x.dead++
	if x.dead*4 > len(x.archs)-len(x.free) && x.dead > 16 {
		x.sweep()
	}
}

// sweep forgets architectures without models.
func (x *index) sweep() {
	for i := range x.archs {
		if a := &x.archs[i]; len(a.models) == 0 && a.classes != nil {
			delete(x.byShape, a.shape)
			*a = arch{}
			x.free = append(x.free, uint32(i))
		}
	}
	x.dead = 0
	for i := range x.classes {
		c := &x.classes[i]
		if c.size == 0 {
			continue
		}
		c.post.keep(func(a uint32) bool { return len(x.archs[a].models) > 0 })
		if c.post.n == 0 {
			*c = class{}
			x.unused = append(x.unused, uint32(i))
		}
	}
	x.dict.keep(func(c uint32) bool { return x.classes[c].size > 0 })
}

// champion is the best live arch of a class, none when all are dead. It may run beside other readers: they
// all find the same.
func (x *index) champion(c uint32) uint32 {
	if a := atomic.LoadUint32(&x.champ[c]); a != none {
		return a
	}
	best := none
	for _, a := range x.classes[c].post.all(nil) {
		if m := x.archs[a].models; len(m) > 0 && (best == none || m[0].better(x.archs[best].models[0])) {
			best = a
		}
	}
	atomic.StoreUint32(&x.champ[c], best)
	return best
}
