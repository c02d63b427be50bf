package store

import (
	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/segment"
)

// turns lets as many goroutines decode for readers at a time as there are processors, in the order in which they come: what more of them did at once
// would all be done late, with state of the decoder for each, 2 MiB, that no cache has.
type turns chan struct{}

func newTurns() turns { return make(turns, cas.Processors) }

// turn is a reader's, from when it has the bytes to decode until it has held what they are against the hash.
type turn struct {
	of   turns
	took bool
}

// take waits for the turn. A record that needs others is decoded without one: they may have to be read first.
func (t *turn) take(rec *segment.Record) {
	if t == nil || t.took || codec.NeedsBase(rec.Codec) {
		return
	}
	t.of <- struct{}{}
	t.took = true
}

func (t *turn) give() {
	if t.took {
		<-t.of
		t.took = false
	}
}
