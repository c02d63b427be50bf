package volume

import (
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/models"
	"ckptfs/fs/names"
	"ckptfs/fs/residency"
	"ckptfs/fs/steps"
	"ckptfs/fs/virtual"
)

// Requests answers the control socket and the metrics of a volume. It passes each request to a part.
type Requests struct{ v *Volume }

// Requests answers the volume's control socket and metrics.
func (v *Volume) Requests() *Requests { return &Requests{v} }

// Services are the services of the volume in the control protocol.
func (v *Volume) Services() control.Services {
	q := v.Requests()
	return control.Services{Volume: q, Models: q, Tensors: q, Remote: q, Files: q, Folders: q,
		Policies: policies{v}}
}

// Stats counts what the store holds and what it costs.
func (q *Requests) Stats(ctx context.Context) (*control.Stats, error) {
	s, err := q.v.usage.Stats(ctx)
	if err != nil {
		return nil, err
	}
	s.Waiting = control.Waiting{Queue: backlogOf(q.v).all, Why: q.v.queue.Status().Waits,
		Unmounted: q.v.mount().mode == "", Unknown: looking(q.v) != nil}
	s.PinnedBytes = q.v.hot.HeldBytes()
	return s, nil
}

// Du says what files take, and what removing them gives back.
func (q *Requests) Du(ctx context.Context, o control.DuOptions) (*control.Du, error) {
	q.v.sharing.appear(ctx, o.Paths...)
	d, err := q.v.usage.Du(ctx, o)
	if err == nil {
		d.Unmounted = q.v.mount().mode == ""
	}
	return d, err
}

// Check looks for damage and changes nothing.
func (q *Requests) Check(
	ctx context.Context, o control.CheckOptions, report func(control.Progress),
) (*control.Checked, error) {
	return q.v.passes.Check(ctx, o, report)
}

// Prune frees the room that no file needs any more.
func (q *Requests) Prune(
	ctx context.Context, o control.PruneOptions, report func(control.Progress),
) (*control.Pruned, error) {
	q.v.usage.Settle()
	return q.v.passes.Prune(ctx, o, report)
}

