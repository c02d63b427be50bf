// Package models knows which files are models, which came from which, whose each tensor is, and which is most
// like an architecture: the ledger, brought up to date with the tree (reconcile.go).
//
// A model is a packed file with tensors below runs/, once its step is complete. The tree and the records of
// its files are the truth about which there are; only numbers, parents and tombstones are the ledger's own,
// and lie in segments as records of kind cas.Event. So a crash may lose any number of the last events: what
// the tree shows is entered again, what it no longer shows becomes a tombstone. An event is written after the
// record of the file that it is about, never before.
//
// Architectures are found by package prefix, in a catalogue of the live models. A snapshot of it spares the
// next start to make it again. After an end in order matches are answered from that alone, with no ledger
// read and no tree looked at, until something changes; and the first look passes over the steps in which
// nothing was touched since (left.go).
//
// Locks: Models.mu guards the ledger, and is held over whatever brings it up to date. Of the locks of fs only
// query.mu and DirHandle.mu come before it. Under it Steps.mu and the locks of files may be taken. Queries of
// what is known (MatchOptions.AsKnown) take the catalogue's lock alone, which is a leaf.
package models

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/codec"
	"ckptfs/cas/disk"
	"ckptfs/cas/locks"
	"ckptfs/cas/store"
	"ckptfs/fs/inspect"
	"ckptfs/fs/steps"
	"ckptfs/index/ledger"
	"ckptfs/index/manifest"
)

// The locks of this package, in the order in which they may be taken.
type (
	bookLock  struct{} // Models.mu
	leafLock  struct{} // graphParts.mu and graphCache.mu
	knownLock struct{} // catalogue.mu, which a search of index/prefix takes under its own
)

func (bookLock) Rank() (int, string)  { return locks.Volume + 1, "Models.mu" }
func (leafLock) Rank() (int, string)  { return locks.Volume + 970, "graphParts.mu or graphCache.mu" }
func (knownLock) Rank() (int, string) { return locks.Index + 900, "catalogue.mu" }

// Files is what of the tree is read for models. An inode number says which inode was seen at a path; the
// error is ENOENT when another is there. 0: any may be.
type Files interface {
	// OpenInode finds a file and pins it.
	OpenInode(path string, ino uint64) (inspect.File, error)
	// Record is what is recorded of a regular file.
	Record(path string, ino uint64) (Record, error)
	// Attribute is the value of an extended attribute.
	Attribute(path string, ino uint64, name string) ([]byte, error)
	// Source is the path that a view stands for, or the path.
	Source(path string) string
}

// Record is what is recorded of a file.
type Record struct {
	Manifest cas.Hash // zero: it is not packed
	Mtime    int64    // nanoseconds since 1970, as it was packed
	Waits    bool     // it is to be packed
}

// Options say what Models are of.
type Options struct {
	Folder   *disk.Folder // the store's, for the catalogue's snapshot
	ReadOnly bool
	Files    Files
	Steps    *steps.Steps
	Inspect  *inspect.Inspector
	Store    *store.Store
	Manifest func(h cas.Hash) (*manifest.Manifest, error)

	Mountpoint func() string   // where absolute paths are below
	Pending    func() []string // paths of files that wait to be packed
	// waits, for a bounded time, until every writer that was closed is released
	Released func(ctx context.Context)
	// whether the last process left word that a catalogue of this hash is all that was known (Models.Known)
	Known  func(catalogue cas.Hash) bool
	Step   func(what string) error // called before each change on the disk; for tests
	Now    func() time.Time
	Report func(level slog.Level, msg string, args ...any)
}

// Models are those of a tree.
type Models struct {
	o Options

	mu   locks.Mutex[bookLock]
	book *ledger.Ledger // nil: not read yet
	// how often the records in use became others without book.Gen
	recorded uint64
	seen     map[string]*steps.Step // by "run/step": what the book was brought up to date with
	settled  uint64                 // steps.gen of when nothing was left to enter; 0: something is
	// foreign are records of a later version; they are kept.
	foreign  []cas.Hash
	problems map[string]string        // of steps: what was wrong with what they say of themselves
	said     atomic.Pointer[[]string] // the problems, for Status
	refused  atomic.Pointer[refusal]  // the last query or attribute that was none

	parts     graphParts
	graphs    graphCache
	catalogue atomic.Pointer[catalogue] // nil: no match was asked for yet
	// a step was looked at since the catalogue was: its quality may be another
	recheck bool

	left          atomic.Pointer[catalogue] // as the last process left it, until there is another; or nil
	lookedForLeft bool
	presumed      bool // presumeLocked was called
	useless       bool // the file that the last process left cannot be read

	stale      atomic.Bool // something was packed below runs/ since the last settle began
	background background
}

// background is the goroutine that brings the ledger up to date.
type background struct {
	wake   chan struct{}
	stop   chan struct{} // nil: it does not run
	cancel context.CancelFunc
	ended  chan struct{}
}

const (
	settleDelay = time.Second      // lets a save end before it is looked at
	lastSettle  = 10 * time.Second // bounds what is done at the end
)

// New makes Models of which nothing is read yet.
func New(o Options) *Models {
	return &Models{o: o, seen: map[string]*steps.Step{}, problems: map[string]string{},
		background: background{wake: make(chan struct{}, 1)}}
}

// Start begins the work in the background.
func (m *Models) Start() {
	b := &m.background
	b.stop, b.ended = make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	go func() {
		defer close(b.ended)
		for {
			select {
			case <-b.stop:
				return
			case <-b.wake:
			}
			select {
			case <-b.stop:
				return
			case <-time.After(settleDelay):
			}
			m.Keep(ctx)
		}
	}()
}

