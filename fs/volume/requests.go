package volume

import (
	"context"
	"io/fs"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/store"
	"ckptfs/formats/canonical"
	"ckptfs/fs/assemble"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/idle"
	"ckptfs/fs/inspect"
	"ckptfs/fs/maintenance"
	"ckptfs/fs/models"
	"ckptfs/fs/names"
	"ckptfs/fs/residency"
	"ckptfs/fs/virtual"
	"ckptfs/index/manifest"
)

// What the volume is asked of runs, models and tensors, and which of its parts answers.

// stored is what of packed files is read without opening them.
type stored struct {
	*store.Store
	asm *assemble.Reader
}

func (s stored) Manifest(h cas.Hash) (*manifest.Manifest, error) { return s.asm.Manifest(h) }

// artifactsOf is the artifact ids of files that are inspected.
type artifactsOf struct{ *Volume }

func (a artifactsOf) Known(f inspect.File) (canonical.ID, bool, error) {
	return a.artifacts.Known(identified{f.(inspected).n.File()})
}

func (a artifactsOf) Of(ctx context.Context, f inspect.File) (canonical.ID, error) {
	return a.Artifact(ctx, f.(inspected).n)
}

// openInspect makes what answers questions about tensors.
func (v *Volume) openInspect() {
	v.inspect = inspect.New(inspect.Options{Files: files{v}, Store: stored{v.store, v.asm}, Steps: v.steps, Artifacts: artifactsOf{v},
		Unread: func(path, tensor string, err error) {
			v.report(slog.LevelError, "a tensor could not be read", "path", path, "tensor", tensor, "reason", err)
		}})
}

// openModels makes what knows the models.
func (v *Volume) openModels() {
	v.models = models.New(models.Options{
		Dir: v.dir, ReadOnly: v.readOnly, Files: files{v}, Steps: v.steps, Inspect: v.inspect, Store: v.store, Manifest: v.asm.Manifest,
		Mountpoint: func() string { return v.mountpoint }, Pending: v.pendingPaths, Released: v.awaitReleases,
		Step: func(what string) error { return v.content.Step(what) }, Now: v.now, Report: v.report,
	})
}

// openVirtual makes the names that exist only in the mount.
func (v *Volume) openVirtual() {
	v.virtual = virtual.New(virtual.Options{
		Names: v.names, Files: v.content, Steps: v.steps, Models: v.models, Artifacts: v.artifacts,
		NodeOf: func(f inspect.File) *names.Node { return f.(inspected).n },
		Remove: v.Unlink, Report: v.report, ReadOnly: v.readOnly, Off: v.noViews,
		Kinds: []virtual.Kind{virtual.Artifacts, virtual.Best, virtual.LCP, virtual.Query, virtual.Tensors},
	})
}

// openPasses makes what goes over the whole store.
func (v *Volume) openPasses() {
	v.passes = &maintenance.Passes{
		Dir: v.dir, Tree: v.treePath(), ReadOnly: v.readOnly, Now: v.now, Report: v.report, Epoch: v.lock.Epoch,
		Store: v.store, Assemble: v.asm, Pack: v.pack, Files: v.content, Names: v.names, Queue: v.queue,
		Reserve: v.reserve, Throttle: v.throttle, Bases: v.bases, Hot: v.hot, Sums: v.sums, Models: v.models,
		Artifacts: v.artifacts, Packed: v.ids.found,
	}
}

// Stats counts what the store holds and what it costs.
func (v *Volume) Stats(ctx context.Context) (*control.Stats, error) { return v.passes.Stats(ctx) }

// Check looks for damage and changes nothing.
func (v *Volume) Check(
	ctx context.Context, o control.CheckOptions, report func(control.Progress),
) (*control.Checked, error) {
	return v.passes.Check(ctx, o, report)
}

// Prune gives the room back that nothing needs any more.
func (v *Volume) Prune(
	ctx context.Context, o control.PruneOptions, report func(control.Progress),
) (*control.Pruned, error) {
	return v.passes.Prune(ctx, o, report)
}

// Compact stores again what takes less room by now.
func (v *Volume) Compact(
	ctx context.Context, o control.CompactOptions, report func(control.Progress),
) (*control.Compacted, error) {
	return v.passes.Compact(ctx, o, report)
}

// pendingPaths are those of the files that wait to be packed.
func (v *Volume) pendingPaths() (paths []string) {
	for f := range v.queue.Pending() {
		paths = append(paths, f.Path())
		f.Unpin()
	}
	return paths
}

// Show describes one file and its tensors, or those of a set.
func (v *Volume) Show(ctx context.Context, path string) (*control.File, error) {
	return v.inspect.Show(ctx, path)
}

