package volume

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/store"
	"ckptfs/formats/canonical"
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
	"ckptfs/fs/policy"
	"ckptfs/fs/queue"
	"ckptfs/fs/residency"
	"ckptfs/fs/steps"
	"ckptfs/fs/throttle"
	"ckptfs/fs/tree"
	"ckptfs/fs/usage"
	"ckptfs/fs/view"
	"ckptfs/fs/virtual"
	indexartifacts "ckptfs/index/artifacts"
	"ckptfs/index/manifest"
)

// stored is the inspect.Store of a volume: what is read of packed files without opening them.
type stored struct {
	*store.Store
	asm   *assemble.Reader
	reads *reads
}

// Get reads a record wherever it is.
func (s stored) Get(h cas.Hash, buf []byte) ([]byte, error) { return s.reads.Get(h, buf) }

// List reads that of a file's object, where the file's plan says that it is if no other one does: a manifest
// may be here whose lists are not.
func (s stored) List(of, h cas.Hash, buf []byte) ([]byte, error) {
	out, err := s.reads.Get(h, buf)
	if !errors.Is(err, cas.ErrNotFound) {
		return out, err
	}
	var asked *bucket.Error
	if perr := s.reads.plan(of); perr == nil {
		return s.reads.Get(h, buf)
	} else if errors.As(perr, &asked) {
		err = perr
	}
	return out, err
}

func (s stored) Manifest(h cas.Hash) (*manifest.Manifest, error) { return s.asm.Manifest(h) }

// artifactsOf is the inspect.Artifacts of a volume: the artifact ids of files that are inspected.
type artifactsOf struct{ *Volume }

func (a artifactsOf) Known(f inspect.File) (canonical.ID, bool, error) {
	return a.artifacts.Known(identified{f.(inspected).n.File()})
}

func (a artifactsOf) Of(ctx context.Context, f inspect.File) (canonical.ID, error) {
	return a.Artifact(ctx, f.(inspected).n)
}

// openInspect makes the inspector of tensors.
func (v *Volume) openInspect(o Options) {
	v.inspect = inspect.New(inspect.Options{
		Files: files{v}, Store: stored{v.store, v.asm, v.reads}, Steps: v.steps, Artifacts: artifactsOf{v},
		Detect: v.pack.Detector(), Keeps: v.pack.Keeps,
		Unread: func(path, tensor string, err error) {
			v.report(slog.LevelError, "a tensor could not be read", "path", path, "tensor", tensor, "reason", err)
		},
		KeepLog: cmp.Or(o.CacheBytes, defaultCache) / 8, // a sixteenth of --memory
		Spill:   v.spill(),
	})
}

// openModels makes the list of models.
func (v *Volume) openModels(o Options) { v.models = models.New(modelsOptions(v, o)) }

func modelsOptions(v *Volume, o Options) models.Options {
	return models.Options{
		Folder: v.folder, ReadOnly: v.readOnly, Files: files{v}, Steps: v.steps, Inspect: v.inspect,
		Store:    v.store,
		Manifest: v.asm.Manifest, Mountpoint: func() string { return v.mount().point },
		Pending: v.pendingPaths, Released: v.awaitReleases,
		Most: o.Most.Models,
		Known: func(catalogue cas.Hash) bool {
			noted := v.lock.Noted(catalogue)
			return v.lock.Knows(v.folder, catalogue) || !noted.IsZero() && v.steps.Settled() == noted
		},
		Settled: func(catalogue cas.Hash, n uint64) {
			if noted := v.lock.Noted(catalogue); !noted.IsZero() {
				v.steps.Settle(noted, n)
			}
		},
		Epoch: v.lock.Epoch,
		Step:  func(what string) error { return v.content.Step(what) }, Now: v.now, Report: v.report,
	}
}

// openVirtual makes the names that exist only in the mount.
func (v *Volume) openVirtual(o Options) {
	v.virtual = virtual.New(virtual.Options{
		Names: v.names, Files: v.content, Steps: v.steps, Models: v.models, Artifacts: v.artifacts,
		NodeOf: func(f inspect.File) *names.Node { return f.(inspected).n },
		Remove: v.Unlink, Report: v.report, ReadOnly: v.readOnly, Off: o.NoViews, Since: v.inspect.Since,
		IndexBytes: cmp.Or(o.CacheBytes, defaultCache) / 8, // a sixteenth of --memory
		Kinds: []virtual.Kind{
			virtual.Artifacts, virtual.Best, virtual.Conflicts, virtual.Latest, virtual.LCP, virtual.Make,
			virtual.Query, virtual.Since, virtual.Tensors,
		},
		Losers: v.sharing.losers,
	})
}