// Stop ends the work in the background.
func (m *Models) Stop() {
	b := &m.background
	if b.stop == nil {
		return
	}
	close(b.stop)
	b.cancel()
	<-b.ended
	b.stop = nil
}

// Finish does what is left of the work, behind Stop. What there is no time for is found by the next start.
func (m *Models) Finish() {
	ctx, cancel := context.WithTimeout(context.Background(), lastSettle)
	defer cancel()
	m.Keep(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o.ReadOnly || m.asBeforeLocked() {
		return
	}
	if _, was := m.wasKnownLocked(); m.catalogue.Load() == nil && !was {
		return
	}
	err := m.settleLocked(ctx)
	if err == nil && m.settled == 0 {
		err = m.settleLocked(ctx) // it sees that the first left nothing
	}
	if err == nil {
		m.upToDateLocked()
	}
	if c := m.catalogue.Load(); c != nil && !c.savedAsOf(m.book.Gen, len(m.problems)) {
		m.saveCatalogueLocked(0)
	}
}

// refusal is why a query, or an attribute, was refused.
type refusal struct {
	what string
	err  error
}

// Judge notes whether a query, or an attribute, was refused, and why.
func (m *Models) Judge(what string, err error) {
	if err != nil {
		m.refused.Store(&refusal{what, err})
	} else if last := m.refused.Load(); last != nil && last.what == what {
		m.refused.CompareAndSwap(last, nil)
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
	err := m.settleLocked(ctx)
	if err == nil && m.cataloguedLocked() {
		m.upToDateLocked()
		m.saveCatalogueLocked(saveAfter)
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
}

// Refresh has the problems be those of now, unless the ledger was not asked for yet, or it is being
// brought up to date.
func (m *Models) Refresh(ctx context.Context) {
	if !m.mu.TryLock() {
		return
	}
	defer m.mu.Unlock()
	if m.book == nil {
		return
	}
	if err := m.settleLocked(ctx); err == nil && len(m.book.Changed()) > 0 {
		m.Rouse()
	}
}

// loadLocked reads the ledger.
func (m *Models) loadLocked() error {
	m.mu.AssertHeld()
	if m.book != nil {
		return nil
	}
	var entries []*ledger.Entry
	m.foreign = nil
	bad, err := m.o.Store.Each(cas.Event, func(h cas.Hash, raw []byte) error {
		if strings.HasPrefix(string(raw), ledger.GraphMagic) {
			return nil
		}
		e, err := ledger.Decode(raw)
		switch {
		case errors.Is(err, cas.ErrNewer):
			m.foreign = append(m.foreign, h)
		case err != nil:
			m.o.Report(slog.LevelWarn, "a record of a model is damaged, and passed over", "reason", err)
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
		m.o.Report(slog.LevelWarn, "records of models cannot be read: parents may be missing", "records", bad)
	}
	book, problems := ledger.New(entries)
	for _, p := range problems {
		m.o.Report(slog.LevelWarn, "lineage", "reason", p)
	}
	m.book = book
	return nil
}

// recordLocked makes what changed durable.
func (m *Models) recordLocked() error {
	m.mu.AssertHeld()
	changed := m.book.Changed()
	if len(changed) == 0 || m.o.ReadOnly {
		return nil
	}
	if err := m.o.Step("models: record"); err != nil {
		return err
	}
	b := m.o.Store.Begin()
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
	m.recorded++
	for i, e := range changed {
		m.book.Recorded(e, hashes[i])
	}
	return nil
}

// Mark keeps the records of the ledger, when it is swept those of tombstones that nothing needs any more
// excepted.
func (m *Models) Mark(sweep bool, keep func(cas.Hash)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.loadLocked(); err != nil {
		return err
	}
	if sweep && m.book.Sweep() > 0 {
		m.recorded++
	}
	m.recordsLocked(keep)
	return nil
}

// Records is Mark for a caller who knows what it was at a version. keep is not called when nothing changed
// since. The first version is 1.
func (m *Models) Records(version uint64, keep func(cas.Hash)) (now uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.loadLocked(); err != nil {
		return version, err
	}
	now = 1 + m.book.Gen + m.recorded
	if now != version {
		m.recordsLocked(keep)
	}
	return now, nil
}

func (m *Models) recordsLocked(keep func(cas.Hash)) {
	m.mu.AssertHeld()
	m.book.Records(keep)
	for _, h := range m.foreign {
		keep(h)
	}
}

// Problems are what is wrong with what steps say of themselves, as of the last look.
func (m *Models) Problems() []string {
	if said := m.said.Load(); said != nil {
		return *said
	}
	return nil
}

// Refused is the last query, or attribute, that was refused, and why; "" when it was put right.
func (m *Models) Refused() string {
	if q := m.refused.Load(); q != nil {
		return q.what + ": " + q.err.Error()
	}
	return ""
}

// Stale reports whether something is to be brought up to date, or made durable.
func (m *Models) Stale() bool { return m.stale.Load() }

// Unsaved is the number of changes of the catalogue since its snapshot.
func (m *Models) Unsaved() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.catalogue.Load(); c != nil {
		return c.unsaved
	}
	return 0
}

// Entries are the models at or below a path, retired ones too, as the ledger was brought up to date last.
func (m *Models) Entries(path string) []*ledger.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.book == nil {
		return nil
	}
	return slices.Clone(m.book.At(path))
}

// Reconcile brings the ledger up to date with the tree. looked is false where nothing can be another than it
// was; before is what it was up to date with, of Steps.Since, 0: something was left to enter.
func (m *Models) Reconcile(ctx context.Context) (looked bool, before uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.settled
	looked, err = m.reconcileLocked(ctx)
	return looked, before, err
}
