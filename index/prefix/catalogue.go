package prefix

import (
	"errors"
	"fmt"
	"math"

	"ckptfs/cas/locks"
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
	mu    locks.RWMutex[catalogueLock]
	kinds map[graph.Kind]*index
	where map[uint64]place // by seq
	identity
	adding keyring

	pinning locks.Mutex[pinningLock]
	pins    map[uint64]int
}

type place struct {
	kind graph.Kind
	arch uint32
}

// New returns an empty catalogue.
func New() *Catalogue {
	return &Catalogue{kinds: map[graph.Kind]*index{}, where: map[uint64]place{}, pins: map[uint64]int{},
		identity: identity{newSecret(), newConfigs()}}
}

// Add puts a committed model into the catalogue. A sidecar that comes late: Retire, then Add under the same
// number.
func (c *Catalogue) Add(m Model, g *graph.Graph) error {
	if err := g.Check(); err != nil {
		return fmt.Errorf("prefix: model %d: %w", m.Seq, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.adding
	r.ints.of(&c.configs, g)
	r.text = r.ints.append(r.text[:0])
	c.keys(r)
	return c.addLocked(m, g.Kind, r)
}

// addLocked adds a model whose keys are known. c.mu is held.
func (c *Catalogue) addLocked(m Model, kind graph.Kind, r *keyring) error {
	c.mu.AssertHeld()
	if _, ok := c.where[m.Seq]; ok {
		return fmt.Errorf("model %d: %w", m.Seq, ErrKnown)
	}
	c.where[m.Seq] = place{kind, c.indexOf(kind).add(m, r)}
	return nil
}

func (c *Catalogue) indexOf(kind graph.Kind) *index {
	x := c.kinds[kind]
	if x == nil {
		x = &index{identity: &c.identity, byShape: map[string]uint32{}}
		c.kinds[kind] = x
	}
	return x
}

// Retire takes a model out: no query finds it any more. It reports whether the model was there; twice does
// nothing.
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

// The locks of this package, in the order in which they may be taken.
type (
	catalogueLock struct{} // Catalogue.mu
	pinningLock   struct{} // Catalogue.pinning
)

func (catalogueLock) Rank() (int, string) { return locks.Index + 50, "prefix.Catalogue.mu" }
func (pinningLock) Rank() (int, string)   { return locks.Index + 60, "prefix.Catalogue.pinning" }
