package pack

import (
	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/cas"
	"ckptfs/index/manifest"
)

// lists has the short lists that were named or read last in memory: the next save of a document that grows
// asks for nearly all of those of the save before.
type lists struct {
	of *lru.Cache[cas.Hash, []manifest.Span]
}

const (
	maxLists  = 2048
	shortList = 64 // spans of 36 bytes: at most 4.7 MB in all
)

func newLists() *lists {
	of, _ := lru.New[cas.Hash, []manifest.Span](maxLists) // the size is positive
	return &lists{of}
}

func (l *lists) get(h cas.Hash) ([]manifest.Span, bool) {
	if l == nil {
		return nil, false
	}
	return l.of.Get(h)
}

// add keeps spans, which stay as they are from now on.
func (l *lists) add(h cas.Hash, spans []manifest.Span) {
	if l != nil && len(spans) <= shortList {
		l.of.Add(h, spans)
	}
}
