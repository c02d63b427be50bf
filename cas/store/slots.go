package store

import (
	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// decodeSlots lets as many goroutines decode for readers at a time as there are processors, in the order in
// which they come: what more of them did at once would all be done late, each with 2 MiB of decoder state
// that no cache has.
type decodeSlots chan struct{}

func newDecodeSlots() decodeSlots { return make(decodeSlots, cas.Processors) }

// decodeSlot is a reader's, from when it has the bytes to decode until it has compared what they are with the
// hash.
type decodeSlot struct {
	of   decodeSlots
	took bool
}

// take waits for a slot. A record that needs others is decoded without one: they may have to be read first.
func (t *decodeSlot) take(rec *segment.Record) {
	if t == nil || t.took || codec.NeedsBase(rec.Codec) {
		return
	}
	t.of <- struct{}{}
	t.took = true
}

func (t *decodeSlot) give() {
	if t.took {
		<-t.of
		t.took = false
	}
}
