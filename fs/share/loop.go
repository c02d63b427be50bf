package share

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/fs/control"
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
	s.lazy.looked(known)
	s.end.Go(func() { s.lazy.tellings.Run(ctx, s.o.Kernel) })
	s.end.Go(func() { s.lazy.refresh(ctx) })
	if s.o.Poll > 0 {
		s.end.Go(func() { s.poll(ctx) })
	}
	if publish && !s.o.Joined.ReadOnly() {
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
		default:
			pause = 0
			s.contact()
			s.lazy.refresh(ctx)
		}
		s.unreached(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(s.o.Poll, pause/2+rand.N(pause+1))):
		}
	}
}

// unreached notes why the remote is not reached, or that it is, and reports news once.
func (s *Share) unreached(err error) {
	was := s.noteOffline(err)
	switch {
	case err != nil && (was == nil || was.Why != err.Error()):
		s.o.Report(slog.LevelWarn, "the remote is not reached: names are as they were seen last", "reason", err)
	case err == nil && was != nil:
		s.o.Report(slog.LevelInfo, "the remote is reached again", "since", was.Since)
	}
}

// noteOffline notes what a request says of the remote, and returns what was noted before.
func (s *Share) noteOffline(err error) (was *control.Offline) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.status.Offline
	s.status.Offline = offline(err, was, s.o.Now())
	return was
}

// offline is what a failed request says of the remote, which was offline before if was is not nil.
func offline(err error, was *control.Offline, now time.Time) *control.Offline {
	if err == nil {
		return nil
	}
	o := &control.Offline{Since: now, Why: err.Error()}
	if was != nil {
		o.Since = was.Since
	}
	switch {
	case errors.Is(err, bucket.ErrDenied):
		o.Do = "give it credentials that are valid: in ~/.aws, or in the environment of a new mount"
	case errors.Is(err, bucket.ErrNoBucket), errors.Is(err, bucket.ErrNotFound):
		o.Do = "look whether the bucket is where `ckptfs remote status` says"
	default:
		o.Do = "it is asked again by itself: look at the network and the object store"
	}
	return o
}

// noteWhy notes in a field of the status why something fails, and reports whether that is to be told: it does
// not fail as it did the last time.
func (s *Share) noteWhy(field *string, err error) (news bool) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	news = err != nil && *field != why
	*field = why
	return news
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
			s.fails(err)
			wait.Reset(pause/2 + rand.N(pause))
			continue
		}
		pause = 0
		s.fails(nil)
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

// fails notes why nothing is published now, and reports it once.
func (s *Share) fails(err error) {
	if s.noteWhy(&s.status.Problem, err) && !errors.Is(err, context.Canceled) {
		s.o.Report(slog.LevelWarn, "nothing is published now; it is tried again", "reason", err)
	}
}
