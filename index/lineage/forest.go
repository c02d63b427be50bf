package lineage

import (
	"errors"
	"fmt"
	"slices"

	"ckptfs/cas/locks"
)

// What Add and Reparent refuse.
var (
	ErrOrder  = errors.New("lineage: models come in the order of their numbers")
	ErrParent = errors.New("lineage: parent is not a committed model before the child")
	ErrOwner  = errors.New("lineage: owner is neither the model nor an ancestor")
)

// How says where a model's parent was learnt.
type How uint8

// The sources, best first, but for the last one.
const (
	None       How = iota // no parent
	Declared              // by the writer: lineage.json or user.parent
	Transfer              // by a prefix query of the same run, whose answer was read
	Previous              // the step before in the same run
	Inferred              // guessed from likeness
	Reproduced            // its tensors are stored as a function of the parent's; better than Inferred
)

// rank orders them, best first.
func (h How) rank() int {
	if h == Reproduced {
		return 2*int(Inferred) - 1
	}
	return 2 * int(h)
}

func (h How) String() string {
	if int(h) < len(howNames) {
		return howNames[h]
	}
	return fmt.Sprintf("how %d", uint8(h))
}

// ParseHow undoes String; false for what is none of the sources.
func ParseHow(s string) (How, bool) {
	i := slices.Index(howNames[:], s)
	return How(max(i, 0)), i >= 0
}

var howNames = [...]string{"none", "declared", "transfer", "previous step", "inferred",
	"reproduced"}

// Model is one node.
type Model struct {
	Seq        uint64   // from 1
	Parent     uint64   // 0: a root
	How        How      // where Parent was learnt; None exactly if it is 0
	MergedFrom []uint64 // further parents
	RetiredAt  int64    // ns since 1970; 0: live
	Owned      []Share  // whose the model's tensors are, ascending by owner; nil once retired
}

// Share is what one model owns of another's tensors.
type Share struct {
	Owner   uint64
	Tensors int64
	Bytes   int64
}

// Forest holds all models. It is safe for concurrent use.
type Forest struct {
	mu    locks.RWMutex[forestLock]
	seqs  []uint64 // ascending
	links []link   // by position in seqs
	info  []info
}

// link is what ancestor queries read. A root is its own parent and jump.
type link struct{ parent, jump, depth uint32 }

type info struct {
	how       How
	retiredAt int64
	merged    []uint64
	owned     []Share
	kids      uint32 // models here that have it as parent or were merged from it
	refs      uint32 // live models that hold a tensor it owns
}

// New returns an empty forest.
func New() *Forest { return &Forest{} }

// at is the position of seq.
func (f *Forest) at(seq uint64) (uint32, bool) {
	if n := uint64(len(f.seqs)); n > 0 {
		if i := seq - f.seqs[0]; i < n && f.seqs[i] == seq { // no gaps so far
			return uint32(i), true
		}
	}
	i, ok := slices.BinarySearch(f.seqs, seq)
	return uint32(i), ok
}

// Add adds a model, which has a greater number than all before. Its parent and those it was merged from are
// here, and its owners are it or its ancestors.
func (f *Forest) Add(m Model) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.Seq == 0 || len(f.seqs) > 0 && m.Seq <= f.seqs[len(f.seqs)-1] {
		return fmt.Errorf("model %d: %w", m.Seq, ErrOrder)
	}
	if err := m.check(); err != nil {
		return err
	}
	i := uint32(len(f.seqs))
	l := link{i, i, 0}
	if m.Parent != 0 {
		p, ok := f.at(m.Parent)
		if !ok {
			return fmt.Errorf("model %d: parent %d: %w", m.Seq, m.Parent, ErrParent)
		}
		l = child(f.links, p)
	}
	for _, s := range m.MergedFrom {
		if _, ok := f.at(s); !ok {
			return fmt.Errorf("model %d: merged from %d: %w", m.Seq, s, ErrParent)
		}
	}
	if err := f.checkOwners(m.Seq, l, f.links, m.Owned); err != nil {
		return err
	}
	f.seqs = append(f.seqs, m.Seq)
	f.links = append(f.links, l)
	f.info = append(f.info, info{how: m.How, retiredAt: m.RetiredAt, merged: slices.Clone(m.MergedFrom),
		owned: slices.Clone(m.Owned)})
	f.count(i, +1)
	f.countOwners(i, +1)
	return nil
}

// check holds what a model can be checked for by itself.
func (m *Model) check() error {
	if (m.Parent == 0) != (m.How == None) || m.How > Reproduced || m.Parent >= m.Seq {
		return fmt.Errorf("model %d: parent %d, %s: %w", m.Seq, m.Parent, m.How, ErrParent)
	}
	for _, s := range m.MergedFrom {
		if s == 0 || s >= m.Seq {
			return fmt.Errorf("model %d: merged from %d: %w", m.Seq, s, ErrParent)
		}
	}
	last := uint64(0)
	for _, s := range m.Owned {
		if s.Owner <= last || s.Owner > m.Seq || s.Tensors < 1 || s.Bytes < 0 || m.RetiredAt != 0 {
			return fmt.Errorf("model %d: share %+v: %w", m.Seq, s, ErrOwner)
		}
		last = s.Owner
	}
	return nil
}

// child is the link of a child of p.
func child(links []link, p uint32) link {
	l := link{parent: p, jump: p, depth: links[p].depth + 1}
	j := links[p].jump
	if jj := links[j].jump; links[p].depth-links[j].depth == links[j].depth-links[jj].depth && j != p {
		l.jump = jj
	}
	return l
}

