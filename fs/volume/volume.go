// Package volume is the filesystem without FUSE: nodes, handles, the states of a file and the background work that
// moves files between them.
//
//	plain               just written, or never packed: a file of the host as any other
//	resident + packed   the bytes in place are a cache; reads pass through them
//	packed              hollow: reads are put together from chunks
//
//	       last close, packed             evicted (hot list, by hand)
//	plain ───────────────────▶ resident + packed ─────────────────▶ packed
//	    ▲                              │         ▲                       │
//	    └──── opened for writing ──────┘         └─ hydrated (proved hot) ┤
//	    ▲                                                                │
//	    └───────────────── opened for writing: hydrated and synced first ┘
//
// The names and the bytes being written are the host filesystem's: every operation on a file is the same operation on
// the inode in STORE/tree, under ns, relative to a descriptor of its directory. Two kinds of names are nobody's: views (view.go), each
// beside the file that it is made of, and virtual files (virtual.go), below .ckptfs.
// Package ckptfs/fs/tree says which copy is true when; this package keeps to it.
//
// Locks, in the order in which they may be taken: file.mu, ns, then any of table.mu, fdCache.mu, Queue.mu, hotList.mu, rested.mu,
// hiddenViews.mu, file.io. ns is held shared by whatever resolves a name, exclusively by what takes one away; not over fsync or data.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cas/store"
	"ckptfs/fs/artifacts"
	"ckptfs/fs/assemble"
	"ckptfs/fs/bases"
	"ckptfs/fs/content"
	"ckptfs/fs/idle"
	"ckptfs/fs/inspect"
	"ckptfs/fs/maintenance"
	"ckptfs/fs/models"
	"ckptfs/fs/names"
	"ckptfs/fs/pack"
	"ckptfs/fs/queue"
	"ckptfs/fs/residency"
	"ckptfs/fs/steps"
	"ckptfs/fs/throttle"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual"
	"ckptfs/index/chunks"
)

// ErrNotStore: the folder is no ckptfs store.
var ErrNotStore = tree.ErrNotStore

// ErrNeedsRecovery: the store was not closed in order, and is to be opened without changing it.
var ErrNeedsRecovery = tree.ErrNeedsRecovery

// LockedError says that another process has the store open.
type LockedError = tree.LockedError

// Options say how a store is opened.
type Options struct {
	Dir         string        // the store's folder, absolute
	Create      bool          // make a store if there is none
	ReadOnly    bool          // change nothing at all, beside other readers; ErrNeedsRecovery if the store is not in order
	NoViews     bool          // no synthesised files
	HotSize     int64         // bytes of packed files to keep in place; -1: DefaultHotSize
	MaxUnpacked int64         // bytes that may wait to be packed before closes wait; 0: a quarter of the free disk; -1: no bound
	CacheBytes  int64         // bytes of decoded chunks to keep in memory; 0: a default
	ExpectBytes int64         // bytes of segments to read ahead into memory; 0: a default
	Mapped      func(int64)   // told how many of CacheBytes do not lie in Go's heap, whenever that changes; must not wait; may be nil
	PackWorkers int           // cores that packing may use; 0: those that others leave
	NoDelta     bool          // store every chunk alone, not against an earlier version of it
	SumAfter    time.Duration // for how long a plain file rests before its checksum is made; 0: a default; negative: it is not
	IDsAfter    time.Duration // for how long a packed file was left alone before its artifact id is computed; 0: a default; negative: it is not
	// HydrateAfter is for how long nobody read packed files before one that proved hot is filled in; 0: a default; negative: it is
	// not waited for.
	HydrateAfter time.Duration
	Now          func() time.Time
	Log          func(level slog.Level, msg string, args ...any) // nil: silent
}

// Volume is an open store.
type Volume struct {
	dir      string
	readOnly bool
	noViews  bool

	now     func() time.Time
	report  func(level slog.Level, msg string, args ...any)
	started time.Time

	lock    *tree.Lock
	reserve *queue.Reserve

	index *chunks.DB
	store *store.Store
	asm   *assemble.Reader
	pack  *pack.Packer

	names   *names.Names
	content *content.Files

	steps   *steps.Steps
	inspect *inspect.Inspector
	models  *models.Models
	virtual *virtual.Virtual
	passes  *maintenance.Passes

	queue    *queue.Queue
	throttle *throttle.Throttle // nil: packing does not ask who else wants the processors
	bases    *bases.Finder      // nil: nothing is stored against an earlier version
	hot      *residency.LRU
	hydrator *residency.Hydrator
	sums     *idle.Checksums
	ids      *identifier

	artifacts *artifacts.Artifacts

	mode, modeReason string // see Attach
	mountpoint       string
	recovery         string

	closing atomic.Bool

	surveyed chan struct{} // closed when the survey of the start is done
}

const (
	maxHotSize   = 32 << 30
	defaultCache = 256 << 20
)

