// Package contact is what is known of whether a remote answers: for those who wait at a terminal, who are to
// hear within a moment that it does not, and for the status.
package contact

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/patient"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
)

// Options say of what a Contact is.
type Options struct {
	Bucket bucket.Bucket
	URL    string
	Now    func() time.Time
	Report func(level slog.Level, msg string, args ...any)
}

// Contact is that with one remote.
type Contact struct {
	o     Options
	again chan struct{}

	mu      sync.Mutex
	last    time.Time // when it answered last
	offline *control.Offline
	problem string // why nothing is published in the background
}

// New knows nothing yet.
func New(o Options) *Contact { return &Contact{o: o, again: make(chan struct{}, 1)} }

// Again says when what failed is worth another try: the remote is reached again, or takes again what is
// published.
func (c *Contact) Again() <-chan struct{} { return c.again }

func (c *Contact) tryAgain() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// Answers returns an error if the remote cannot be reached. It costs one request, and waits for no other.
func (c *Contact) Answers(ctx context.Context) error {
	_, _, err := bucket.Read(patient.Promptly(ctx), c.o.Bucket, record.FormatKey, 1<<10, "")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !errors.Is(err, bucket.ErrUnreachable) { // whatever else it is, there is somebody who says it
		return nil
	}
	c.Failed(err)
	return fmt.Errorf("%s does not answer: %w", c.o.URL, err)
}

// soon is within what a remote that answers has done what takes some requests.
const soon = time.Second

// Answering does what takes some requests, or waits for others' requests. If that is not done soon the remote
// is asked whether it answers; if it does not, what is done ends behind the caller, and the error says so.
func (c *Contact) Answering(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	select {
	case err := <-done:
		return err
	case <-time.After(soon):
	case <-ctx.Done():
	}
	if err := c.Answers(ctx); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reached notes that the remote answered.
func (c *Contact) Reached() {
	c.mu.Lock()
	c.last = c.o.Now()
	was := c.offline
	c.offline = nil
	c.mu.Unlock()
	if was != nil {
		c.o.Report(slog.LevelInfo, "the remote is reached again", "since", was.Since)
		c.tryAgain()
	}
}

// Failed notes why the remote is not reached, and reports it once.
func (c *Contact) Failed(err error) {
	c.mu.Lock()
	was := c.offline
	c.offline = offline(err, was, c.o.Now())
	c.mu.Unlock()
	if was == nil || was.Why != err.Error() {
		c.o.Report(slog.LevelWarn, "the remote is not reached: names are as they were seen last", "reason", err)
	}
}

// Noted is err. If that is that the remote is not reached, it is Failed.
func (c *Contact) Noted(err error) error {
	if errors.Is(err, bucket.ErrUnreachable) {
		c.Failed(err)
	}
	return err
}

// Published notes that the remote took something.
func (c *Contact) Published() {
	c.Reached()
	if c.pause("") != "" {
		c.tryAgain()
	}
}

// Paused notes why nothing is published in the background, and reports it once; nil: nothing waits.
func (c *Contact) Paused(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if was := c.pause(why); err != nil && was != why && !errors.Is(err, context.Canceled) {
		c.o.Report(slog.LevelWarn, "nothing is published now; it is tried again", "reason", err)
	}
}

func (c *Contact) pause(why string) (was string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, c.problem = c.problem, why
	return was
}

// Tell says in a status what is known.
func (c *Contact) Tell(st *control.RemoteStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st.LastContact, st.Offline, st.Problem = c.last, c.offline, c.problem
}

// offline is what a failed request says of the remote, which was offline before if was is not nil.
func offline(err error, was *control.Offline, now time.Time) *control.Offline {
	o := &control.Offline{Since: now, Why: err.Error()}
	if was != nil {
		o.Since = was.Since
	}
	if o.Do = bucket.Advice(err); o.Do == "" || errors.Is(err, bucket.ErrUnreachable) {
		o.Do = "it is asked again by itself: look at the network and the object store"
	}
	return o
}
