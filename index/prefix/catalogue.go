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
// The keys of all architectures are one dictionary. Keys that the same architectures hold are one class, with one posting
// list: inserting an architecture that holds a part of a class splits it. A layer is held by whoever holds a layer
// behind it, so that classes are few: long runs of layers that branched nowhere yet.
//
//	dict     key → class                     12 bytes a key, at most 4/5 full
//	class    number of keys, architectures that hold them, and the champion among those: the best by (quality, seq)
//	arch     the graph in two to five bytes a vertex, its classes, its models best first
//
// A query hashes G from the roots, no further than keys are known; weighs each class by the keys of G in it; and reads
// the posting lists shortest first, adding up weights, while what is left unread could still make up a winner. An architecture
// not met so far weighs at most what is left. So a list need not be read when its champion weighs that much already: for a chain that
// ends the query at the first list, at the champion of the deepest layer known. Architectures met are then weighed in
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
	labels  map[string]config
	dict    dict
	classes []class
	champ   []uint32 // by class: the best arch of its postings, none when that has to be looked for; atomic
	archs   []arch
	byShape map[string]uint32
	dead    int      // archs without models, free ones not counted
	free    []uint32 // archs swept
	unused  []uint32 // classes swept

	net    net // of Add
	text   []byte
	hasher graph.Hasher
	trees  []graph.ID
	ids    []graph.ID
	seen   weights // as a finder's
	held   weights // class → keys of the new arch in it
	hits   []*slot
}

// config is a vertex's configuration: its number and its C.
type config struct {
	label uint32
	id    graph.ID
}

type class struct {
	size uint32   // keys
	post []uint32 // archs
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
		x = &index{labels: map[string]config{}, byShape: map[string]uint32{}}
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

// appendConfig appends what tells a vertex's configuration from others.
func appendConfig(p []byte, v *graph.Vertex) []byte {
	str := func(s string) {
		for n := len(s); ; n >>= 7 {
			if n < 0x80 {
				p = append(p, byte(n))
				break
			}
			p = append(p, byte(n)|0x80)
		}
		p = append(p, s...)
	}
	str(v.Op)
	str(v.Config)
	for i := range v.Params {
		t := &v.Params[i]
		if t.Attached {
			continue
		}
		str(t.Slot)
		str(string(t.DType))
		if t.DType != "" {
			p = append(p, byte(len(t.Shape)), byte(len(t.Shape)>>8), byte(len(t.Shape)>>16), byte(len(t.Shape)>>24))
			for _, d := range t.Shape {
				p = append(p, byte(d), byte(d>>8), byte(d>>16), byte(d>>24), byte(d>>32), byte(d>>40), byte(d>>48), byte(d>>56))
			}
		}
	}
	return p
}

func label(c config, v *graph.Vertex) uint32 {
	if v.Commutative {
		return c.label<<1 | 1
	}
	return c.label << 1
}

func (n *net) addInputs(v *graph.Vertex) {
	for _, in := range v.Inputs {
		n.in = append(n.in, uint32(in.Vertex)<<16|uint32(in.Output))
	}
	n.first = append(n.first, int32(len(n.in)))
}

func (x *index) add(m Model, g *graph.Graph) uint32 {
	x.net.reset()
	x.ids = x.ids[:0]
	for i := range g.Vertices {
		v := &g.Vertices[i]
		x.text = appendConfig(x.text[:0], v)
		c, ok := x.labels[string(x.text)]
		if !ok {
			c = config{uint32(len(x.labels)), x.hasher.Config(v)}
			x.labels[string(x.text)] = c
		}
		x.net.label = append(x.net.label, label(c, v))
		x.net.addInputs(v)
		x.ids = append(x.ids, c.id)
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
	x.trees = x.trees[:0]
	for i := range g.Vertices {
		x.trees = append(x.trees, x.hasher.Vertex(&g.Vertices[i], x.ids[i], x.trees))
	}
	x.insert(a, x.trees)
	x.place(a, m)
	return a
}

// insert makes the classes of a new arch from its T.
func (x *index) insert(a uint32, trees []graph.ID) {
	x.seen.reset(len(trees))
	x.held.reset(len(trees))
	x.hits = x.hits[:0]
	var fresh, repeated []uint64
	for _, t := range trees {
		key := graph.Key(t, 0)
		if k := x.seen.add(key, 1) - 1; k > 0 {
			if k == 1 {
				repeated = append(repeated, key)
			}
			key = graph.Key(t, k)
		}
		if s := x.dict.find(key); s == nil {
			fresh = append(fresh, key)
		} else {
			x.hits = append(x.hits, s)
			x.held.add(uint64(s.class()), 1)
		}
	}
	mine := make([]uint32, 0, len(x.held.entries)+1)
	for _, e := range x.held.entries {
		c := uint32(e.key)
		if e.n < int(x.classes[c].size) {
			var slots []*slot
			for _, s := range x.hits {
				if s.class() == c {
					slots = append(slots, s)
				}
			}
			c = x.split(c, slots)
		}
		x.classes[c].post = append(x.classes[c].post, a)
		mine = append(mine, c)
	}
	if len(fresh) > 0 {
		c := x.newClass(class{size: uint32(len(fresh)), post: []uint32{a}}, a)
		for _, key := range fresh {
			x.dict.insert(key, c<<1)
		}
		mine = append(mine, c)
	}
	for _, key := range repeated {
		x.dict.find(key).val |= 1
	}
	x.archs[a].classes = slices.Clip(mine)
	x.archs[a].twins = len(repeated) > 0
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
func (x *index) split(c uint32, keys []*slot) uint32 {
	old := &x.classes[c]
	old.size -= uint32(len(keys))
	post := make([]uint32, len(old.post), len(old.post)+1)
	copy(post, old.post)
	n := x.newClass(class{size: uint32(len(keys)), post: post}, x.champ[c])
	for _, s := range keys {
		s.val = n<<1 | s.val&1
	}
	for _, a := range post {
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
		c.post = slices.DeleteFunc(c.post, func(a uint32) bool { return len(x.archs[a].models) == 0 })
		if len(c.post)*2 < cap(c.post) {
			c.post = slices.Clip(slices.Clone(c.post))
		}
		if len(c.post) == 0 {
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
	for _, a := range x.classes[c].post {
		if m := x.archs[a].models; len(m) > 0 && (best == none || m[0].better(x.archs[best].models[0])) {
			best = a
		}
	}
	atomic.StoreUint32(&x.champ[c], best)
	return best
}
