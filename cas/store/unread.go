package store

import (
	"errors"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
)

// lost are the segments that could not be opened, read or made durable as a whole when the index was brought
// up to date: of their records only those were believed that it had. They stay in the index, since a disk may
// think better of it, but a Put holds them for damaged. No sweep looks at such a segment.
type lost struct {
	mu   locks.RWMutex[leafLock]
	all  map[uint32]bool // whether perhaps the page cache has what the disk has not: nothing more is believed
	told map[uint32]bool // all that were found unreadable, or a part of them
}

func (l *lost) has(n uint32) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, ok := l.all[n]
	return ok
}

func (l *lost) unsettled(n uint32) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.all[n]
}

func (l *lost) add(n uint32, unsettled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[n] = l.all[n] || unsettled
}

// tell reports whether n was not told of before.
func (l *lost) tell(n uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := l.told[n]
	l.told[n] = true
	return !had
}

// begin forgets all.
func (l *lost) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.told = map[uint32]bool{}, map[uint32]bool{}
}

// lose notes that segment n is lost, for now.
func (s *Store) lose(n uint32, unsettled bool, err error) {
	s.lost.add(n, unsettled)
	s.unreadable(n, err)
}

// unreadable counts a segment that the disk does not read, or not all of.
func (s *Store) unreadable(n uint32, err error) {
	if !s.lost.tell(n) {
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
