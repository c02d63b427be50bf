package lineage

import (
	"fmt"
	"iter"
	"slices"
)

// Ancestor is a model on the chain of parents.
type Ancestor struct {
	Seq     uint64
	Depth   int  // of its tree's root: 0
	How     How  // where its parent was learnt
	Retired bool // a tombstone
}

func (f *Forest) ancestor(i uint32) Ancestor {
	return Ancestor{f.seqs[i], int(f.links[i].depth), f.info[i].how, f.info[i].retiredAt != 0}
}

// up is the ancestor of i, or i, at a depth that is not greater than its own.
func up(links []link, i, depth uint32) uint32 {
	for links[i].depth > depth {
		if j := links[i].jump; links[j].depth >= depth {
			i = j
		} else {
			i = links[i].parent
		}
	}
	return i
}

// At is the ancestor of a model, or the model, at a depth. False when the model is not known or not that
// deep.
func (f *Forest) At(seq uint64, depth int) (Ancestor, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.at(seq)
	if !ok || depth < 0 || depth > int(f.links[i].depth) {
		return Ancestor{}, false
	}
	return f.ancestor(up(f.links, i, uint32(depth))), true
}

// MRCA is the most recent common ancestor of two models, which may be one of them. False when they are of
// different trees, or not known.
func (f *Forest) MRCA(a, b uint64) (Ancestor, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.at(a)
	j, ok2 := f.at(b)
	if !ok || !ok2 {
		return Ancestor{}, false
	}
	depth := min(f.links[i].depth, f.links[j].depth)
	i, j = up(f.links, i, depth), up(f.links, j, depth)
	for i != j {
		li, lj := f.links[i], f.links[j]
		switch {
		case li.depth == 0:
			return Ancestor{}, false
		case li.jump != lj.jump: // equal depths have jumps of equal length
			i, j = li.jump, lj.jump
		default:
			i, j = li.parent, lj.parent
		}
	}
	return f.ancestor(i), true
}

// MRCO is the latest model that owns tensors of both. False when there is none, or one of the two is not
// known or retired.
func (f *Forest) MRCO(a, b uint64) (uint64, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	i, ok := f.at(a)
	j, ok2 := f.at(b)
	if !ok || !ok2 {
		return 0, false
	}
	x, y := f.info[i].owned, f.info[j].owned
	for len(x) > 0 && len(y) > 0 {
		p, q := x[len(x)-1].Owner, y[len(y)-1].Owner
		switch {
		case p == q:
			return p, true
		case p > q:
			x = x[:len(x)-1]
		default:
			y = y[:len(y)-1]
		}
	}
	return 0, false
}

// Chain goes from a model to its root, with what each owns of the model's tensors. The forest is locked for
// writers until it ends, and is not to be asked anything else meanwhile.
func (f *Forest) Chain(seq uint64) iter.Seq2[Ancestor, Share] {
	return f.walk(seq, func(i uint32, _ []Share) uint32 { return f.links[i].parent })
}

// Owners is Chain without the ancestors that own nothing, but for the model's parent and its root. It takes
// time in proportion to what it yields, however long the chain is.
func (f *Forest) Owners(seq uint64) iter.Seq2[Ancestor, Share] {
	return f.walk(seq, func(i uint32, left []Share) uint32 {
		if f.seqs[i] == seq {
			return f.links[i].parent
		}
		if n := len(left); n > 0 {
			i, _ = f.at(left[n-1].Owner)
			return i
		}
		return up(f.links, i, 0)
	})
}

// walk goes from a model to its root. next is the ancestor to go to from i, where left is what those further
// up own.
func (f *Forest) walk(seq uint64, next func(i uint32, left []Share) uint32) iter.Seq2[Ancestor, Share] {
	return func(yield func(Ancestor, Share) bool) {
		f.mu.RLock()
		defer f.mu.RUnlock()
		i, ok := f.at(seq)
		if !ok {
			return
		}
		owned := f.info[i].owned
		for {
			s := Share{Owner: f.seqs[i]}
			if n := len(owned); n > 0 && owned[n-1].Owner == s.Owner {
				s, owned = owned[n-1], owned[:n-1]
			}
			if !yield(f.ancestor(i), s) || f.links[i].parent == i {
				return
			}
			i = next(i, owned)
		}
	}
}

// Candidate is a possible parent.
type Candidate struct {
	Seq uint64
	How How
}

// Choose picks the parent of a model to be: of the candidates that are committed before it, the first by
// source. What was refused, and why, is in refused: a declared parent that is none must not be passed over in
// silence.
func (f *Forest) Choose(seq uint64, candidates []Candidate) (parent Candidate, refused []error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	sorted := slices.Clone(candidates)
	slices.SortStableFunc(sorted, func(a, b Candidate) int { return a.How.rank() - b.How.rank() })
	for _, c := range sorted {
		if _, ok := f.at(c.Seq); !ok || c.Seq >= seq || c.How == None || c.How > Reproduced {
			refused = append(refused, fmt.Errorf("model %d: parent %d (%s): %w", seq, c.Seq, c.How,
				ErrParent))
		} else if parent.Seq == 0 {
			parent = c
		}
	}
	return parent, refused
}