// Compact stores again the chunks that take less room by now.
func (q *Requests) Compact(
	ctx context.Context, o control.CompactOptions, report func(control.Progress),
) (*control.Compacted, error) {
	defer q.v.usage.Rouse()
	defer q.v.inspect.Recoded()
	return q.v.passes.Compact(ctx, o, report)
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
func (q *Requests) Show(ctx context.Context, path string, tensors control.Passes) (*control.File, error) {
	q.v.sharing.appear(ctx, path)
	return q.v.inspect.Inspect(ctx, path, control.InspectOptions{}, tensors, nil)
}

// Inspect is Show, and reads the tensors for the facts that o asks for. progress may be nil.
func (q *Requests) Inspect(
	ctx context.Context, path string, o control.InspectOptions, tensors control.Passes,
	progress func(control.Progress),
) (*control.File, error) {
	q.v.sharing.appear(ctx, path)
	return q.v.inspect.Inspect(ctx, path, o, tensors, progress)
}

// Outline tells a part of the tensors of a file or a set, with the models that first stored them.
func (q *Requests) Outline(ctx context.Context, o control.OutlineOptions) (*control.Outline, error) {
	q.v.sharing.appear(ctx, o.Path)
	out, err := q.v.inspect.Outline(ctx, o)
	if err != nil {
		return nil, err
	}
	var tensors []*control.Owned
	for i := range out.Listed {
		tensors = append(tensors, &out.Listed[i])
	}
	for i := range out.Level {
		if t := out.Level[i].Tensor; t != nil {
			tensors = append(tensors, t)
		}
	}
	names := make([]string, len(tensors))
	for i, t := range tensors {
		names[i] = t.Name
	}
	of, owners := models.Owners(ctx, q.v.models, out.File.Path, names)
	for i, t := range tensors {
		t.Owner = of[i]
	}
	out.Models = owners
	return out, nil
}

// Diff compares the tensors of two files, steps or runs.
func (q *Requests) Diff(
	ctx context.Context, o control.DiffOptions, parts control.Differences, progress func(control.Progress),
) (*control.Diff, error) {
	q.v.sharing.appear(ctx, o.A, o.B)
	return q.v.inspect.Diff(ctx, o, parts, progress)
}

// Find lists the tensors of the store with a content hash: one that begins so, or that of a tensor of a file.
func (q *Requests) Find(ctx context.Context, o control.FindOptions) (*control.Found, error) {
	return q.v.inspect.Find(ctx, o)
}

// Verify tells which share of the tensors at or below a follows from those of packed files at or below b.
func (q *Requests) Verify(
	ctx context.Context, a, b string, progress func(control.Progress),
) (*control.Verified, error) {
	q.v.sharing.appear(ctx, a, b)
	return q.v.inspect.Verify(ctx, a, b, progress)
}

// Tensor opens one tensor of a file or a set.
func (q *Requests) Tensor(
	ctx context.Context, path, name string, withHeader bool,
) (*control.TensorData, error) {
	q.v.sharing.appear(ctx, path)
	return q.v.inspect.Tensor(ctx, path, name, withHeader)
}

// Log lists the steps of a run, with what each added to those before it.
func (q *Requests) Log(ctx context.Context, p string, to control.Listed) (*control.RunLog, error) {
	q.v.sharing.appear(ctx, p)
	return q.v.inspect.Log(ctx, p, to)
}

// Runs lists the runs and how far their steps are.
func (q *Requests) Runs(ctx context.Context) (*control.RunList, error) {
	q.v.sharing.appear(ctx, steps.Dir)
	return q.v.steps.Runs(ctx)
}

// Follow tells of each step of a run that becomes complete.
func (q *Requests) Follow(ctx context.Context, o control.FollowOptions,
	tell func(control.NewStep) error) error {
	q.v.sharing.appear(ctx, o.Run)
	return q.v.steps.Follow(ctx, o.Run, o, func(st, before *steps.Step) error {
		run := path.Base(o.Run)
		s := control.NewStep{Run: run}
		if before != nil {
			s.Before = before.Name
		}
		if st != nil {
			s.Step, s.Path, s.Time = st.Name, path.Join(o.Run, st.Name), st.Time
		}
		if st != nil && before != nil {
			s.Patch = virtual.SincePath(run, before.Name, st.Name)
		}
		return tell(s)
	})
}

// Best is the best complete step of a run.
func (q *Requests) Best(ctx context.Context, p, metric, mode string) (*control.BestStep, error) {
	q.v.sharing.appear(ctx, p)
	return q.v.steps.Best(ctx, p, metric, mode)
}

// Steps lists the steps of a run.
func (q *Requests) Steps(ctx context.Context, p string) (*control.RunLog, error) {
	q.v.sharing.appear(ctx, p)
	return q.v.steps.List(ctx, p)
}

// Lineage lists the parents of the models at or below a path.
func (q *Requests) Lineage(ctx context.Context, p string) (*control.Lineage, error) {
	q.v.sharing.appear(ctx, p)
	return q.v.models.Lineage(ctx, p)
}

// Origins tells where all runs come from.
func (q *Requests) Origins(ctx context.Context, within time.Duration) (*control.Origins, error) {
	q.v.sharing.appear(ctx, steps.Dir)
	return q.v.models.Origins(ctx, within)
}

// Ancestor finds the most recent model that both come from.
func (q *Requests) Ancestor(ctx context.Context, a, b string) (*control.CommonAncestor, error) {
	q.v.sharing.appear(ctx, a, b)
	return q.v.models.Ancestor(ctx, a, b)
}

// Owner finds the model that first stored a tensor of a file.
func (q *Requests) Owner(ctx context.Context, p, tensor string) (*control.Ownership, error) {
	q.v.sharing.appear(ctx, p)
	return q.v.models.Owner(ctx, p, tensor)
}

// Retire records that a step or a file that was removed is retired.
func (q *Requests) Retire(ctx context.Context, p string) (*control.Retired, error) {
	return q.v.models.Retire(ctx, p)
}

// Match finds the stored model with the longest prefix in common with an architecture. With o.Pin the answer
// stays readable by that name of .ckptfs/query.
func (q *Requests) Match(ctx context.Context, o control.MatchOptions) (*control.MatchAnswer, error) {
	q.v.sharing.appear(ctx, steps.Dir)
	if o.Pin != "" {
		return q.v.virtual.Ask(ctx, o.Pin, o)
	}
	a, f, err := q.v.models.Match(ctx, o)
	if f != nil {
		f.Unpin()
	}
	return a, err
}

// walkFiles is walk for parts that know no nodes.
func (q *Requests) walkFiles(
	ctx context.Context, path string, f func(path string, file *content.File) error,
) error {
	return q.v.walk(ctx, path, func(p string, n *names.Node) error { return f(p, n.File()) })
}

// Evict drops the local copies of the packed files at or below path. It lists the files that are in use, and
// evicts these when they are closed.
func (q *Requests) Evict(
	ctx context.Context, path string, report func(control.Progress),
) (*control.Moved, error) {
	if q.v.readOnly {
		return nil, &fs.PathError{Op: "evict", Path: path, Err: unix.EROFS}
	}
	return residency.Evict(ctx, q.walkFiles, q.v.hot, q.v.hydrator, path, q.pinned, report)
}

// pinned says which answers to queries keep a file open, and what to do; "" when none does.
func (q *Requests) pinned(f *content.File) string {
	pins := q.v.virtual.Pins(f)
	if len(pins) == 0 {
		return ""
	}
	for i, p := range pins {
		pins[i] = filepath.Join(q.v.mount().point, p)
	}
	return "open: pinned by " + strings.Join(pins, " and ") +
		" (rm of that name drops the pin; it is evicted once nobody has it open)"
}

// Hydrate restores the local copies of the packed files at or below path.
func (q *Requests) Hydrate(
	ctx context.Context, path string, report func(control.Progress),
) (*control.Moved, error) {
	q.v.sharing.appear(ctx, path)
	if q.v.readOnly {
		return nil, &fs.PathError{Op: "hydrate", Path: path, Err: unix.EROFS}
	}
	defer q.v.hold.Command()()
	return residency.Hydrate(ctx, q.walkFiles, path, report)
}
