package known

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Kept is an answer that is given at once, and asked for again behind it when it is old.
type Kept[T any] struct {
	life context.Context // what was begun for one page goes on for the next
	ask  func(ctx context.Context) (*T, error)

	flight singleflight.Group
	mu     sync.Mutex
	last   *T
	at     time.Time
}

// Keep makes a Kept of what ask answers. What it asks ends with life.
func Keep[T any](life context.Context, ask func(ctx context.Context) (*T, error)) *Kept[T] {
	return &Kept[T]{life: life, ask: ask}
}

// Get is the last answer. Only for the first does it wait, and for the next after one that failed. One that
// is older than fresh is asked for again.
func (k *Kept[T]) Get(ctx context.Context, fresh time.Duration) (*T, error) {
	k.mu.Lock()
	last, at := k.last, k.at
	k.mu.Unlock()
	if last != nil && time.Since(at) < fresh {
		return last, nil
	}
	got := k.flight.DoChan("", func() (any, error) {
		v, err := k.ask(k.life)
		k.mu.Lock()
		defer k.mu.Unlock()
		if err != nil { // who asks next is told
			k.last = nil
			return nil, err
		}
		k.last, k.at = v, time.Now()
		return v, nil
	})
	return wait(ctx, got, last)
}

// wait gives what is there, or waits for what is on its way.
func wait[T any](ctx context.Context, got <-chan singleflight.Result, there *T) (*T, error) {
	if there != nil {
		return there, nil
	}
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
