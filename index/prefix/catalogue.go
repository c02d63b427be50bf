// Package prefix finds, among all stored models, the one whose architecture has the longest prefix in common with a new
// one: the best model to transfer weights from.
//
// # What is looked for
//
// A common prefix of a new graph G and a stored graph A is an injective map phi from vertices of G, of which each has
// its inputs among them, into A, such that configuration and commutativity agree and the inputs of phi(v) are phi of the
// inputs of v: in order, or in any order where they commute. Its length is the number of vertices mapped. The answer is the live
// model with the greatest (length, quality, seq), where a quality that is not known or NaN is below all others. Only
// graphs of one kind compete. Without a common root there is no answer.
//
// # Bound, then verify
//
// T(v) (index/graph) names a vertex with all that leads to it. The number of T that G and A share, as bags, is never
// less than the longest prefix, and equal to it unless a shared T occurs twice in G or in A. Twins are the only freedom in
// phi; choosing among them is NP-hard, so it is branch and bound with a budget: past it the answer is the best prefix found
// and Exact is false.
//
// In memory a T is a key of 64 bits, made with a secret of the catalogue's own (hash.go).
// The keys of all architectures are one dictionary. Keys that the same architectures hold are one class, with one posting
// list: inserting an architecture that holds a part of a class splits it. A layer is held by whoever holds a layer
// behind it, so that classes are few: long runs of layers that branched nowhere yet.
//
//	dict     key → class                     12 bytes a key, at most 4/5 full
//	class    number of keys, architectures that hold them, and the champion among those: the best by (quality, seq)
//	         architectures are a list of four bytes each, or a bitmap where that is smaller
//	arch     the graph in two to five bytes a vertex, its classes, its models best first
//
// What a new architecture has and none before it is one class, and most such classes never see another. So it is *folded*: only those of its keys are in
// the dictionary whose inputs others have, too. Who has another of its keys has one of these. The first that comes to one
// has all others entered; a query that comes to one reads them off the architecture.
//
// A query hashes G from the roots, no further than keys are known, and weighs each class by the keys of G in it. The champion of
// the rarest class, and the latest in some others, give a good length to begin with; if the champion weighs all that is known of G, as it does for a chain, it
// is the answer. Else the bitmaps say, of 64 architectures at once, which of them lack less than would make them shorter
// than the best (sift.go). Where too little is in bitmaps the posting lists are read shortest first, adding up weights, while what is left unread
// could still make up a winner. Architectures that are left are weighed in
// full, and verified where twins are about. The map phi of the winner is read off the two graphs themselves, without
// hashes: should two keys ever collide, its length shows it, and the query starts again, verifying everything.
//
// Retiring a model takes it from its architecture. An architecture without models stays as a tombstone until a quarter are
// tombstones; then postings, classes and keys that only those held are swept.
//
// Memory only: the catalogue is rebuilt at start from the records of graphs and models, in any order.
package prefix

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"ckptfs/index/graph"
)

// ErrKnown says that a model of that number is in the catalogue.
var ErrKnown = errors.New("prefix: model is in the catalogue already")

// Model is one stored checkpoint.
type Model struct {
	Seq     uint64  // its place in the order of commits
	Quality float64 // greater is better; NaN when not known
}

// better reports whether a wins over b at equal length.
func (a Model) better(b Model) bool {
	if qa, qb := quality(a.Quality), quality(b.Quality); qa != qb {
		return qa > qb
	}
	return a.Seq > b.Seq
}

func quality(q float64) float64 {
	if math.IsNaN(q) {
		return math.Inf(-1)
	}
	return q
}

// Catalogue is the index. It is safe for concurrent use: queries share it, Add and Retire exclude them.
type Catalogue struct {
	mu    sync.RWMutex
	kinds map[graph.Kind]*index
	where map[uint64]place // by seq

	pinning sync.Mutex
	pins    map[uint64]int
}

type place struct {
	kind graph.Kind
	arch uint32
}

// New returns an empty catalogue.
func New() *Catalogue {
	return &Catalogue{kinds: map[graph.Kind]*index{}, where: map[uint64]place{}, pins: map[uint64]int{}}
}