// DefaultHotSize is 5 % of the disk that dir lies on, at most 32 GiB.
func DefaultHotSize(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return maxHotSize
	}
	return min(int64(st.Blocks)*st.Bsize/20, maxHotSize)
}

// Open opens a store. The error is a *LockedError when another process has it, wraps ErrNotStore when there is none,
// and cas.ErrNewer when a newer program wrote it.
func Open(o Options) (*Volume, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = func(slog.Level, string, ...any) {}
	}
	format, err := tree.ReadFormat(o.Dir)
	if errors.Is(err, ErrNotStore) && o.Create {
		if err := tree.Create(o.Dir, o.Now()); err != nil {
			return nil, fmt.Errorf("make a store: %w", err)
		}
		format, err = tree.ReadFormat(o.Dir)
	}
	if err != nil {
		return nil, err
	}
	lock, err := acquire(o)
	if err != nil {
		return nil, err
	}
	v := &Volume{
		dir: o.Dir, readOnly: o.ReadOnly, noViews: o.NoViews, now: o.Now, report: o.Log,
		started: o.Now(), lock: lock, surveyed: make(chan struct{}),
		reserve: queue.NewReserve(o.Dir, o.Log),
	}
	if !o.ReadOnly {
		v.reserve.Keep()
	}
	if err := v.open(o, format); err != nil {
		v.shut(false)
		return nil, err
	}
	return v, nil
}

func acquire(o Options) (*tree.Lock, error) {
	if o.ReadOnly {
		return tree.AcquireShared(o.Dir)
	}
	return tree.Acquire(o.Dir, o.Now())
}

func (v *Volume) open(o Options, format *tree.Format) error {
	if o.HotSize < 0 {
		o.HotSize = DefaultHotSize(o.Dir)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCache
	}
	v.openSteps()
	if o.MaxUnpacked == 0 {
		o.MaxUnpacked = queue.DefaultMaxUnpacked(o.Dir)
	}
	v.sums = idle.NewChecksums(v.atRest(o.SumAfter))

	var err error
	v.index, err = chunks.Open(filepath.Join(v.dir, tree.IndexFile),
		chunks.Options{StoreID: format.ID, ReadOnly: o.ReadOnly, Aside: filepath.Join(v.dir, tree.LostFound)})
	if err != nil {
		return v.unready(err)
	}
	v.openArtifacts()
	v.ids = newIdentifier(v, o.IDsAfter)
	if r := v.index.Recovered(); r != "" {
		v.report(slog.LevelWarn, "index made anew from the segments", "reason", r)
	}
	var files disk.FS = disk.OS{}
	opt := store.Options{NewIndex: v.newIndex, Now: v.now, Room: v.reserve.Room, MakeRoom: v.reserve.MakeRoom}
	if o.ReadOnly {
		files = disk.ReadOnly{FS: files}
		opt = store.Options{ReadOnly: true, Now: v.now}
	}
	opt.ExpectBytes = o.ExpectBytes
	v.store, err = store.Open(files, filepath.Join(v.dir, tree.SegmentsDir), format.ID, v.index, opt)
	if err != nil {
		return v.unready(err)
	}
	v.asm = assemble.New(v.store, assemble.Options{CacheBytes: o.CacheBytes, Mapped: o.Mapped})
	packing := pack.Options{Workers: o.PackWorkers}
	if o.PackWorkers == 0 {
		v.throttle = throttle.New(cas.Processors, func() bool { return v.queue.Presses() })
		packing.Turn = v.throttle.Turn
	}
	v.pack = pack.New(v.store, packing)

	v.content = content.New(content.Parts{
		ID: format.ID, ReadOnly: v.readOnly, Store: v.store, Assemble: v.asm, Pack: v.pack, Epoch: v.lock.Epoch, Now: v.now, Report: v.report,
		Events: events{v},
	})
	cache := residency.Options{
		Max: o.HotSize, Still: o.HydrateAfter, Now: v.now, Report: v.report, Count: &v.content.Count, Short: v.reserve.Short,
	}
	v.hot, v.hydrator = residency.NewLRU(cache), residency.NewHydrator(cache)
	v.names, err = names.Open(names.Options{
		Dir: v.dir, Tree: v.treePath(), Files: v.content, ReadOnly: v.readOnly, Changed: v.steps.Changed,
		Reserved: func(dir *names.Node, name string) bool { return v.virtual.Reserved(dir, name) }, Report: v.report,
	})
	if err != nil {
		return err
	}
	if !o.NoDelta {
		v.openBases()
	}
	v.queue = newQueue(v, o.MaxUnpacked)
	v.steps.Open(v.names.RootFd())
	v.openInspect()
	v.openModels()
	v.openVirtual()
	v.openPasses()
	return v.recover()
}

