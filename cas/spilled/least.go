package spilled

import (
	"sync"

	"ckptfs/cas/disk"
)

// Least has the least number that was noted for each beginning of a hash. Of two that have the first 96 bits
// in common it takes the lesser one for both. It is safe for concurrent use.
type Least struct {
	mu    sync.Mutex
	table *Table
}

// NewLeast makes one without numbers, see New.
func NewLeast(dir *disk.Folder) *Least { return &Least{table: New(dir)} }

// Note notes a number for h.
func (l *Least) Note(h [16]byte, n uint8) {
	is := split(h)
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.table.At(is.Key, is.Who); was == 0 || uint32(n)+1 < was {
		l.table.Set(is.Key, is.Who, uint32(n)+1)
	}
}

// Over reports whether none was noted for h, or only higher ones than n. One that lost its numbers does not
// know.
func (l *Least) Over(h [16]byte, n uint8) bool {
	is := split(h)
	l.mu.Lock()
	defer l.mu.Unlock()
	least := l.table.At(is.Key, is.Who)
	return l.table.Err() == nil && (least == 0 || least > uint32(n)+1)
}
