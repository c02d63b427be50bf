package patient

import (
	"context"
	"errors"
	"sync"

	"ckptfs/cas/remote/bucket"
)

// raise is how many requests have to go well before one more is made at a time.
const raise = 10

// limit is how many requests are made at a time.
//
//	1 ≤ now ≤ most;  under ≤ most
type limit struct {
	mu    sync.Mutex
	most  int
	now   int
	under int
	well  int // since now changed
	// halved counts how often now was halved: requests that began before tell nothing of what is now.
	halved  int
	waiting []chan struct{}
}

func newLimit(most int) *limit { return &limit{most: max(most, 1), now: max(most, 1)} }

// begin waits for a request's turn. done is told how it ended.
func (l *limit) begin(ctx context.Context) (done func(error), err error) {
	l.mu.Lock()
	for l.under >= l.now {
		turn := make(chan struct{})
		l.waiting = append(l.waiting, turn)
		l.mu.Unlock()
		select {
		case <-turn:
			l.mu.Lock()
		case <-ctx.Done():
			l.leave(turn)
			return nil, &bucket.Error{Op: "wait", Kind: bucket.ErrUnreachable, Err: ctx.Err()}
		}
	}
	defer l.mu.Unlock()
	return l.takeLocked(), nil
}

func (l *limit) takeLocked() (done func(error)) {
	l.under++
	at := l.halved
	return func(err error) { l.end(at, err) }
}

// try is begin for a request that need not be made; false: it is nobody's turn.
func (l *limit) try() (done func(error), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.under >= l.now {
		return nil, false
	}
	return l.takeLocked(), true
}

// leave takes one out of the queue who waits no more, or hands its turn on.
func (l *limit) leave(turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.waiting {
		if w == turn {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return
		}
	}
	l.wake()
}

func (l *limit) end(at int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.under >= l.now // else it says nothing of whether more can be made
	l.under--
	switch {
	case errors.Is(err, bucket.ErrBusy):
		if at == l.halved {
			l.now, l.well = max(l.now/2, 1), 0
			l.halved++
		}
	case err == nil && full:
		if l.well++; l.well >= raise && l.now < l.most {
			l.now, l.well = l.now+1, 0
		}
	}
	l.wake()
}

// wake lets as many go as there is room for.
func (l *limit) wake() {
	for n := l.now - l.under; n > 0 && len(l.waiting) > 0; n-- {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}
