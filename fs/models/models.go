package models

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/fs/steps"
	"ckptfs/index/ledger"
)

// models knows which files are models and which came from which: the ledger, brought up to date with the tree.
//
// A model is a packed file with tensors below runs/, once its step is complete. The tree and the records of its files are the
// truth about which there are; only numbers, parents and tombstones are the ledger's own, and lie in segments as records of kind
// cas.Event. So a crash may lose any number of the last events: what the tree shows is entered again, what it no longer
// shows becomes a tombstone. An event is written after the record of the file that it is about, never before.
//
// mu is taken before steps.mu and any lock of a file.
type models struct {
	mu      sync.Mutex
	book    *ledger.Ledger         // nil: not read yet
	seen    map[string]*steps.Step // by "run/step": what the book was brought up to date with
	settled uint64                 // steps.gen of when nothing was left to enter; 0: something is
	// foreign are records of a later version; they are kept.
	foreign  []cas.Hash
	problems map[string]string        // of steps: what was wrong with what they say of themselves
	said     atomic.Pointer[[]string] // the problems, for Status
	refused  atomic.Pointer[refusal]  // the last query or attribute that was none

	parts     graphParts
	graphs    graphCache
	catalogue atomic.Pointer[catalogue] // nil: nobody has asked yet
	recheck   bool                      // a step was looked at since the catalogue was: its quality may be another

	stale  atomic.Bool // something was packed below runs/ since the last settle began
	wake   chan struct{}
	stop   chan struct{}
	cancel context.CancelFunc
	ended  chan struct{}
}

const (
	settleDelay = time.Second      // lets a save end before it is looked at
	lastSettle  = 10 * time.Second // bounds what is done at the end
)

func newModels() *models {
	return &models{seen: map[string]*steps.Step{}, problems: map[string]string{}, wake: make(chan struct{}, 1)}
}

// start begins the work in the background.
func (m *models) start(v *Volume) {
	m.stop, m.ended = make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.ended)
		for {
			select {
			case <-m.stop:
				return
			case <-m.wake:
			}
			select {
			case <-m.stop:
				return
			case <-time.After(settleDelay):
			}
			v.keepModels(ctx)
		}
	}()
}

// end stops the work in the background, and does what is left of it.
func (m *models) end(v *Volume) {
	if m.stop == nil {
		return
	}
	close(m.stop)
	m.cancel()
	<-m.ended
	m.stop = nil
	v.queries.drop(v)
	// What there is no time for is found by the next start.
	ctx, cancel := context.WithTimeout(context.Background(), lastSettle)
	defer cancel()
	v.keepModels(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saveCatalogue(v, 1)
}

// refusal is why a query, or an attribute, was refused.
type refusal struct {
	what string
	err  error
}

// judged notes whether a query, or an attribute, was refused, and why.
func (m *models) judged(what string, err error) {
	if err != nil {
		m.refused.Store(&refusal{what, err})
	} else if last := m.refused.Load(); last != nil && last.what == what {
		m.refused.CompareAndSwap(last, nil)
	}
}

// notePacked notes that a file got a manifest. f.mu is held.
func (v *Volume) notePacked(n *Node) {
	v.names.ns.RLock()
	below := n.underRuns()
	v.names.ns.RUnlock()
	if !below {
		return
	}
	v.steps.Changed(n.ino)
	v.models.rouse()
}

// rouse has the ledger brought up to date, and recorded, in the background.
func (m *models) rouse() {
	m.stale.Store(true)
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// keepModels brings the ledger up to date and makes it durable, if there is something to do. What fails is tried again.
func (v *Volume) keepModels(ctx context.Context) {
	if v.readOnly || !v.models.stale.Load() {
		return
	}
	m := v.models
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.settle(ctx, v)
	if err == nil && m.catalogue.Load() != nil {
		m.upToDate(v)
		m.saveCatalogue(v, saveAfter)
	}
	if m.book != nil { // also what was entered before it was cut short
		err = errors.Join(err, m.record(v))
	}
	if err != nil {
		m.stale.Store(true)
	}
	if err != nil && ctx.Err() == nil {
		v.report(slog.LevelWarn, "what came from which is not recorded yet", "reason", err)
	}
}

// refresh has the problems be those of now, unless nobody has asked for the ledger yet, or it is being brought up to date.
func (m *models) refresh(ctx context.Context, v *Volume) {
	if !m.mu.TryLock() {
		return
	}
	defer m.mu.Unlock()
	if m.book == nil {
		return
	}
	if err := m.settle(ctx, v); err == nil && len(m.book.Changed()) > 0 {
		m.rouse()
	}
}

// load reads the ledger. m.mu is held.
func (m *models) load(v *Volume) error {
	if m.book != nil {
		return nil
	}
	var entries []*ledger.Entry
	m.foreign = nil
	bad, err := v.store.Each(cas.Event, func(h cas.Hash, raw []byte) error {
		if strings.HasPrefix(string(raw), ledger.GraphMagic) {
			return nil
		}
		e, err := ledger.Decode(raw)
		switch {
		case errors.Is(err, cas.ErrNewer):
			m.foreign = append(m.foreign, h)
		case err != nil:
			v.report(slog.LevelWarn, "a record of a model is damaged, and passed over", "reason", err)
		default:
			e.Record = h
			entries = append(entries, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if bad > 0 {
		v.report(slog.LevelWarn, "records of models cannot be read: parents may be missing", "records", bad)
	}
	book, problems := ledger.New(entries)
	for _, p := range problems {
		v.report(slog.LevelWarn, "lineage", "reason", p)
	}
	m.book = book
	return nil
}

// record makes what changed durable. m.mu is held.
func (m *models) record(v *Volume) error {
	changed := m.book.Changed()
	if len(changed) == 0 || v.readOnly {
		return nil
	}
	if err := v.content.step("models: record"); err != nil {
		return err
	}
	b := v.store.Begin()
	defer b.Release()
	for h, p := range m.parts.all() {
		if _, err := b.Put(cas.Event, h, p, codec.Hint{}); err != nil {
			return err
		}
	}
	hashes := make([]cas.Hash, len(changed))
	for i, e := range changed {
		p, err := e.Encode()
		if err != nil {
			return err
		}
		hashes[i] = cas.Sum(p)
		if _, err := b.Put(cas.Event, hashes[i], p, codec.Hint{}); err != nil {
			return err
		}
	}
	if err := b.Commit(); err != nil {
		return err
	}
	m.parts.clear()
	for i, e := range changed {
		m.book.Recorded(e, hashes[i])
	}
	return nil
}

// markModels keeps the records of the ledger, when it is swept those of tombstones that nothing needs any more excepted.
func (v *Volume) markModels(sweep bool, keep func(cas.Hash)) error {
	m := v.models
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.load(v); err != nil {
		return err
	}
	if sweep {
		m.book.Sweep()
	}
	m.book.Records(keep)
	for _, h := range m.foreign {
		keep(h)
	}
	return nil
}
