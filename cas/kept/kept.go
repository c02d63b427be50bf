// Package kept finds what a store keeps only because something is computed of it: chunks that no file names,
// as the bases of recipes that files do name.
//
// A user who removes the model from which others were quantised, and keeps these, wants its room back. But a
// recipe takes next to nothing only as long as its bases are there, and these may take more than all that is
// computed of them takes alone.
//
//	held    what would go if no recipe of a group were one: its bases, and what these lead back to, as far as
//	        no file names it, and nothing else that a file names needs it
//	alone   what the recipes would take if they were stored without bases, as a sample of them tells
//
// A group is all recipes and bases that hang together: bases that a recipe has in common, and recipes that
// have a base in common. Of a model these are the chunks of one tensor, mostly. A group pays if it takes less
// alone than it holds.
//
//	base ──▶ number of its node (spilled.Table)    node: its group, size; of the first of a group the sums
//
// Both tables lie in files that the kernel may write out. What changes in the store meanwhile changes what
// storing a group alone gains, and no byte of what is read.
package kept

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/segment"
	"ckptfs/cas/spilled"
	"ckptfs/cas/store"
)

// worth is one over the share of what a group holds that storing it alone must give back.
const worth = 16

// Kept are the groups of a store. It may be used by several goroutines at once.
type Kept struct {
	s     *store.Store
	named func(cas.Hash) bool

	mu      sync.Mutex
	at      *spilled.Table // of bases: their nodes, by numbers from 1 on
	nodes   *spilled.Slab[node]
	made    uint32
	recipes *spilled.Set // that are in a group
}

// state is what becomes of a group.
type state uint8

const (
	stays state = iota
	chosen
	done
)

// node is a base. It has no pointers.
type node struct {
	parent uint32 // that leads to the first of the group; 0: it is the first
	needed bool   // by something that is no recipe
	size   int64  // bytes that it takes
	// Of the first of a group:
	state   state
	recipes uint32
	held    int64 // bytes
	takes   int64 // bytes that the recipes take
	raw     int64 // bytes that these have; of them were sampled, and would take alone:
	sampled int64
	alone   int64
}

// aloneOf is what the recipes of a group take alone.
func (n *node) aloneOf() int64 {
	if n.sampled == 0 {
		return n.raw
	}
	return int64(float64(n.raw) * float64(n.alone) / float64(n.sampled))
}

// pays reports whether the group gives room back if it is stored alone.
func (n *node) pays() bool { return n.aloneOf() < n.held+n.takes-n.held/worth }

// Find finds the groups. named is called once there is a recipe, and returns what tells whether files name a
// chunk. The tables would lie in dir (package spilled).
func Find(ctx context.Context, s *store.Store, dir *disk.Folder,
	named func() (func(cas.Hash) bool, error)) (*Kept, error) {
	k := &Kept{s: s, at: spilled.New(dir), nodes: spilled.NewSlab[node](dir), recipes: spilled.NewSet(dir)}
	err := spilled.Guard(func() error {
		if err := store.Deltas(ctx, s, func(h cas.Hash, loc cas.Location, id byte) (err error) {
			if id != codec.Recipe {
				return nil
			}
			if k.named == nil {
				if k.named, err = named(); err != nil {
					return err
				}
			}
			if k.named(h) {
				k.add(h, loc)
			}
			return nil
		}); err != nil || k.made == 0 {
			return err
		}
		if err := store.Deltas(ctx, s, func(h cas.Hash, loc cas.Location, id byte) error {
			if id != codec.Recipe && k.named(h) {
				k.need(h, loc)
			}
			return nil
		}); err != nil {
			return err
		}
		for i := uint32(1); i <= k.made; i++ {
			if n := k.node(i); !n.needed {
				k.node(k.first(i)).held += n.size
			}
		}
		return nil
	})
	return k, errors.Join(err, k.at.Err(), k.recipes.Err())
}

// add adds a recipe, unless all that it leads back to is named.
func (k *Kept) add(h cas.Hash, loc cas.Location) {
	links, err := k.s.Bases(h, loc)
	if err != nil {
		return // it cannot be read
	}
	group := uint32(0)
	for _, l := range links {
		if k.named(l.Hash) {
			continue
		}
		i := k.of(l.Hash)
		if i == 0 {
			*k.nodes.New() = node{size: segment.Size(int(l.Loc.Stored))}
			k.made++
			i = k.made
			key, who := keyOf(l.Hash)
			k.at.Set(key, who, i)
		}
		if i = k.first(i); group == 0 {
			group = i
		} else if i != group {
			k.join(group, i)
		}
	}
	if group == 0 {
		return
	}
	k.recipes.Add([16]byte(h[:16]))
	n := k.node(group)
	n.takes += segment.Size(int(loc.Stored))
	n.raw += int64(loc.Raw)
	if n.recipes++; n.recipes&(n.recipes-1) == 0 || n.recipes%sampleEvery == 0 {
		if size, ok := k.sample(h); ok {
			n.sampled += int64(loc.Raw)
			n.alone += size
		}
	}
}

// sampleEvery: of a group every so manieth recipe is looked at, and of the first some more.
const sampleEvery = 64

