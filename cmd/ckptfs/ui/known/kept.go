package known

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Kept is an answer that is not asked for again while it is fresh. Who asks meanwhile waits for the same one.
type Kept[T any] struct {
	life context.Context // what was begun for one page goes on for the next
	ask  func(ctx context.Context) (*T, error)
	now  func() time.Time

	flight singleflight.Group
	mu     sync.Mutex
	last   *T
	at     time.Time
	asked  int // how often: what was asked before Forget is not kept
}

// Keep makes a Kept of what ask answers. What it asks ends with life.
func Keep[T any](life context.Context, ask func(ctx context.Context) (*T, error)) *Kept[T] {
	return &Kept[T]{life: life, ask: ask, now: time.Now}
}

// Get is an answer that was asked for no longer ago than fresh.
func (k *Kept[T]) Get(ctx context.Context, fresh time.Duration) (*T, error) {
	k.mu.Lock()
	last, at, asked := k.last, k.at, k.asked
	k.mu.Unlock()
	if last != nil && k.now().Sub(at) < fresh {
		return last, nil
	}
	got := k.flight.DoChan("", func() (any, error) {
		begun := k.now()
		v, err := k.ask(k.life)
		k.mu.Lock()
		defer k.mu.Unlock()
		if err != nil || k.asked != asked { // who asks next is told
			k.last = nil
			return v, err
		}
		k.last, k.at = v, begun
		return v, nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case x := <-got:
		if x.Err != nil {
			return nil, x.Err
		}
		return x.Val.(*T), nil
	}
}

// Forget has the next who asks be told what is so then.
func (k *Kept[T]) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = nil
	k.asked++
	k.flight.Forget("")
}
