package store

import (
	"sync"

	"ckptfs/cas"
)

// located is where chunks lie that are expected, so that the index is asked once, and for many of them at a time. What was moved meanwhile is found anew,
// as whatever is not where it was.
type located struct {
	mu sync.Mutex
	at map[cas.Hash]found
}

type found struct {
	loc  cas.Location
	refs int
}

func (l *located) add(links []Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = map[cas.Hash]found{}
	}
	for _, k := range links {
		if k.Loc.Segment != 0 {
			l.at[k.Hash] = found{k.Loc, l.at[k.Hash].refs + 1}
		}
	}
}

func (l *located) remove(links []Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range links {
		if k.Loc.Segment == 0 {
			continue
		}
		if f := l.at[k.Hash]; f.refs > 1 {
			f.refs--
			l.at[k.Hash] = f
		} else {
			delete(l.at, k.Hash)
		}
	}
}

func (l *located) get(h cas.Hash) (cas.Location, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.at[h]
	return f.loc, ok
}
