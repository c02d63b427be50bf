package codec

import "ckptfs/cas"

// Slots let as many goroutines decode for readers at a time as there are processors, in the order in which
// they come: what more of them did at once would all be done late, each with 2 MiB of decoder state that no
// cache has.
type Slots chan struct{}

// NewSlots makes some.
func NewSlots() Slots { return make(Slots, cas.Processors) }

// Slot is a reader's, from when it has the bytes to decode until it has compared what they are with the hash.
type Slot struct {
	of   Slots
	took bool
}

// Slot is one that is not taken yet.
func (s Slots) Slot() Slot { return Slot{of: s} }

// Take waits for a slot to decode what a codec has encoded. What needs others is decoded without one: they
// may have to be read first. A nil Slot takes none.
func (t *Slot) Take(id byte) {
	if t == nil || t.took || NeedsBase(id) {
		return
	}
	t.of <- struct{}{}
	t.took = true
}

// Give returns it.
func (t *Slot) Give() {
	if t.took {
		<-t.of
		t.took = false
	}
}
