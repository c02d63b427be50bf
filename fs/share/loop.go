package share

import (
	"context"
	"math/rand/v2"
	"time"

	"ckptfs/fs/steps"
)

// Pauses after a failure: the first is as long as firstPause, each that follows twice as long up to longest.
const (
	firstPause = time.Second
	longest    = 5 * time.Minute
)

// Start asks from here on what others publish, and with publish set publishes what is complete, in the
// background. known are folders of which the kernel may know names already.
func (s *Share) Start(publish bool, known []string) {
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.background = stop, ctx
	s.publishes = publish && !s.o.Joined.ReadOnly()
	s.lazy.looked(known)
	s.end.Go(func() { s.lazy.tellings.Run(ctx, s.o.Kernel) })
	s.end.Go(func() { s.lazy.refresh(ctx) })
	if s.o.Poll > 0 {
		s.end.Go(func() { s.poll(ctx) })
	}
	if s.publishes {
		s.end.Go(func() { s.loop(ctx) })
	}
}

// Go calls f in the background; the end of ctx tells that it is to end, and Stop waits for that. It comes
// after Start.
func (s *Share) Go(f func(ctx context.Context)) { s.end.Go(func() { f(s.background) }) }

// poll asks what others publish.
func (s *Share) poll(ctx context.Context) {
	pause := time.Duration(0)
	for {
		_, err := s.lazy.fetch(ctx, s.heads.Poll)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = min(max(2*pause, s.o.Poll), longest)
			s.contact.Failed(err)
		default:
			pause = 0
			s.contact.Reached()
			s.lazy.refresh(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(s.o.Poll, pause/2+rand.N(pause+1))):
		}
	}
}

func (s *Share) loop(ctx context.Context) {
	pause := time.Duration(0)
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		case <-s.contact.Again():
		case <-s.wake:
			if pause > 0 { // the engine is not asked more often because programs save
				continue
			}
		}
		soon, gaveWay, err := s.publish(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case gaveWay:
			wait.Reset(firstPause) // by then the other push has begun, and this one waits for it
			continue
		case err != nil:
			pause = min(max(2*pause, firstPause), longest)
			s.contact.Paused(err)
			wait.Reset(pause/2 + rand.N(pause))
			continue
		}
		pause = 0
		s.contact.Paused(nil)
		if !soon.IsZero() {
			wait.Reset(max(soon.Sub(s.o.Now()), 10*time.Millisecond))
		}
	}
}

// publish publishes what is complete, unless it has to give way to another push.
func (s *Share) publish(ctx context.Context) (soon time.Time, gaveWay bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.unasked.Set(cancel)
	defer s.unasked.Set(nil)
	_, soon, err = s.push(ctx, steps.Dir, asked{}, nil)
	return soon, err != nil && ctx.Err() != nil, err
}
