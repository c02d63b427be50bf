package spilled

import (
	"encoding/binary"
	"sync"

	"ckptfs/cas/disk"
)

// Set is a set of beginnings of hashes. Of two that have the first 96 bits in common it keeps the later one.
// So MayHave misses none that was added, and Has finds none that was not, as far as 127 bits tell. One that
// is lost (Err) is empty. It is safe for concurrent use.
type Set struct {
	mu    sync.Mutex
	table *Table
}

// NewSet makes an empty one, see New.
func NewSet(dir *disk.Folder) *Set { return &Set{table: New(dir)} }

// split makes a slot of the beginning of a hash.
func split(h [16]byte) Slot {
	return Slot{
		Key: binary.BigEndian.Uint64(h[:]), Who: binary.BigEndian.Uint32(h[8:]),
		N: binary.BigEndian.Uint32(h[12:]) | 1,
	}
}

// beginning is what split makes s of, but for the last bit.
func (s *Slot) beginning() (h [16]byte) {
	binary.BigEndian.PutUint64(h[:], s.Key)
	binary.BigEndian.PutUint32(h[8:], s.Who)
	binary.BigEndian.PutUint32(h[12:], s.N)
	return h
}

// Add adds h, and reports whether Has would not have found it.
func (s *Set) Add(h [16]byte) bool {
	is := split(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	added := s.table.At(is.Key, is.Who) != is.N
	if added {
		s.table.Set(is.Key, is.Who, is.N)
	}
	return added
}

// Remove has Has find h no more.
func (s *Set) Remove(h [16]byte) {
	is := split(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table.At(is.Key, is.Who) == is.N {
		s.table.Set(is.Key, is.Who, 0)
	}
}

// Has reports whether h is there; false also if another one took its place.
func (s *Set) Has(h [16]byte) bool {
	n, is := s.at(h)
	return n == is
}

// MayHave reports whether h is there, or another one that begins with the same 96 bits.
func (s *Set) MayHave(h [16]byte) bool {
	n, _ := s.at(h)
	return n != 0
}

// at is what is there in the place of h, if not 0, and what h is.
func (s *Set) at(h [16]byte) (n, is uint32) {
	slot := split(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.At(slot.Key, slot.Who), slot.N
}

// Within reports whether each of s is in one of others, which are other sets.
func (s *Set) Within(others ...*Set) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	within := true
	s.table.Each(func(is Slot) {
		found := false
		for _, o := range others {
			found = found || o.Has(is.beginning())
		}
		within = within && found
	})
	return within
}

// Memory is how many bytes it takes in memory.
func (s *Set) Memory() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Memory()
}

// Err says why it lost what it had.
func (s *Set) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Err()
}