// newQueue makes the queue of the files that wait to be packed.
func newQueue(v *Volume, maxUnpacked int64) *queue.Queue {
	return queue.New(queue.Options{
		MaxUnpacked: maxUnpacked, Store: v.store, Pack: v.pack, Bases: v.bases, Throttle: v.throttle,
		Reserve: v.reserve, Now: v.now, Report: v.report, Count: &v.content.Count,
		Stored: v.stored, Failed: v.hot.Wake,
	})
}

// openSteps begins to follow which files are written.
func (v *Volume) openSteps() {
	writing, err := tree.OpenWriting(v.dir, v.lock.Before.Clean || v.lock.Before.PID == 0, v.readOnly)
	if err != nil {
		v.report(slog.LevelWarn, "which checkpoints a crash leaves torn will not be known", "reason", err)
	}
	v.steps = steps.New(steps.Options{Files: files{v}, Writing: writing, Released: v.awaitReleases})
}

// newIndex puts a damaged index aside; the store fills the new one.
func (v *Volume) newIndex(reason error) (store.Locator, error) {
	err := v.index.Renew(reason)
	v.report(slog.LevelWarn, "index made anew from the segments", "reason", v.index.Recovered())
	return v.index, err
}

// unready says of what keeps a store from being opened whether an opening for writing would mend it.
func (v *Volume) unready(err error) error {
	if !v.readOnly {
		return err
	}
	for _, mends := range []error{store.ErrNeedsRecovery, store.ErrIndexAhead, cas.ErrCorrupt, fs.ErrNotExist} {
		if errors.Is(err, mends) {
			return fmt.Errorf("%s: %w (%w)", v.dir, ErrNeedsRecovery, err)
		}
	}
	return err
}

// recover brings the store in order after an unclean end, and starts the background work.
func (v *Volume) recover() error {
	before := v.lock.Before
	s := &maintenance.Survey{
		Passes: v.passes, Repair: !before.Clean && before.PID != 0, Stop: v.closing.Load,
	}
	if s.Repair {
		s.NewBoot = !v.lock.Same()
		s.Run()
		v.hot.Grew.Store(true) // what was made hollow has to be durable, too, before an end is called clean
		if s.NewBoot && s.Blind() {
			v.content.Doubt = true
		} else if err := v.lock.Trust(); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
		v.recovery = s.Repaired()
		v.report(slog.LevelWarn, v.recovery)
	}
	if !v.readOnly {
		v.queue.Start()
		v.models.Start()
		v.hot.Start()
		v.hydrator.Start()
		v.sums.Start()
		v.ids.Start()
	}
	if s.Repair || before.PID == 0 {
		close(v.surveyed)
	} else {
		go func() {
			defer close(v.surveyed)
			s.Run()
		}()
	}
	return nil
}

func (v *Volume) treePath() string { return filepath.Join(v.dir, tree.TreeDir) }

// Dir is the store's folder.
func (v *Volume) Dir() string { return v.dir }

// Root is the mount's root.
func (v *Volume) Root() *names.Node { return v.names.Root() }

// Attach tells the volume who mounts it, how, and whether files in place may be read and written by the kernel itself.
func (v *Volume) Attach(k content.Kernel, mountpoint string, passthrough bool, mode, reason string) {
	v.content.Kernel = k
	v.mountpoint, v.mode, v.modeReason = mountpoint, mode, reason
	v.content.Passthrough.Store(passthrough)
}

// Close ends the background work and gives the store up. What was not packed stays resident. ctx bounds nothing yet
// that could take long: packing stops between chunks.
func (v *Volume) Close(context.Context) error {
	v.closing.Store(true)
	<-v.surveyed
	if !v.readOnly {
		v.sums.Stop()
		v.ids.Stop()
		v.queue.Stop()
		v.models.Stop()
		v.virtual.Close()
		v.models.Finish()
		v.hydrator.Stop()
		v.hot.Stop()
	}
	clean := v.idle() && !v.content.Doubt
	if clean && v.hot.Grew.Load() {
		// A clean end says that the caches can be believed after a boot too.
		if err := v.names.SyncTree(); err != nil {
			return errors.Join(err, v.shut(false))
		}
	}
	return v.shut(clean)
}

// idle reports whether no handle is left that could still write.
func (v *Volume) idle() bool {
	idle := true
	v.names.Each(func(n *names.Node) {
		if f := n.File(); f != nil {
			f.Lock()
			idle = idle && f.StateLocked().Writers == 0
			f.Unlock()
		}
	})
	return idle
}

func (v *Volume) shut(clean bool) error {
	var errs []error
	if v.asm != nil {
		v.asm.Close()
	}
	if v.store != nil {
		errs = append(errs, v.store.Close())
	}
	if v.index != nil {
		errs = append(errs, v.index.Close())
	}
	if v.names != nil {
		v.names.Close()
	}
	if v.steps != nil {
		errs = append(errs, v.steps.Close())
	}
	err := errors.Join(errs...)
	return errors.Join(err, v.lock.Release(clean && err == nil))
}
