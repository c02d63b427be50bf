package sweep_test

import "testing"

// undeleting is the protocol where a name is deleted by a tombstone of another writer's, and brought back by
// that, or copied by a third: the object of the name, the only one, is needed unless a tombstone covers it.
type undeleting struct {
	gcs                int
	inTable            bool // the first head's entry: stamps do not take it out
	withdrawn          bool // undelete takes the tombstone back
	uncheckedUndeletes bool // undelete does not look at what is condemned
}

type undeleteHead struct {
	etag, stamp, refs uint8
	covers            bool // the first head's entry
}

type undeleteGC struct {
	at, i, mark, condemns, epoch, etag uint8
	covered                            bool
	first                              uint8 // what the first head refers to
	head                               undeleteHead
}

type undeleteState struct {
	there                   uint8
	heads                   [3]undeleteHead // of who made the name, who deletes it, who copies it
	epoch                   uint8
	named                   [3]uint8
	deleter                 undeleteHead // as it was read
	deletes, gone, newStamp uint8
	copies                  uint8
	copied                  undeleteHead
	copyGone                uint8
	gcs                     [2]undeleteGC
}

func (m undeleting) explore() explored {
	s := undeleteState{there: 1}
	s.heads[0] = undeleteHead{etag: 1, refs: 1}
	return reach(s, undeleteLoss, func(s undeleteState, to func(undeleteState)) {
		m.deletes(s, to)
		m.copy(s, to)
		for g := range m.gcs {
			m.collect(s, g, to)
		}
	})
}

func undeleteLoss(s *undeleteState) string {
	needs := s.heads[1].refs | s.heads[2].refs
	if !s.heads[1].covers && !s.heads[2].covers {
		needs |= s.heads[0].refs
	}
	if needs&^s.there != 0 {
		return "a name needs what is gone"
	}
	return ""
}

func (s *undeleteState) condemned() (all uint8) {
	for _, e := range s.named[:s.epoch+1] {
		all |= e
	}
	return all
}

// deletes reads the head and commits a tombstone; then it reads the head and what is condemned, and commits
// an undelete.
func (m undeleting) deletes(s undeleteState, to func(undeleteState)) {
	switch s.deletes {
	case 0, 2:
		s.deleter = s.heads[1]
		s.deletes++
	case 3:
		if s.gone = s.condemned(); m.uncheckedUndeletes {
			s.gone = 0
		}
		s.newStamp, s.deletes = s.epoch, 4
	case 1, 4:
		if s.heads[1].etag != s.deleter.etag {
			s.deletes = map[uint8]uint8{1: 0, 4: 2}[s.deletes]
			break
		}
		h := s.deleter
		h.etag++
		switch {
		case s.deletes == 1:
			h.covers = true
		case m.withdrawn:
			h.covers, h.stamp = false, s.newStamp
		case s.gone&1 == 0: // else it is gone for good
			h.refs, h.stamp = h.refs|1, s.newStamp
		}
		s.heads[1] = h
		s.deletes++
	default:
		return
	}
	to(s)
}

// copy commits a copy of the name, of which it has no bytes, unless that is condemned.
func (m undeleting) copy(s undeleteState, to func(undeleteState)) {
	switch s.copies {
	case 0:
		s.copied.etag, s.copies = s.heads[2].etag, 1
	case 1:
		s.copyGone, s.copied.stamp, s.copies = s.condemned(), s.epoch, 2
		if s.copyGone&1 != 0 {
			s.copies = 9
		}
	case 2:
		if s.copies = 0; s.heads[2].etag == s.copied.etag {
			s.heads[2] = undeleteHead{etag: s.copied.etag + 1, stamp: s.copied.stamp, refs: 1}
			s.copies = 9
		}
	default:
		return
	}
	to(s)
}

func (m undeleting) collect(s undeleteState, g int, to func(undeleteState)) {
	c := &s.gcs[g]
	switch c.at {
	case 0:
		c.read(&s, 1)
	case 1:
		c.condemns = s.there &^ c.mark
		if c.at = 2; c.condemns == 0 {
			c.at = 9
		}
	case 2:
		s.epoch++
		c.epoch, s.named[s.epoch] = s.epoch, c.condemns
		c.at, c.i = 3, 0
	case 3:
		c.stamp(&s, m.inTable)
	case 4:
		c.read(&s, 5)
	case 5:
		s.there &^= c.condemns &^ c.mark
		c.at = 9
	default:
		return
	}
	to(s)
}

// read marks the next head.
func (c *undeleteGC) read(s *undeleteState, then uint8) {
	if h := s.heads[c.i]; c.i == 0 {
		c.first = h.refs
	} else {
		c.mark |= h.refs
		c.covered = c.covered || h.covers
	}
	if c.i++; c.i < uint8(len(s.heads)) {
		return
	}
	if !c.covered {
		c.mark |= c.first
	}
	c.i, c.at = 0, then
}

// stamp reads the next head, or writes what it has read; what is covered is taken out of a tail.
func (c *undeleteGC) stamp(s *undeleteState, inTable bool) {
	if c.etag == 0 {
		c.head = s.heads[c.i]
		c.etag = c.head.etag + 1
		return
	}
	if h := &s.heads[c.i]; h.etag == c.head.etag {
		h.stamp = max(h.stamp, c.epoch)
		if c.i == 0 && c.covered && !inTable {
			h.refs = 0
		}
		h.etag += 16
		c.i++
	}
	c.etag, c.head = 0, undeleteHead{}
	if c.i == uint8(len(s.heads)) {
		c.at, c.i = 4, 0
		c.mark, c.covered, c.first = 0, false, 0
	}
}

// Tombstones, undelete and copies lose nothing beside two collectors; taking a tombstone back does, and
// bringing back what is condemned.
func TestUndeleteModel(t *testing.T) {
	for _, inTable := range []bool{false, true} {
		if got := (undeleting{gcs: 2, inTable: inTable}).explore(); got.bad != "" || got.states < 70_000 {
			t.Errorf("the protocol: %+v", got)
		} else {
			t.Logf("%d states", got.states)
		}
	}
	for name, m := range map[string]undeleting{
		"a tombstone taken back": {gcs: 1, inTable: true, withdrawn: true},
		"undelete unchecked":     {gcs: 1, uncheckedUndeletes: true},
	} {
		if got := m.explore(); got.bad == "" {
			t.Errorf("%s: nothing is lost in %d states", name, got.states)
		} else {
			t.Logf("%s: %s after %d states", name, got.bad, got.states)
		}
	}
}