// index is the catalogue of one kind.
type index struct {
	secret  secret
	configs configs
	dict    dict
	classes []class
	champ   []uint32 // by class: the best arch of its postings, none when that has to be looked for; atomic
	archs   []arch
	byShape map[string]uint32
	dead    int      // archs without models, free ones not counted
	free    []uint32 // archs swept
	unused  []uint32 // classes swept

	net     net // of Add
	text    []byte
	trees   []key
	seen    weights // as a finder's
	held    weights // class → keys of the new arch in it
	hits    []hit
	entries []key  // that no arch had, though the inputs are had
	isNew   []bool // by vertex: no arch had its tree
	members []uint32

	unfolding keyring
}

type hit struct {
	key   key
	class uint32
}

type class struct {
	size   uint32 // keys
	folded bool   // one arch has it, and of its keys only those are in the dictionary whose inputs are not among them
	post   posting
}

type arch struct {
	shape   string // net.append
	classes []uint32
	models  []Model // best first
	twins   bool    // some T occurs twice
}

// Add puts a committed model into the catalogue. A sidecar that comes late: Retire, then Add under the same number.
func (c *Catalogue) Add(m Model, g *graph.Graph) error {
	if err := g.Check(); err != nil {
		return fmt.Errorf("prefix: model %d: %w", m.Seq, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.where[m.Seq]; ok {
		return fmt.Errorf("model %d: %w", m.Seq, ErrKnown)
	}
	x := c.kinds[g.Kind]
	if x == nil {
		x = &index{secret: newSecret(), configs: newConfigs(), byShape: map[string]uint32{}}
		c.kinds[g.Kind] = x
	}
	c.where[m.Seq] = place{g.Kind, x.add(m, g)}
	return nil
}

// Retire takes a model out: no query finds it any more. It reports whether the model was there; twice does nothing.
func (c *Catalogue) Retire(seq uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.where[seq]
	if !ok {
		return false
	}
	delete(c.where, seq)
	c.kinds[p.kind].retire(p.arch, seq)
	return true
}

// SetQuality changes a model's quality, and reports whether the model is there.
func (c *Catalogue) SetQuality(seq uint64, q float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.where[seq]
	if !ok {
		return false
	}
	x := c.kinds[p.kind]
	x.drop(p.arch, seq)
	x.place(p.arch, Model{Seq: seq, Quality: q})
	return true
}

// Len is the number of live models and of the architectures that they have.
func (c *Catalogue) Len() (models, architectures int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, x := range c.kinds {
		architectures += len(x.archs) - len(x.free) - x.dead
	}
	return len(c.where), architectures
}

// Pinned reports whether a match that names the model has not been released: its tensors must stay readable.
func (c *Catalogue) Pinned(seq uint64) bool {
	c.pinning.Lock()
	defer c.pinning.Unlock()
	return c.pins[seq] > 0
}

func (c *Catalogue) pin(seq uint64, n int) {
	c.pinning.Lock()
	defer c.pinning.Unlock()
	if c.pins[seq] += n; c.pins[seq] == 0 {
		delete(c.pins, seq)
	}
}

func (n *net) addInputs(v *graph.Vertex) {
	for _, in := range v.Inputs {
		n.in = append(n.in, uint32(in.Vertex)<<16|uint32(in.Output))
	}
	n.first = append(n.first, int32(len(n.in)))
}

func (x *index) add(m Model, g *graph.Graph) uint32 {
	x.net.reset()
	x.trees = x.trees[:0]
	for i := range g.Vertices {
		v := &g.Vertices[i]
		c, _ := x.configs.find(v, true)
		x.net.label = append(x.net.label, label(c, v))
		x.net.addInputs(v)
		x.trees = append(x.trees, x.tree(&x.net, i, x.trees))
	}
	x.text = x.net.append(x.text[:0])
	if a, ok := x.byShape[string(x.text)]; ok {
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
		x.archs = append(x.archs, arch{})
	}
	shape := string(x.text)
	x.byShape[shape] = a
	x.archs[a] = arch{shape: shape}
	x.insert(a)
	x.place(a, m)
	return a
}

// tree is the key of a vertex of n.
func (x *index) tree(n *net, v int, t []key) key {
	l := n.label[v]
	return x.secret.tree(x.configs.all[l>>1].id, l&1 != 0, n.inputs(v), t)
}

// insert makes the classes of a new arch, of the vertices in x.net and x.trees.
func (x *index) insert(a uint32) {
	x.seen.reset(len(x.trees))
	x.held.reset(len(x.trees))
	x.hits, x.entries = x.hits[:0], x.entries[:0]
	x.isNew = resize(x.isNew, len(x.trees))
	fresh := 0
	var repeated []key
	for v, t := range x.trees {
		for _, in := range x.net.inputs(v) {
			x.isNew[v] = x.isNew[v] || x.isNew[in>>16]
		}
		k := x.seen.add(t, 1) - 1
		if k == 1 {
			repeated = append(repeated, t)
		}
		if x.isNew[v] { // what follows from a tree that nobody has, nobody has
			fresh++
			continue
		}
		key := x.secret.again(t, k)
		s := x.dict.find(key)
		if s == nil {
			x.isNew[v] = k == 0 || x.dict.find(t) == nil
			x.entries = append(x.entries, key)
			fresh++
			continue
		}
		c := s.class()
		if x.classes[c].folded {
			x.unfold(c)
		}
		x.hits = append(x.hits, hit{key, c})
		x.held.add(uint64(c), 1)
	}
	mine := make([]uint32, 0, len(x.held.entries)+1)
	for _, e := range x.held.entries {
		c := uint32(e.key)
		if e.n < int(x.classes[c].size) {
			var keys []key
			for _, h := range x.hits {
				if h.class == c {
					keys = append(keys, h.key)
				}
			}
			c = x.split(c, keys)
		}
		x.classes[c].post.add(a)
		mine = append(mine, c)
	}
	if fresh > 0 {
		c := x.newClass(class{size: uint32(fresh), post: posting{list: []uint32{a}, n: 1}, folded: fresh > len(x.entries)}, a)
		for _, key := range x.entries {
			x.dict.insert(key, c<<1)
		}
		mine = append(mine, c)
	}
	x.markTwins(repeated)
	x.archs[a].classes = slices.Clip(mine)
	x.archs[a].twins = len(repeated) > 0
}

// markTwins notes that an arch holds these trees more than once.
func (x *index) markTwins(repeated []key) {
	for _, key := range repeated {
		if s := x.dict.find(key); s != nil {
			s.val |= 1
		}
	}
}

// unfold enters all keys of a class.
func (x *index) unfold(c uint32) {
	x.classes[c].folded = false
	var repeated []key
	u := &x.unfolding
	u.keys(x, x.classes[c].post.list[0])
	for i, key := range u.all {
		if u.first[i] != key {
			repeated = append(repeated, u.first[i])
		}
		if x.dict.find(key) == nil {
			x.dict.insert(key, c<<1)
		}
	}
	x.markTwins(repeated)
}

// keyring is the keys of an arch, read from its shape.
type keyring struct {
	net   net
	first []key // by vertex: of its tree
	all   []key // by vertex: with the occurrence
	seen  weights
}

func (r *keyring) keys(x *index, a uint32) {
	r.net.read(x.archs[a].shape)
	r.first, r.all = r.first[:0], r.all[:0]
	r.seen.reset(len(r.net.label))
	for v := range r.net.label {
		t := x.tree(&r.net, v, r.first)
		r.first = append(r.first, t)
		r.all = append(r.all, x.secret.again(t, r.seen.add(t, 1)-1))
	}
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

// split takes keys out of a class into one of their own, which is returned. Both are held by those who held the class.
func (x *index) split(c uint32, keys []key) uint32 {
	old := &x.classes[c]
	old.size -= uint32(len(keys))
	n := x.newClass(class{size: uint32(len(keys)), post: old.post.clone()}, x.champ[c])
	for _, key := range keys {
		s := x.dict.find(key)
		s.val = n<<1 | s.val&1
	}
	x.members = x.classes[n].post.all(x.members[:0])
	for _, a := range x.members {
		x.archs[a].classes = append(x.archs[a].classes, n)
	}
	return n
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
	for _, c := range ar.classes {
		if b := x.champ[c]; b != none && b != a && (len(x.archs[b].models) == 0 || m.better(x.archs[b].models[0])) {
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

// champion is the best live arch of a class, none when all are dead. It may run beside other readers: they all find the same.
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
