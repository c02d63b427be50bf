package store

import (
	"maps"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/locks"
)

// key is as much of a hash as the index tells apart.
type key [16]byte

func keyOf(h cas.Hash) key { return key(h[:16]) }

// pins are what writers, sweeps and compactions promise one another about records. Invariants, under mu:
//
//	count[k] > 0    no sweep takes k
//	needs[k]        has no duplicates; each of them has one of its pins for it. k is pinned
//	own[k]          is the batch that claimed k, as long as no other put k, and nothing that another may need
//	                was written against it
//	naming          is a part of what count has
//	touched, named  are nil when no Sweep is under way; else they have all that was pinned since it began
//	doomed          is nil but for the moment at which a sweep takes records out of the index; what is in it
//	                had no pin when it came in, and a Put that pins it later is told
//	linked          is nil when no Compaction is under way
type pins struct {
	mu      locks.Mutex[pinsLock]
	count   map[key]int
	needs   map[key][]key // of pinned deltas: their bases
	own     map[key]*Batch
	naming  map[cas.Hash]int      // those of the pins that are no chunks
	touched map[key]struct{}      // put since the Sweep began, or pinned then
	named   map[cas.Hash]struct{} // those of touched that are no chunks
	doomed  map[key]struct{}      // about to leave the index: a Put of one of these stores it afresh
	linked  map[key]struct{}      // bases of what was written since the Compaction began, and what was pinned
	steady  map[key]int           // what no Compaction stores otherwise: how often it is held
}

func (p *pins) init() {
	p.count = make(map[key]int)
	p.needs = make(map[key][]key)
	p.own = make(map[key]*Batch)
	p.naming = make(map[cas.Hash]int)
	p.steady = make(map[key]int)
}

// pinned reports whether k has a pin.
func (p *pins) pinned(k key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[k] > 0
}

// inUse reports whether a batch has put k since the sweep began, or holds it.
func (p *pins) inUse(k key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inUseLocked(k)
}

func (p *pins) inUseLocked(k key) bool {
	p.mu.AssertHeld()
	_, touched := p.touched[k]
	return touched || p.count[k] > 0
}

// touchLocked tells a sweep of k, which is pinned.
func (p *pins) touchLocked(k key) {
	p.mu.AssertHeld()
	if p.touched != nil {
		p.touched[k] = struct{}{}
	}
}

// linkLocked pins base as long as k is pinned. false: k is not pinned, a sweep is just taking the base, or it
// needs k, which an index that lost k does not know.
func (p *pins) linkLocked(k, base key) bool {
	p.mu.AssertHeld()
	if _, doomed := p.doomed[base]; doomed || p.count[k] == 0 || p.leadsLocked(base, k) {
		return false
	}
	if !slices.Contains(p.needs[k], base) {
		p.needs[k] = append(p.needs[k], base)
		p.count[base]++
	}
	p.touchLocked(base)
	p.shareLocked(base, p.own[k])
	if p.linked != nil {
		p.linked[base] = struct{}{}
	}
	return true
}

// leadsLocked reports whether the pins of k reach those of to, which are perhaps its own.
func (p *pins) leadsLocked(k, to key) bool {
	p.mu.AssertHeld()
	return k == to || slices.ContainsFunc(p.needs[k], func(b key) bool { return p.leadsLocked(b, to) })
}

// unpinLocked takes one pin off each of keys, and with the last one those that it has on its bases.
func (p *pins) unpinLocked(keys ...key) {
	p.mu.AssertHeld()
	for _, k := range keys {
		if p.count[k]--; p.count[k] > 0 {
			continue
		}
		delete(p.count, k)
		bases := p.needs[k]
		delete(p.needs, k)
		p.unpinLocked(bases...)
	}
}

// easeLocked undoes one Hold of k.
func (p *pins) easeLocked(k key) {
	p.mu.AssertHeld()
	if p.steady[k]--; p.steady[k] == 0 {
		delete(p.steady, k)
	}
}

// beginSweep has touched and named begin with what is pinned; endSweep ends them.
func (p *pins) beginSweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.touched = p.pinnedLocked()
	p.named = make(map[cas.Hash]struct{}, len(p.naming))
	for h := range p.naming {
		p.named[h] = struct{}{}
	}
}

func (p *pins) endSweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.touched, p.named = nil, nil
}

// beginCompaction has linked begin with what is pinned; endCompaction ends it.
func (p *pins) beginCompaction() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.linked = p.pinnedLocked()
}

func (p *pins) endCompaction() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.linked = nil
}

// pinnedLocked is the set of what is pinned.
func (p *pins) pinnedLocked() map[key]struct{} {
	p.mu.AssertHeld()
	set := make(map[key]struct{}, len(p.count))
	for k := range p.count {
		set[k] = struct{}{}
	}
	return set
}

// namedSince lists what the sweep under way was told of that is no chunk.
func (p *pins) namedSince() []cas.Hash {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.named))
}

// doomsNone ends what doomed is for.
func (p *pins) doomsNone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doomed = nil
}
