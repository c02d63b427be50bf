package store

import (
	"errors"
	"slices"

	"ckptfs/cas/segment"
)

// errTakenBack is the fate of a record that its batch took back.
var errTakenBack = errors.New("the record was taken back")

// Mark begins a part of the batch, a file say, which TakeBack takes back.
func (b *Batch) Mark() {
	s := b.s
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	b.disownLocked()
	b.sure = len(b.pinned)
}

// disownLocked ends the part: what it wrote stays.
func (b *Batch) disownLocked() {
	b.s.pins.mu.AssertHeld()
	for _, r := range b.part {
		if k := keyOf(r.hash); b.s.pins.own[k] == b {
			delete(b.s.pins.own, k)
		}
	}
	b.part = nil
}

// TakeBack gives the disk back what was written since Mark, and returns how many bytes that is. The batch
// goes on as if that had not been put. What another batch has put too, or has written something against,
// stays, and so does what a flush has taken: garbage for a sweep. No Put of the batch is under way.
func (b *Batch) TakeBack() (freed int64) {
	a, pins := &b.s.appender, &b.s.pins
	a.flushing.Lock() // what a flush has taken may be in the index
	defer a.flushing.Unlock()
	back := map[*segment.Tail][]segment.Range{}
	gone := map[*record]bool{}
	a.mu.Lock()
	pins.mu.Lock()
	for _, r := range b.part {
		if r.state == written && r.entry.Off >= r.tail.Indexed && pins.own[keyOf(r.hash)] == b {
			a.settleLocked(r, failed, errTakenBack)
			slot := segment.Range{Off: r.entry.Off, End: segment.End(r.entry.Location)}
			back[r.tail] = append(back[r.tail], slot)
			freed += slot.End - slot.Off
		}
		gone[r] = r.state == failed
	}
	b.deps = slices.DeleteFunc(b.deps, func(r *record) bool { return gone[r] })
	b.disownLocked()
	pins.unpinLocked(b.pinned[b.sure:]...)
	b.pinned = b.pinned[:b.sure]
	pins.mu.Unlock()
	a.written = slices.DeleteFunc(a.written, func(r *record) bool { return r.err == errTakenBack })
	a.mu.Unlock()
	b.wrote(-freed)
	for t, slots := range back {
		_ = t.TakeBack(slots) // where the disk makes no holes the end is used again all the same
	}
	return freed
}

// ownsLocked notes that b claimed r, unless another batch has pinned it.
func (p *pins) ownsLocked(b *Batch, r *record) {
	p.mu.AssertHeld()
	if k := keyOf(r.hash); p.count[k] == 1 {
		p.own[k] = b
	}
}

// shareLocked notes that another than its owner needs k: then what k was written against is needed, too.
func (p *pins) shareLocked(k key, other *Batch) {
	p.mu.AssertHeld()
	if b := p.own[k]; b == nil || b == other {
		return
	}
	delete(p.own, k)
	for _, base := range p.needs[k] {
		p.shareLocked(base, nil)
	}
}