// hints are what a chunk may be encoded as, of which nothing is known but its bytes.
var hints = []codec.Hint{{DType: "BF16", Elem: 2}, {DType: "F32", Elem: 4}, {}}

// sample is what a chunk would take alone.
func (k *Kept) sample(h cas.Hash) (size int64, ok bool) {
	raw, err := k.s.Get(h, nil)
	if err != nil {
		return 0, false
	}
	best := len(raw)
	for _, hint := range hints {
		_, p := codec.Encode(nil, raw, hint)
		best = min(best, len(p))
	}
	return segment.Size(best), true
}

// need notes that what a record leads back to is needed.
func (k *Kept) need(h cas.Hash, loc cas.Location) {
	links, _ := k.s.Bases(h, loc) // those before what cannot be found
	for _, l := range links {
		if i := k.of(l.Hash); i > 0 {
			k.node(i).needed = true
		}
	}
}

func keyOf(h cas.Hash) (key uint64, who uint32) {
	return binary.BigEndian.Uint64(h[:8]), binary.BigEndian.Uint32(h[8:12])
}

// of is the node of a base; 0: it has none.
func (k *Kept) of(h cas.Hash) uint32 { return k.at.At(keyOf(h)) }

func (k *Kept) node(i uint32) *node { return k.nodes.At(int(i - 1)) }

// first is the first of a group. The way there becomes shorter.
func (k *Kept) first(i uint32) uint32 {
	for {
		n := k.node(i)
		if n.parent == 0 {
			return i
		}
		if next := k.node(n.parent).parent; next != 0 {
			n.parent = next
		}
		i = n.parent
	}
}

// join makes one group of two, by their first nodes.
func (k *Kept) join(a, b uint32) {
	to, from := k.node(a), k.node(b)
	from.parent = a
	to.recipes += from.recipes
	to.takes += from.takes
	to.raw += from.raw
	to.sampled += from.sampled
	to.alone += from.alone
}

// Sums are bytes of the groups that are not done.
type Sums struct {
	Held, Alone int64 // of all that hold something
	// of those that pay: what storing them alone takes, and gives back besides
	Pays, Gives int64
}

// Sums adds up.
func (k *Kept) Sums() (sum Sums, err error) {
	err = k.groups(func(n *node) bool {
		if n.state == done || n.held == 0 {
			return true
		}
		sum.Held += n.held
		sum.Alone += n.aloneOf()
		if n.pays() {
			sum.Pays += n.aloneOf()
			sum.Gives += n.held + n.takes - n.aloneOf()
		}
		return true
	})
	return sum, err
}

// groups calls f with the first node of each group, until it returns false.
func (k *Kept) groups(f func(n *node) bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return spilled.Guard(func() error {
		for i := uint32(1); i <= k.made; i++ {
			if n := k.node(i); n.parent == 0 && !f(n) {
				break
			}
		}
		return nil
	})
}

// Choose chooses groups that pay and are not done, which take no more alone than room, all together; those
// that were chosen before are done. some: there are such. tooLarge: one that pays takes more than room by
// itself.
func (k *Kept) Choose(room int64) (some, tooLarge bool, err error) {
	left := room
	err = k.groups(func(n *node) bool {
		if n.state == chosen {
			n.state = done
		}
		switch size := n.aloneOf(); {
		case n.state == done || n.held == 0 || !n.pays():
		case size <= left:
			n.state = chosen
			left -= size
			some = true
		case size > room:
			tooLarge = true
		}
		return true
	})
	return some, tooLarge, err
}

// Again takes back what Choose chose last: not all of it was stored apart.
func (k *Kept) Again() error {
	return k.groups(func(n *node) bool {
		if n.state == chosen {
			n.state = stays
		}
		return true
	})
}

// Empty reports whether there is no group.
func (k *Kept) Empty() bool { return k.made == 0 }

// Has reports whether a chunk is a recipe of a group.
func (k *Kept) Has(h cas.Hash) bool { return k.recipes.MayHave([16]byte(h[:16])) }

// Stays reports whether h is a recipe of a group that holds something and is not done, and Chosen whether
// that was chosen.
func (k *Kept) Stays(h cas.Hash) bool {
	n, ok := k.groupOf(h)
	return ok && n.held > 0 && n.state != done
}

// Chosen: see Stays.
func (k *Kept) Chosen(h cas.Hash) bool {
	n, ok := k.groupOf(h)
	return ok && n.state == chosen
}

// groupOf is the group of a recipe, as the store has it now.
func (k *Kept) groupOf(h cas.Hash) (group node, ok bool) {
	var loc [1]cas.Location
	if !k.Has(h) || k.s.Locate([]cas.Hash{h}, loc[:]) != nil || !loc[0].Delta {
		return group, false
	}
	bases, err := k.s.Bases(h, loc[0])
	if err != nil {
		return group, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = spilled.Guard(func() error {
		for _, l := range bases {
			if i := k.of(l.Hash); i > 0 {
				group, ok = *k.node(k.first(i)), true
				break
			}
		}
		return nil
	})
	return group, ok
}
