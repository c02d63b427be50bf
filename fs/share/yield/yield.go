// Package yield ends what is done in the background when somebody waits for the same.
package yield

import (
	"context"
	"sync"
)

// Yielding is what is published in the background: it gives way to a push that somebody waits for.
type Yielding struct {
	mu     sync.Mutex
	cancel context.CancelFunc // nil: nothing is
}

// Set says what ends it while it is under way; nil: it is not.
func (y *Yielding) Set(cancel context.CancelFunc) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.cancel = cancel
}

// GiveWay ends it.
func (y *Yielding) GiveWay() {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.cancel != nil {
		y.cancel()
	}
}