// openPasses makes the passes over the whole store.
func (v *Volume) openPasses() {
	v.passes = &maintenance.Passes{
		Folder: v.folder, Spill: v.spill(), ReadOnly: v.readOnly,
		Now: v.now, Report: v.report, Epoch: v.lock.Epoch, Workers: cas.Processors,
		Store: v.store, Assemble: v.asm, Pack: v.pack, Files: v.content, Names: v.names, Queue: v.queue,
		Reserve: v.reserve, Throttle: v.throttle, Bases: v.bases, Hot: v.hot, Sums: v.sums, Models: v.models,
		Artifacts: v.artifacts, SyncNames: v.durability.syncNames, Packed: v.ids.foundLocked,
		Plan: v.reads.plan, Pruning: make(chan struct{}, 1),
	}
	if err := v.passes.Last.Recall(v.folder); err != nil {
		v.report(slog.LevelWarn, "when the store was pruned and checked last is not known", "reason", err)
	}
	v.keeper = &maintenance.Keeper{Passes: v.passes, Settle: v.usage.Settle}
}

// atRest is the options of a worker on files that no program has touched for so long.
func (v *Volume) atRest(after time.Duration) idle.Options {
	return idle.Options{
		After: after, Ready: v.surveyed, Now: v.now, Report: v.report, Busy: v.names.Tours.UnderWay,
		Walk: func(ctx context.Context, f func(*content.File) error) error {
			return v.names.Walk(ctx, func(_ string, n *names.Node) error { return f(n.File()) })
		},
	}
}

// stored notes that a worker of the queue has packed a file.
func (v *Volume) stored(f *content.File) {
	v.artifacts.Keep(identified{f})
	v.ids.Add(f)
	if v.hot.Behind() && !ruled(v, policy.Hydrated, f) {
		_, _ = f.Evict() // what is in use stays
	}
}

// manifests is the bases.Store of a volume.
type manifests struct{ v *Volume }

// Manifest reads a manifest that this store has: what is stored against a file needs its records here. Of one
// that was swept there may still be a copy in memory.
func (s manifests) Manifest(h cas.Hash) (*manifest.Manifest, error) {
	if here, err := s.v.reads.here(h); err != nil {
		return nil, err
	} else if !here {
		return nil, &cas.ChunkError{Hash: h, Err: cas.ErrNotFound}
	}
	return s.v.asm.Manifest(h)
}

func (s manifests) Latest(n int) []cas.Hash { return s.v.store.Latest(cas.Manifest, n) }

// parents lists the paths of the parents that a step declares. p is a file of the step, or the step itself.
func (v *Volume) parents(p string) []string { return v.steps.Parents(p, v.mount().point) }

// newThrottle is replaced by tests.
var newThrottle = throttle.New

// openContent makes the part that all files share.
func (v *Volume) openContent(o Options) {
	packing := pack.Options{Workers: o.PackWorkers, Bytes: o.PackBytes, LayoutBytes: o.LayoutBytes}
	if o.PackWorkers == 0 {
		v.throttle = newThrottle(cas.Processors, func() bool { return v.queue.Presses() })
		packing.Turn = v.throttle.Turn
	}
	v.pack = pack.New(v.store, packing)
	v.content = content.New(content.Parts{
		ID: v.id, ReadOnly: v.readOnly, Store: v.store, Known: v.known,
		Assemble: v.asm, Pack: v.pack, Epoch: v.lock.Epoch,
		Now: v.now, Report: v.report, Events: events{v}, Remote: v.reads,
		Plain:    func(path string) bool { return v.rules.Is(policy.Plain, path) },
		ReadOnce: func(f *content.File) bool { return ruled(v, policy.ReadOnce, f) },
	})
	v.content.Outsiders.Store(o.Outsiders)
}

// openNames makes the tree of names.
func (v *Volume) openNames(o Options) error {
	root, err := v.folder.Sub(tree.TreeDir)
	if err != nil {
		return err
	}
	defer root.Close()
	v.names, err = names.Open(names.Options{
		Dir: v.folder.Here(), Tree: root.Here(), Files: v.content, ReadOnly: v.readOnly,
		Mark:  view.Mark,
		Begin: v.steps.Alter, End: v.steps.Altered,
		Changed:  func(ino uint64) { v.steps.Changed(ino); v.usage.Changed(ino) },
		Recorded: func(ino uint64) { v.steps.Recorded(ino); v.usage.Changed(ino) },
		Reserved: func(dir *names.Node, name string) bool { return v.virtual.Reserved(dir, name) },
		Synthetic: func(dir *names.Node, name string) (*names.Node, error) {
			n, _, err := lookup(context.Background(), v, tree.Caller{}, dir, name)
			return n, err
		},
		Again: func(dir *names.Node, name string, o names.Origin) *names.Node {
			return v.virtual.Again(dir, name, o)
		},
		NotWritten: v.durability.namesNotWritten, Report: v.report,
		Freed: func() {
			v.keeper.Removed()
			v.queue.Freed()
		},
	})
	if err == nil {
		v.names.Crowd.Bound(o.Most.Nodes)
		shareMemory(v, o)
	}
	return err
}

