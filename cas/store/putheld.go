package store

import (
	"slices"

	"ckptfs/cas"
)

// PutHeld is Put of those of hashes that are durable already, all at once: held says of each whether it is,
// so that nothing is left to be done for it. The others are for Put: what is not held, what is on its way,
// and what is to be stored afresh.
func (b *Batch) PutHeld(kind cas.Kind, hashes []cas.Hash, held []bool) error {
	s := b.s
	if err := b.keepThose(kind, hashes, held); err != nil {
		return err
	}
	locs := make([]cas.Location, len(hashes))
	if err := s.locate(hashes, locs); err != nil {
		return err
	}
	for i, loc := range locs {
		switch {
		case !held[i]:
		case loc.Segment == 0 || !loc.Kind.Serves(kind) || s.lost.Has(loc.Segment):
			held[i] = false
		case loc.Delta:
			// As in Put; what depends on a pending base is for Put, which makes the batch wait too.
			_, on, err := s.secure(hashes[i], loc, nil)
			held[i] = err == nil && len(on) == 0
		}
	}
	// What came on its way meanwhile may have been seen in an index that is not on the disk yet.
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	for i := range hashes {
		held[i] = held[i] && s.appender.pending[hashes[i]] == nil
	}
	return nil
}

// keepThose pins those of hashes that are neither on their way, nor just being taken by a sweep, nor in
// doubt, and says which they are. They need no claim: from here on no sweep takes what the index has of them.
func (b *Batch) keepThose(kind cas.Kind, hashes []cas.Hash, kept []bool) error {
	s := b.s
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	if s.appender.closed {
		return ErrClosed
	}
	if b.done {
		return ErrBatchDone
	}
	b.pinned = slices.Grow(b.pinned, len(hashes))
	for i, h := range hashes {
		k := keyOf(h)
		_, doomed := s.pins.doomed[k]
		doubted := s.opt.Known.Suspect(h)
		if kept[i] = !doomed && !doubted && s.appender.pending[h] == nil; kept[i] {
			b.keepLocked(kind, h)
		}
	}
	return nil
}
