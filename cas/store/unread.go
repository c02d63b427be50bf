package store

import (
	"errors"

	"ckptfs/cas"
	"ckptfs/cas/disk"
)

// lose notes that segment n could not be opened, read or made durable as a whole when the index was brought
// up to date: of its records only those were believed that the index had. They stay in the index, since a
// disk may think better of it, but a Put holds them for damaged. No sweep looks at the segment.
func (s *Store) lose(n uint32, unsettled bool, err error) {
	s.lost.Add(n, unsettled)
	s.unreadable(n, err)
}

// unreadable counts a segment that the disk does not read, or not all of.
func (s *Store) unreadable(n uint32, err error) {
	if !s.lost.Tell(n) {
		return
	}
	s.appender.mu.Lock()
	s.appender.stats.Unreadable++
	s.appender.mu.Unlock()
	if s.opt.Unreadable != nil {
		s.opt.Unreadable(n, err)
	}
}

// damaged reports whether err says that what was stored is not there any more.
func damaged(err error) bool { return errors.Is(err, cas.ErrCorrupt) || disk.Unreadable(err) }
