// Package models knows which files are models, which came from which, whose each tensor is, and which is most
// like an architecture: the ledger, brought up to date with the tree (reconcile.go) for whoever asks about
// models, and otherwise in the background (background.go).
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
// nothing was touched since. A kill is as good as that if nothing was touched since the snapshot was made
// (Settled). After any other it passes over those steps that have the same names, inodes, sizes and ctimes as
// then (left.go).
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
	leafLock  struct{} // graphParts.mu, graphCache.mu and departures.mu
	knownLock struct{} // catalogue.mu, which a search of index/prefix takes under its own
)

func (bookLock) Rank() (int, string) { return locks.Volume + 1, "Models.mu" }
func (leafLock) Rank() (int, string) {
	return locks.Volume + 970, "graphParts.mu, graphCache.mu or departures.mu"
}
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
	Remote   bool     // its bytes are not here: another machine published it
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

	Most int // models, with those that are gone; 0: any number

	Mountpoint func() string   // where absolute paths are below
	Pending    func() []string // paths of files that wait to be packed
	// waits, for a bounded time, until every writer that was closed is released
	Released func(ctx context.Context)
	// whether the last process left word that a catalogue of this hash is all that was known (Models.Known)
	Known func(catalogue cas.Hash) bool
	// notes for the next process, also if this one is killed, that a catalogue of this hash is all that is
	// known, unless the tree changed since Steps.Alterations was n
	Settled func(catalogue cas.Hash, n uint64)
	// names the time since the host last went down with the store open (tree.Lock.Epoch)
	Epoch  func() uint32
	Step   func(what string) error // called before each change on the disk; for tests
	Now    func() time.Time
	Report func(level slog.Level, msg string, args ...any)
}

// Models are those of a tree.
type Models struct {
	o Options

	mu      locks.Mutex[bookLock]
	book    *ledger.Ledger         // nil: not read yet
	version atomic.Uint64          // of the records that the book needs; 0: it was not read
	seen    map[string]*steps.Step // by "run/step": what the book was brought up to date with
	settled uint64                 // steps.gen of the last look; 0: there was none, or it was cut short
	// foreign are records of a later version; they are kept.
	foreign  []cas.Hash
	beyond   bool                     // files were not entered for Options.Most
	problems map[string]string        // of steps: what was wrong with what they say of themselves
	said     atomic.Pointer[[]string] // the problems, for Status

	parts     graphParts
	graphs    graphCache
	catalogue atomic.Pointer[catalogue] // nil: no match was asked for yet
	// a step was looked at since the catalogue was: its quality may be another
	recheck bool

	left          atomic.Pointer[catalogue] // as the last process left it, until there is another; or nil
	lookedForLeft bool
	presumed      bool // presumeLocked was called
	useless       bool // the file that the last process left cannot be read

	refusals
	departures departures
	origins

	stale      atomic.Bool // something was packed below runs/ since the last settle began
	background background
}

// New makes Models of which nothing is read yet.
func New(o Options) *Models {
	m := &Models{o: o, seen: map[string]*steps.Step{}, problems: map[string]string{},
		background: background{wake: make(chan struct{}, 1)}}
	m.origins = newOrigins(m)
	m.background.ctx, m.background.cancel = context.WithCancel(context.Background())
	return m
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
	m.version.Add(1)
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
	for i, e := range changed {
		m.book.Recorded(e, hashes[i])
	}
	m.version.Add(1)
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
		m.version.Add(1)
	}
	m.recordsLocked(keep)
	return nil
}

// Records is Mark for a caller who knows what it was at a version. keep is not called when nothing changed
// since, which is told without waiting for a look that is being made. The first version is 1.
func (m *Models) Records(version uint64, keep func(cas.Hash)) (now uint64, err error) {
	if now = m.version.Load(); now == version && now != 0 {
		return now, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.loadLocked(); err != nil {
		return version, err
	}
	m.recordsLocked(keep)
	return m.version.Load(), nil
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

// Stale reports whether something is to be brought up to date, or made durable.
func (m *Models) Stale() bool { return m.stale.Load() }

// Changes is the number of changes of the catalogue since the snapshot that it was made from.
func (m *Models) Changes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.catalogue.Load(); c != nil {
		return c.changes
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
// was; before is what it was up to date with, of Steps.Since, 0: something may be left to enter.
func (m *Models) Reconcile(ctx context.Context) (looked bool, before uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.settled
	looked, err = m.reconcileLocked(ctx)
	return looked, before, err
}