// shareMemory has what lives on the heap take the memory of decoded chunks where it needs it, and nodes no
// more than is theirs then.
func shareMemory(v *Volume, o Options) {
	if o.Room == nil {
		return
	}
	v.names.Crowd.Short(false)
	o.Room(func(needed int64) {
		v.asm.Yield(needed)
		v.names.Crowd.Short(needed > 0)
	})
}

// openWorkers makes the parts that work in the background. recover starts them.
func (v *Volume) openWorkers(o Options) {
	cache := residency.Options{
		Max: o.HotSize, Files: o.Most.Resident, Still: o.HydrateAfter, Now: v.now, Report: v.report,
		Count: &v.content.Count, Short: v.reserve.Short, Ready: v.surveyed,
		Known: nodes{v.names}.known, Seek: nodes{v.names}.seek,
		Holds: func(f *content.File) bool { return ruled(v, policy.Hydrated, f) },
	}
	if v.store.Stats().Segments == 0 { // no earlier process left a copy, as of a folder that was adopted
		cache.Ready = nil
	}
	v.hot, v.hydrator = residency.NewLRU(cache), residency.NewHydrator(cache)
	v.giver = residency.NewGiver()
	openRules(v)
	v.content.Doubt.Counted = v.hot.Knows
	v.sums = idle.NewChecksums(v.atRest(o.SumAfter))
	v.ids = newIdentifier(v, o.IDsAfter)
	if !o.NoDelta {
		v.bases = bases.New(bases.Options{Store: manifests{v}, Root: v.names.RootFd(), Parents: v.parents,
			Alone:     func(path string) bool { return v.rules.Is(policy.Alone, path) },
			NoRecipes: o.NoRecipes, Anchors: v.anchors, Failed: func(err error) {
				v.report(slog.LevelWarn, "what is made of a file may not be found", "reason", err)
			}})
	}
	v.queue = newQueue(v, o)
}

// newQueue makes the queue of the files that wait to be packed.
func newQueue(v *Volume, o Options) *queue.Queue {
	return queue.New(queue.Options{
		MaxUnpacked: o.MaxUnpacked, MaxFiles: o.Most.Waiting,
		Store: v.store, Pack: v.pack, Bases: v.bases, Throttle: v.throttle, Reserve: v.reserve, Now: v.now,
		Report: v.report, Count: &v.content.Count,
		Keep:   func(p *pack.Result) { v.asm.Keep(p.Hash, p.Manifest) },
		Stored: v.stored, Failed: v.hot.Wake, Evict: v.hot.Free, Reclaim: v.reclaim,
		Writing: func(step string) bool { return writtenBelow(v, step) },
	})
}

// reclaim gives back what the segments hold that no file needs, however young it is.
func (v *Volume) reclaim(ctx context.Context) (freed int64, err error) {
	v.usage.Settle()
	return v.passes.Reclaim(ctx)
}

// openSteps makes the list of runs and steps, and begins to follow which files are written.
func (v *Volume) openSteps(o Options) {
	writing, err := tree.OpenWriting(v.folder, v.lock.Before.Clean || v.lock.Before.PID == 0, v.readOnly)
	if err != nil {
		v.report(slog.LevelWarn, "which checkpoints a crash leaves torn will not be known", "reason", err)
	}
	v.steps = steps.New(steps.Options{
		Files: stepFiles{files{v}}, Writing: writing, Released: v.awaitReleases, HideTorn: o.HideTorn,
	})
}

// openArtifacts makes the table of artifact ids.
func (v *Volume) openArtifacts() {
	v.artifacts = artifacts.New(artifacts.Options{
		Table: indexartifacts.New(v.index.Bucket(indexartifacts.BucketName)), Tree: artifactTree{v},
		ReadOnly: v.readOnly, Now: v.now, Log: v.report,
	})
}

// counted says what the counts of a volume are of.
func counted(v *Volume) usage.Options {
	return usage.Options{
		Folder: v.folder, Spill: v.spill(), Store: v.store, Names: v.names, Now: v.now,
		Writing: v.steps.Writing.Open, Records: v.models.Records,
	}
}
