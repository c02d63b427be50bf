package share

import (
	"context"
	"sync"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
)

// tellings tells the kernel of names that appeared, were replaced or went: never from a goroutine that a
// request waits for, since the kernel holds the folder until that is answered. Who answers a command waits
// until it heard.
type tellings struct {
	mu      sync.Mutex
	waiting []telling
	wake    chan struct{}
	ended   chan struct{} // closed when nothing is told any more
}

// telling is a name of a folder, or with heard set the end of those before it.
type telling struct {
	dir   content.NodeID
	name  string
	heard chan struct{}
}

// Heard waits until the kernel heard of the names that appeared, were replaced or went until now. No command
// about names answers before. Nothing is locked: the kernel may wait for a request.
func Heard(ctx context.Context, s *Share) { s.lazy.tellings.heard(ctx) }

func newTellings() tellings {
	return tellings{wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

func (t *tellings) add(dir *names.Node, name string) { t.put(telling{dir: dir.ID(), name: name}) }

func (t *tellings) put(one telling) {
	t.mu.Lock()
	t.waiting = append(t.waiting, one)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// heard waits until the kernel was told of what was added before, for as long as a request may take at most:
// the one that the kernel waits for may never be answered.
func (t *tellings) heard(ctx context.Context) {
	ctx, end := context.WithTimeout(ctx, lookTimeout)
	defer end()
	heard := make(chan struct{})
	t.put(telling{heard: heard})
	select {
	case <-heard:
	case <-t.ended:
	case <-ctx.Done():
	}
}

// run tells the kernel until ctx ends.
func (t *tellings) run(ctx context.Context, kernel func() content.Kernel) {
	defer close(t.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		t.mu.Lock()
		all := t.waiting
		t.waiting = nil
		t.mu.Unlock()
		for _, one := range all {
			if one.heard != nil {
				close(one.heard)
				continue
			}
			kernel().InvalidateName(one.dir, one.name)
		}
	}
}