// checkOwners holds that the owners of a model with link l are it or ancestors.
func (f *Forest) checkOwners(seq uint64, l link, links []link, owned []Share) error {
	for _, s := range owned {
		if s.Owner == seq {
			continue
		}
		o, ok := f.at(s.Owner)
		if !ok || l.depth == 0 || links[o].depth >= l.depth || up(links, l.parent, links[o].depth) != o {
			return fmt.Errorf("model %d: owner %d: %w", seq, s.Owner, ErrOwner)
		}
	}
	return nil
}

// count adds n to the kids of those that i names.
func (f *Forest) count(i uint32, n int) {
	if p := f.links[i].parent; p != i {
		f.info[p].kids += uint32(n)
	}
	for _, s := range f.info[i].merged {
		if m, ok := f.at(s); ok {
			f.info[m].kids += uint32(n)
		}
	}
}

// countOwners adds n to the refs of i's owners.
func (f *Forest) countOwners(i uint32, n int) {
	for _, s := range f.info[i].owned {
		if o, ok := f.at(s.Owner); ok && o != i {
			f.info[o].refs += uint32(n)
		}
	}
}

// Get is the model of a number.
func (f *Forest) Get(seq uint64) (Model, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.at(seq)
	if !ok {
		return Model{}, false
	}
	in := &f.info[i]
	m := Model{Seq: seq, How: in.how, MergedFrom: slices.Clone(in.merged), RetiredAt: in.retiredAt,
		Owned: slices.Clone(in.owned)}
	if p := f.links[i].parent; p != i {
		m.Parent = f.seqs[p]
	}
	return m, true
}

// Len is the number of models, and how many of them are tombstones.
func (f *Forest) Len() (models, retired int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for i := range f.info {
		if f.info[i].retiredAt != 0 {
			retired++
		}
	}
	return len(f.seqs), retired
}

// Retire makes a model a tombstone. It reports whether it was live; retiring again changes nothing, not even
// the time.
func (f *Forest) Retire(seq uint64, at int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.at(seq)
	if !ok || f.info[i].retiredAt != 0 || at == 0 {
		return false
	}
	f.countOwners(i, -1)
	f.info[i].retiredAt, f.info[i].owned = at, nil
	return true
}

// Revive makes a tombstone a live model again, which owns nothing yet. It reports whether it was a tombstone.
func (f *Forest) Revive(seq uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.at(seq)
	if !ok || f.info[i].retiredAt == 0 {
		return false
	}
	f.info[i].retiredAt = 0
	return true
}

// Merge replaces the further parents of a model: a sidecar came late.
func (f *Forest) Merge(seq uint64, from []uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.at(seq)
	if !ok {
		return fmt.Errorf("model %d is not known: %w", seq, ErrParent)
	}
	for _, s := range from {
		if _, ok := f.at(s); !ok || s >= seq {
			return fmt.Errorf("model %d: merged from %d: %w", seq, s, ErrParent)
		}
	}
	f.count(i, -1)
	f.info[i].merged = slices.Clone(from)
	f.count(i, +1)
	return nil
}

// Reparent gives a model another parent (0: none) and the shares that follow from it: a sidecar came late. It
// is refused when an owner of it or of a descendant would no longer be an ancestor. It takes time in
// proportion to the models after it.
func (f *Forest) Reparent(seq, parent uint64, how How, owned []Share) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.at(seq)
	if !ok {
		return fmt.Errorf("model %d is not known: %w", seq, ErrParent)
	}
	m := Model{Seq: seq, Parent: parent, How: how, RetiredAt: f.info[i].retiredAt, Owned: owned}
	if err := m.check(); err != nil {
		return err
	}
	links := slices.Clone(f.links)
	links[i] = link{i, i, 0}
	if parent != 0 {
		p, ok := f.at(parent)
		if !ok {
			return fmt.Errorf("model %d: parent %d: %w", seq, parent, ErrParent)
		}
		links[i] = child(links, p)
	}
	if err := f.checkOwners(seq, links[i], links, owned); err != nil {
		return err
	}
	for j := i + 1; int(j) < len(links); j++ {
		if p := links[j].parent; p != j {
			links[j] = child(links, p)
			if err := f.checkOwners(f.seqs[j], links[j], links, f.info[j].owned); err != nil {
				return err
			}
		}
	}
	f.count(i, -1)
	f.countOwners(i, -1)
	f.links = links
	f.info[i].how, f.info[i].owned = how, slices.Clone(owned)
	f.count(i, +1)
	f.countOwners(i, +1)
	return nil
}

// Sweep forgets the tombstones that nothing needs any more, and returns their numbers, descending. Their
// records may go.
func (f *Forest) Sweep() []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var gone []uint64
	dead := make([]bool, len(f.seqs))
	for i := len(f.seqs) - 1; i >= 0; i-- {
		if in := &f.info[i]; in.retiredAt != 0 && in.kids == 0 && in.refs == 0 {
			f.count(uint32(i), -1)
			dead[i] = true
			gone = append(gone, f.seqs[i])
		}
	}
	if gone == nil {
		return nil
	}
	to := make([]uint32, len(f.seqs)) // only leaves go, so parents and jumps stay
	n := uint32(0)
	for i := range f.seqs {
		to[i] = n
		if dead[i] {
			continue
		}
		l := f.links[i]
		f.seqs[n], f.info[n] = f.seqs[i], f.info[i]
		f.links[n] = link{to[l.parent], to[l.jump], l.depth}
		n++
	}
	clear(f.info[n:])
	f.seqs, f.links, f.info = f.seqs[:n], f.links[:n], f.info[:n]
	return gone
}

// forestLock is a leaf.
type forestLock struct{}

func (forestLock) Rank() (int, string) { return locks.Index + 70, "lineage.Forest.mu" }
