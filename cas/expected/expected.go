// Package expected remembers where chunks lie that are going to be read, so that the index is asked once,
// and for many of them at a time. What was moved meanwhile is located again, as whatever is not where it
// was.
package expected

import (
	"ckptfs/cas"
	"ckptfs/cas/locks"
)

// Link is a record and where it lies; Segment 0: nowhere.
type Link struct {
	Hash cas.Hash
	Loc  cas.Location
}

// Places are where chunks lie that are expected; the zero value has none. It may be used by several
// goroutines at once.
type Places struct {
	mu locks.Mutex[placesLock]
	at map[cas.Hash]place
}

// place is one, and how often it was added.
type place struct {
	loc  cas.Location
	refs int
}

// Add expects links, but for those that lie nowhere.
func (l *Places) Add(links []Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = map[cas.Hash]place{}
	}
	for _, k := range links {
		if k.Loc.Segment != 0 {
			l.at[k.Hash] = place{k.Loc, l.at[k.Hash].refs + 1}
		}
	}
}

// Remove undoes Add.
func (l *Places) Remove(links []Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range links {
		if k.Loc.Segment == 0 {
			continue
		}
		if p := l.at[k.Hash]; p.refs > 1 {
			p.refs--
			l.at[k.Hash] = p
		} else {
			delete(l.at, k.Hash)
		}
	}
}

// Get is where h lies, if it is expected.
func (l *Places) Get(h cas.Hash) (cas.Location, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.at[h]
	return p.loc, ok
}

// placesLock is the rank of Places.mu and Stretches.mu, leaves: nothing is locked under them.
type placesLock struct{}

func (placesLock) Rank() (int, string) { return locks.Store + 990, "a leaf of cas/expected" }
