// Package later opens what a daemon can do without: now, or once that can be.
package later

import (
	"sync"
	"time"
)

// Thing is what Open opens.
type Thing struct {
	open   func() (end func(), err error)
	quit   chan struct{}
	trying sync.WaitGroup
	end    func() // nil until it is open
}

// How long to wait before it is tried again: it doubles.
var first, most = time.Second, time.Minute

// Open opens something, which end ends. If that fails, failed is told, and it is tried again in the
// background, until Close.
func Open(open func() (end func(), err error), failed func(error)) *Thing {
	t := &Thing{open: open, quit: make(chan struct{})}
	var err error
	if t.end, err = open(); err != nil {
		failed(err)
		t.trying.Go(t.again)
	}
	return t
}

func (t *Thing) again() {
	for wait := first; ; wait = min(2*wait, most) {
		select {
		case <-t.quit:
			return
		case <-time.After(wait):
		}
		var err error
		if t.end, err = t.open(); err == nil {
			return
		}
	}
}

// Close ends what was opened, and the trying.
func (t *Thing) Close() {
	close(t.quit)
	t.trying.Wait()
	if t.end != nil {
		t.end()
	}
}