// Inspect is Show, and what it takes a reading of the tensors to say. progress may be nil.
func (v *Volume) Inspect(ctx context.Context, path string, o control.InspectOptions, progress func(control.Progress)) (*control.File, error) {
	return v.inspect.Inspect(ctx, path, o, progress)
}

// Diff compares the tensors of two files, steps or runs.
func (v *Volume) Diff(ctx context.Context, a, b string, progress func(control.Progress)) (*control.Diff, error) {
	return v.inspect.Diff(ctx, a, b, progress)
}

// Find lists the tensors of the store whose content has a hash that begins so, or that of a tensor of a file.
func (v *Volume) Find(ctx context.Context, o control.FindOptions) (*control.Found, error) {
	return v.inspect.Find(ctx, o)
}

// Tensor opens one tensor of a file or a set.
func (v *Volume) Tensor(ctx context.Context, path, name string, withHeader bool) (*control.TensorData, error) {
	return v.inspect.Tensor(ctx, path, name, withHeader)
}

// Log lists the steps of a run, with what each added to those before it.
func (v *Volume) Log(ctx context.Context, p string) (*control.RunLog, error) {
	return v.inspect.Log(ctx, p)
}

// Runs lists the runs and how far their steps are.
func (v *Volume) Runs(ctx context.Context) (*control.RunList, error) { return v.steps.Runs(ctx) }

// Best is the best complete step of a run.
func (v *Volume) Best(ctx context.Context, p, metric, mode string) (*control.BestStep, error) {
	return v.steps.Best(ctx, p, metric, mode)
}

// Steps lists the steps of a run.
func (v *Volume) Steps(ctx context.Context, p string) (*control.RunLog, error) {
	return v.steps.List(ctx, p)
}

// Lineage tells where the models at or below a path come from.
func (v *Volume) Lineage(ctx context.Context, p string) (*control.Lineage, error) {
	return v.models.Lineage(ctx, p)
}

// Ancestor finds the most recent model that both come from.
func (v *Volume) Ancestor(ctx context.Context, a, b string) (*control.CommonAncestor, error) {
	return v.models.Ancestor(ctx, a, b)
}

// Owner tells which model first stored a tensor of a file.
func (v *Volume) Owner(ctx context.Context, p, tensor string) (*control.Ownership, error) {
	return v.models.Owner(ctx, p, tensor)
}

// Retire records that a step, or a file, which was removed is retired.
func (v *Volume) Retire(ctx context.Context, p string) (*control.Retired, error) {
	return v.models.Retire(ctx, p)
}

// Match finds the stored model with the longest prefix in common with an architecture. With o.Pin the answer
// stays readable by that name of .ckptfs/query.
func (v *Volume) Match(ctx context.Context, o control.MatchOptions) (*control.MatchAnswer, error) {
	if o.Pin != "" {
		return v.virtual.Ask(ctx, o.Pin, o)
	}
	a, f, err := v.models.Match(ctx, o)
	if f != nil {
		f.Unpin()
	}
	return a, err
}

var _ control.Models = (*Volume)(nil)

var _ control.Tensors = (*Volume)(nil)

// walkFiles is walk for those that know files.
func (v *Volume) walkFiles(ctx context.Context, path string, f func(path string, file *content.File) error) error {
	return v.walk(ctx, path, func(p string, n *names.Node) error { return f(p, n.File()) })
}

// Evict drops the local copy of the packed files at or below path. Of those in use it says so, and does it once
// they are not.
func (v *Volume) Evict(ctx context.Context, path string, report func(control.Progress)) (*control.Moved, error) {
	if v.readOnly {
		return nil, &fs.PathError{Op: "evict", Path: path, Err: unix.EROFS}
	}
	return residency.Evict(ctx, v.walkFiles, v.hot, v.hydrator, path, report)
}

// Hydrate restores the local copy of the packed files at or below path.
func (v *Volume) Hydrate(ctx context.Context, path string, report func(control.Progress)) (*control.Moved, error) {
	if v.readOnly {
		return nil, &fs.PathError{Op: "hydrate", Path: path, Err: unix.EROFS}
	}
	return residency.Hydrate(ctx, v.walkFiles, path, report)
}

var _ control.Volume = (*Volume)(nil)

// atRest is what work on files that were left alone for so long needs.
func (v *Volume) atRest(after time.Duration) idle.Options {
	return idle.Options{
		After: after, Ready: v.surveyed, Report: v.report,
		Walk: func(ctx context.Context, f func(*content.File) error) error {
			return v.names.Walk(ctx, func(_ string, n *names.Node) error { return f(n.File()) })
		},
	}
}

// stored is told of a file that was packed.
func (v *Volume) stored(f *content.File) {
	v.artifacts.Keep(identified{f})
	v.ids.Add(f)
}
