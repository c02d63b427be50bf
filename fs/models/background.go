package models

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// background is what brings the ledger up to date without a caller.
type background struct {
	wake   chan struct{}
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	ended  chan struct{} // the goroutine's; nil: it was not started

	alterations uint64 // of Rest
	rested      bool   // since then
}

const (
	settleDelay = time.Second            // lets a save end before it is looked at
	patience    = 500 * time.Millisecond // of Refresh
	settleGrace = 2 * time.Second        // of Settle
	lastSettle  = time.Second            // bounds what is done at the end
	// A look takes time in proportion to all steps. As many times as long as the last one took the next one
	// waits, and no longer than mostRest.
	restAfter = 20
	mostRest  = time.Minute
	// As long nothing may change for Rest, which writes the whole catalogue.
	quiet = 2 * time.Minute
)

// Start begins the work in the background.
func (m *Models) Start() {
	b := &m.background
	b.ended = make(chan struct{})
	go func() {
		defer close(b.ended)
		still := time.NewTicker(quiet)
		defer still.Stop()
		for rest := settleDelay; ; {
			select {
			case <-b.ctx.Done():
				return
			case <-still.C:
				m.Rest(b.ctx)
				continue
			case <-b.wake:
			}
			select {
			case <-b.ctx.Done():
				return
			case <-time.After(rest):
			}
			start := time.Now()
			m.Keep(b.ctx)
			rest = min(max(settleDelay, restAfter*time.Since(start)), mostRest)
		}
	}()
}

// Stop ends the work in the background, and waits for it.
func (m *Models) Stop() {
	b := &m.background
	b.cancel()
	if b.ended != nil {
		<-b.ended
	}
	m.mu.Lock() // Settle and Refresh may go on
	defer m.mu.Unlock()
}

// Finish does what is left of the work, behind Stop. What there is no time for is found by the next start.
func (m *Models) Finish() {
	ctx, cancel := context.WithTimeout(context.Background(), lastSettle)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o.ReadOnly {
		return
	}
	_, was := m.wasKnownLocked()
	leaves := (m.catalogue.Load() != nil || was) && !m.asBeforeLocked()
	if leaves || m.stale.Load() {
		m.keepLocked(ctx, leaves)
	}
	if c := m.catalogue.Load(); leaves && c != nil && !c.savedAsOf(m.book.Gen, len(m.problems)) {
		m.saveCatalogueLocked()
	}
}

// Rouse has the ledger brought up to date, and recorded, in the background.
func (m *Models) Rouse() {
	m.stale.Store(true)
	select {
	case m.background.wake <- struct{}{}:
	default:
	}
}

// Keep brings the ledger up to date and makes it durable, if there is something to do. What fails is tried
// again.
func (m *Models) Keep(ctx context.Context) {
	if m.o.ReadOnly || !m.stale.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.o.Steps.Alterations(); ctx.Err() == nil && m.keepLocked(ctx, m.cataloguedLocked()) {
		if c := m.catalogue.Load(); c != nil && c.worthSaving() {
			m.saveCatalogueLocked()
		}
		settleFor(m, n)
	}
}

// Rest has a process that comes after a kill know what this one knows, if nothing changed since the last call
// of Rest. One goroutine calls it.
func (m *Models) Rest(ctx context.Context) {
	b := &m.background
	n := m.o.Steps.Alterations()
	if n != b.alterations {
		b.alterations, b.rested = n, false
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.rested || m.o.ReadOnly || m.catalogue.Load() == nil || !m.keepLocked(ctx, true) {
		return
	}
	b.rested = true
	if !m.catalogue.Load().savedAsOf(m.book.Gen, len(m.problems)) {
		m.saveCatalogueLocked()
	}
	settleFor(m, n)
}

// settleFor tells a process that comes after a kill, if the catalogue's file is all that is known, and
// nothing changed since Steps.Alterations was n.
func settleFor(m *Models, n uint64) {
	m.mu.AssertHeld()
	if h, ok := m.knownLocked(); ok && len(m.o.Pending()) == 0 {
		m.o.Settled(h, n)
	}
}

// keepLocked brings the ledger up to date, or reports false, and makes it durable.
func (m *Models) keepLocked(ctx context.Context, catalogue bool) bool {
	m.mu.AssertHeld()
	err := m.settleLocked(ctx)
	settled := err == nil
	if settled && catalogue {
		m.upToDateLocked()
	}
	if m.book != nil { // also what was entered before it was cut short
		err = errors.Join(err, m.recordLocked())
	}
	if err != nil {
		m.stale.Store(true)
	}
	if err != nil && ctx.Err() == nil {
		m.o.Report(slog.LevelWarn, "lineage not recorded yet; will retry", "reason", err)
	}
	return settled
}

// Settle is Keep, and waits for one that is under way. It goes on without the caller if it takes long.
func (m *Models) Settle(ctx context.Context) {
	m.background.do(ctx, settleGrace, func(ctx context.Context) {
		m.mu.Lock() // which is held until what was found is recorded
		//lint:ignore SA2001 taken only to wait for its holder
		m.mu.Unlock()
		m.Keep(ctx)
	})
}

// Refresh has the problems be those of now, unless the ledger was not asked for yet, or it is being brought
// up to date. It goes on without the caller if it takes long.
func (m *Models) Refresh(ctx context.Context) {
	m.background.do(ctx, patience, func(ctx context.Context) {
		if !m.mu.TryLock() {
			return
		}
		defer m.mu.Unlock()
		if m.book == nil || ctx.Err() != nil {
			return
		}
		if err := m.settleLocked(ctx); err == nil && len(m.book.Changed()) > 0 {
			m.Rouse()
		}
	})
}

// do begins what goes on until it is done, or until Stop, and waits for it for a bounded time.
func (b *background) do(ctx context.Context, atMost time.Duration, what func(ctx context.Context)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		what(b.ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(atMost):
	}
}
