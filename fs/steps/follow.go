package steps

import (
	"context"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"ckptfs/cas/locks"
	"ckptfs/fs/control"
)

// Follow tells of each step of the run at a path that becomes complete, in the order of the steps, until tell
// or ctx ends it: with a number in its name if any step has one, and whole as for Last. tell is called with
// that step and the complete one before it; nil: there is none.
//
// A saver of several files closes one before it makes the next. So a step is told of once it has as many
// files as the one before it, or when it has not changed for o.Settle.
//
// The steps that are complete when it is called are passed over, but those behind o.From, and with o.All none
// is. tell is called for these first: without a step, but with the last of them, if there is one. It is
// ENOENT if there is no such run or step.
func (s *Steps) Follow(ctx context.Context, p string, o control.FollowOptions,
	tell func(st, before *Step) error) error {
	w := &follower{s: s, o: o, told: map[string]bool{}, since: map[string]seen{}}
	for first := true; ; first = false {
		changed := s.news.next()
		_, all, err := s.Run(ctx, "watch", p)
		if err != nil {
			return err
		}
		if first {
			last, err := w.begin(p, all)
			if err == nil {
				err = tell(nil, last)
			}
			if err != nil {
				return err
			}
		}
		again, err := w.look(all, tell)
		if err != nil {
			return err
		}
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-changed: // others will follow at once
			timer.Reset(lookPause)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		case <-timer.C:
		}
	}
}

// lookAgain is after what time a run is looked at again, though nothing is known to have changed in it.
const lookAgain = 5 * time.Second

// lookPause is the least time between two looks.
const lookPause = 10 * time.Millisecond

// follower is what Follow knows.
type follower struct {
	s     *Steps
	o     control.FollowOptions
	told  map[string]bool // or passed over
	since map[string]seen // of what is not told of yet
}

// seen is how a step was at a time.
type seen struct {
	files  int
	size   int64
	latest time.Time // when a file was written last
	at     time.Time
}

// begin passes over what is there, and returns the last of it.
func (w *follower) begin(p string, all []*Step) (last *Step, err error) {
	if w.o.All {
		return nil, nil
	}
	states := whole(all, w.s.States())
	end := len(all)
	if w.o.From != "" {
		end = 1 + slices.IndexFunc(all, func(st *Step) bool { return st.Name == w.o.From })
		if end == 0 {
			return nil, control.NotFound("%s: the run has no such step", path.Join(p, w.o.From))
		}
	}
	for _, st := range states[:end] {
		if st != nil {
			w.told[st.Name], last = true, st
		}
	}
	return last, nil
}

// look tells of what is complete by now, and returns when to look again.
func (w *follower) look(all []*Step, tell func(st, before *Step) error) (again time.Duration, err error) {
	again = lookAgain
	if of := numbered(all); len(of) > 0 {
		all = of
	}
	var before *Step
	for _, st := range whole(all, w.s.States()) {
		if st == nil {
			continue
		}
		if !w.told[st.Name] {
			if left := w.unsettled(st, before); left > 0 {
				again = min(again, left)
				return again, nil // those behind it come behind it
			}
			w.told[st.Name] = true
			delete(w.since, st.Name)
			if err := tell(st, before); err != nil {
				return 0, err
			}
		}
		before = st
	}
	return again, nil
}

// unsettled is for how long a step is to be left alone yet until it counts as all there.
func (w *follower) unsettled(st, before *Step) time.Duration {
	if before != nil && st.Files.Len() >= before.Files.Len() {
		return 0
	}
	now := seen{files: st.Files.Len(), size: st.Size, latest: st.Time, at: time.Now()}
	was, ok := w.since[st.Name]
	if !ok || was.files != now.files || was.size != now.size || !was.latest.Equal(now.latest) {
		w.since[st.Name] = now
		return max(w.o.Settle, time.Millisecond)
	}
	return max(0, w.o.Settle-now.at.Sub(was.at))
}

// news wakes those who wait for a change.
type news struct {
	waiting atomic.Bool
	mu      locks.Mutex[newsLock]
	c       chan struct{}
}

// next is closed with the next change.
func (n *news) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c == nil {
		n.c = make(chan struct{})
	}
	n.waiting.Store(true)
	return n.c
}

// changed wakes them.
func (n *news) changed() {
	if !n.waiting.Load() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c != nil {
		close(n.c)
		n.c = nil
	}
	n.waiting.Store(false)
}
