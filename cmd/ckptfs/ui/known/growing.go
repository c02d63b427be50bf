package known

import (
	"context"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Growing is an answer that takes longer to make than a page may, and that says something true before it is
// whole. It is made behind the pages that ask for it, once for all of them.
type Growing[T any] struct {
	life context.Context // what was begun for one page goes on for the next
	ask  func(ctx context.Context, tell func(*T)) (*T, error)
	now  func() time.Time

	mu      sync.Mutex
	whole   *T
	at      time.Time // when whole was made
	took    time.Duration
	part    *T // of the one that is being made; nil: nothing is told of it yet
	running *making
	failed  *making // the last one, if nobody was told why; or nil
}

// mostOften bounds what is spent on answers that take long: one is fresh for so many times as long.
const mostOften = 4

// making is an answer that is being made.
type making struct {
	done chan struct{} // closed at its end
	err  error         // why it could not be made
}

// Grow makes a Growing of what ask answers. It may tell parts of the answer before that: what is told does
// not change. What was begun ends with life.
func Grow[T any](life context.Context, ask func(ctx context.Context, tell func(*T)) (*T, error)) *Growing[T] {
	return &Growing[T]{life: life, ask: ask, now: time.Now}
}

// Get is the answer, if it was made no longer ago than fresh, or a few times what it took, or is made within
// patience. Otherwise it is what there is: the last whole answer, or else what is told of the first one; nil
// is nothing yet. whole: more is not to be waited for.
func (g *Growing[T]) Get(ctx context.Context, fresh, patience time.Duration) (v *T, whole bool, err error) {
	g.mu.Lock()
	if g.whole != nil && g.now().Sub(g.at) < max(fresh, mostOften*g.took) {
		defer g.mu.Unlock()
		return g.whole, true, nil
	}
	if f := g.failed; g.running == nil && f != nil { // nobody waited for it
		defer g.mu.Unlock()
		g.failed = nil
		return nil, false, f.err
	}
	if g.running == nil {
		g.begin()
	}
	running := g.running
	g.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case <-timer.C:
	case <-running.done:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case running.err != nil:
		g.failed = nil
		return nil, false, running.err
	case g.running != running && g.whole != nil:
		return g.whole, true, nil
	case g.whole != nil:
		return g.whole, false, nil
	}
	return g.part, false, nil
}

// begin makes the answer. g.mu is held.
func (g *Growing[T]) begin() {
	now, begun := &making{done: make(chan struct{})}, g.now()
	g.running, g.part, g.failed = now, nil, nil
	go func() {
		v, err := g.ask(g.life, func(part *T) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.part = part
		})
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running, g.part, now.err = nil, nil, err
		if g.whole, g.at, g.took = v, g.now(), g.now().Sub(begun); err != nil {
			g.whole, g.failed = nil, now
		}
		close(now.done)
	}()
}

// Several are Growings by what they are of; those that were asked for last are kept.
type Several[K comparable, T any] struct {
	life context.Context
	ask  func(ctx context.Context, of K, tell func(*T)) (*T, error)

	mu  sync.Mutex
	all *lru.Cache[K, *Growing[T]]
}

// mostGrowing is how many of Several are kept.
const mostGrowing = 64

// GrowSeveral makes Several of what ask answers.
func GrowSeveral[K comparable, T any](life context.Context,
	ask func(ctx context.Context, of K, tell func(*T)) (*T, error)) *Several[K, T] {
	all, _ := lru.New[K, *Growing[T]](mostGrowing) // which fails for no room alone
	return &Several[K, T]{life: life, ask: ask, all: all}
}

// Of is the Growing of k.
func (s *Several[K, T]) Of(k K) *Growing[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.all.Get(k)
	if !ok {
		g = Grow(s.life, func(ctx context.Context, tell func(*T)) (*T, error) { return s.ask(ctx, k, tell) })
		s.all.Add(k, g)
	}
	return g
}
