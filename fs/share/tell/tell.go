// Package tell tells the kernel of names that appeared, were replaced or went: never from a goroutine that a
// request waits for, since the kernel holds the folder until that is answered.
package tell

import (
	"context"
	"sync"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
)

// Queue is what the kernel is to be told, in this order. Who answers a command waits until it heard.
type Queue struct {
	mu      sync.Mutex
	waiting []telling
	wake    chan struct{}
	ended   chan struct{} // closed when nothing is told any more
}

// telling is a name of a folder, or with heard set the end of those before iq.
type telling struct {
	dir   content.NodeID
	name  string
	heard chan struct{}
}

// New is an empty queue.
func New() *Queue {
	return &Queue{wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Add adds a name in a folder.
func (q *Queue) Add(dir *names.Node, name string) { q.put(telling{dir: dir.ID(), name: name}) }

func (q *Queue) put(one telling) {
	q.mu.Lock()
	q.waiting = append(q.waiting, one)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Heard waits until the kernel was told of what was added before, or ctx ends.
func (q *Queue) Heard(ctx context.Context) {
	heard := make(chan struct{})
	q.put(telling{heard: heard})
	select {
	case <-heard:
	case <-q.ended:
	case <-ctx.Done():
	}
}

// Run tells the kernel until ctx ends.
func (q *Queue) Run(ctx context.Context, kernel func() content.Kernel) {
	defer close(q.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		q.mu.Lock()
		all := q.waiting
		q.waiting = nil
		q.mu.Unlock()
		for _, one := range all {
			if one.heard != nil {
				close(one.heard)
				continue
			}
			kernel().InvalidateName(one.dir, one.name)
		}
	}
}
