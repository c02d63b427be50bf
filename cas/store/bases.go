package store

import (
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/delta"
	"ckptfs/cas/expected"
	"ckptfs/cas/scratch"
	"ckptfs/cas/segment"
)

// Link is a record and where it lies.
type Link = expected.Link

// Bases lists the records that are needed to decode the one of h, which Locate found at loc, besides itself:
// none unless it is a delta. It looks at headers alone. A base that is not there is cas.ErrCorrupt.
func (s *Store) Bases(h cas.Hash, loc cas.Location) (links []Link, err error) {
	err = s.reader.lead(h, loc, segment.AnyNumber, func(_, base cas.Hash, _ uint8) (cas.Location, error) {
		at, err := s.locateNow(false, base)
		if err == nil && at.Segment == 0 {
			err = &cas.ChunkError{Hash: base, Err: errNoBase}
		}
		links = append(links, Link{Hash: base, Loc: at})
		return at, err
	})
	return links, err
}

// BasesOf is Bases for those alone that the record itself names.
func (s *Store) BasesOf(h cas.Hash, loc cas.Location) ([]cas.Hash, error) {
	b, _, err := s.reader.baseOf(h, loc)
	return b.Hashes(), err
}

// link pins base as long as the record of h is pinned, and returns the base's record if it is pending. false:
// h is not pinned, a sweep is just taking the base, the base was found damaged, or it needs h, which an index
// that lost h does not know.
func (s *Store) link(h, base cas.Hash) (on *record, ok bool) {
	s.appender.mu.Lock()
	defer s.appender.mu.Unlock()
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	on = s.appender.pending[base]
	if (on == nil || on.state == claimed) && s.opt.Known.Suspect(base) ||
		on != nil && on.rising && on.state == claimed {
		return nil, false
	}
	if !s.pins.linkLocked(keyOf(h), keyOf(base)) {
		return nil, false
	}
	return on, true
}

// secure pins all that the record of h at loc needs, and sees that it is there, and was not found damaged. h
// is pinned. number is that of the record; on are the records of its bases that are pending. led, unless nil,
// gets what it leads back to.
func (s *Store) secure(h cas.Hash, loc cas.Location, led map[cas.Hash]struct{}) (
	number uint8, on []*record, err error) {
	err = s.reader.lead(h, loc, segment.AnyNumber, func(of, base cas.Hash, i uint8) (cas.Location, error) {
		rec, ok := s.link(of, base)
		if !ok {
			return cas.Location{}, errNoBase
		}
		if rec != nil {
			on = append(on, rec)
		}
		number = max(number, i) // those of its bases are lower
		if led != nil {
			led[base] = struct{}{}
		}
		at, err := s.locateNow(false, base)
		if err == nil && (at.Segment == 0 || s.lost.Has(at.Segment)) {
			err = errNoBase
		}
		return at, err
	})
	return number, on, err
}

// against is what a delta is encoded against.
type against struct {
	segment.Base // of the delta
	raw          *[]byte
	on           []*record
	led          map[cas.Hash]struct{} // that it leads back to
}

// Against is the record that what rel relates to others is stored against, as things are; ok is false when it
// is stored alone.
func (s *Store) Against(rel cas.Related) (base cas.Hash, ok bool) {
	b, _, ok := delta.Next(rel, s.located)
	return b.Hash, ok
}

// Key is the record of number 0 that prev leads back to: prev itself, if it is stored alone. false: there is
// none, for whatever reason.
func (s *Store) Key(prev cas.Hash) (key cas.Hash, ok bool) { return delta.Key(prev, s.located) }

// located is what the record of h says of its base, and where it lies. false: nowhere, for whatever reason.
func (s *Store) located(h cas.Hash) (b segment.Base, loc cas.Location, ok bool) {
	loc, err := s.locateNow(false, h)
	if err != nil || loc.Segment == 0 {
		return b, loc, false
	}
	b, loc, err = s.reader.baseOf(h, loc)
	return b, loc, err == nil
}

// choose finds the base for the record of h, which is claimed, from the version before it, and reads it,
// unless it is at hand. nil: there is none, for whatever reason. package scratch takes raw back.
func (s *Store) choose(h cas.Hash, rel cas.Related) *against {
	if rel.Prev.IsZero() || rel.Prev == h {
		return nil
	}
	b, at, ok := delta.Next(rel, s.located)
	if !ok || b.Hash == h {
		return nil
	}
	return s.read(b, at, rel.Base)
}

// read reads the bases of b. The first lies at a place, zero: unknown; had is perhaps its content. Nothing is
// pinned yet: a record that proves to be no delta needs no base. nil: they are not available.
func (s *Store) read(b segment.Base, at cas.Location, had []byte) *against {
	a := &against{Base: b, raw: scratch.Room(len(b.Hashes()) * cas.ChunkSize)}
	for _, base := range b.Hashes() {
		if !s.readBase(base, at, a, had) || len(*a.raw) > segment.MaxRecipe {
			scratch.Put(a.raw)
			return nil
		}
		at, had = cas.Location{}, nil
	}
	return a
}

// readBase is read for one of the bases of a.
func (s *Store) readBase(base cas.Hash, at cas.Location, a *against, had []byte) bool {
	if at.Segment == 0 {
		at, _ = s.locateNow(false, base) // after an error it is nowhere
	}
	if at.Segment == 0 || s.lost.Has(at.Segment) || at.Raw > segment.MaxBased {
		return false
	}
	if len(had) == int(at.Raw) && len(had) > 0 && cas.Check(had, base) == nil {
		*a.raw = append(*a.raw, had...)
		return true
	}
	n := len(*a.raw)
	if s.reader.baseFor(a.Number, base, at, a.raw) != nil || cas.Check((*a.raw)[n:], base) != nil {
		*a.raw = (*a.raw)[:n]
		return false
	}
	return true
}

// lean pins the bases of a for the record of h, which is pinned and was encoded against them. false: one is
// not there any more, or it is a recipe that would lead back to too much.
func (s *Store) lean(h cas.Hash, a *against) bool {
	without := func(base cas.Hash) bool { return !s.leanOn(h, base, a) }
	return !slices.ContainsFunc(a.Hashes(), without) &&
		(a.Number != segment.RecipeNumber || len(a.led) <= delta.MostLed)
}

// leanOn is lean for one of the bases, and all that this needs. What is pinned is looked for after that.
func (s *Store) leanOn(h, base cas.Hash, a *against) bool {
	rec, ok := s.link(h, base)
	if !ok {
		return false
	}
	loc, err := s.locateNow(false, base)
	if err != nil || loc.Segment == 0 || s.lost.Has(loc.Segment) || loc.Raw > segment.MaxBased {
		return false
	}
	if a.led == nil {
		a.led = map[cas.Hash]struct{}{}
	}
	a.led[base] = struct{}{}
	number, on, err := s.secure(base, loc, a.led)
	if err != nil || number >= a.Number {
		return false
	}
	if a.on = append(a.on, on...); rec != nil {
		a.on = append(a.on, rec)
	}
	return true
}
