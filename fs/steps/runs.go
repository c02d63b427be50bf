package steps

import (
	"context"
	"io/fs"
	"maps"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

// Names lists the runs.
func (s *Steps) Names() ([]string, error) {
	fd, err := openDirAt(s.root, Dir)
	if noFolder(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	entries, err := dirsIn(fd)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
	}
	slices.SortFunc(names, runs.Compare)
	return names, err
}

// Runs lists the runs and how far their steps are.
func (s *Steps) Runs(ctx context.Context) (*control.RunList, error) {
	found, err := s.Of()
	if err != nil {
		return nil, err
	}
	out, state := &control.RunList{Runs: []control.Run{}}, s.States()
	for _, name := range slices.SortedFunc(maps.Keys(found), runs.Compare) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		steps := found[name]
		r := control.Run{Run: name, Exact: control.Exact(name), Steps: len(steps), Metrics: []string{}}
		all := judged(steps, state)
		for i, st := range steps {
			r.LogicalBytes += st.Size
			if st.Time.After(r.Last) {
				r.Last = st.Time
			}
			switch {
			case all[i].Complete:
				r.Complete++
			case state(st) == control.StepTorn:
				r.Torn++
			default:
				r.Writing++
			}
		}
		r.Metrics = append(r.Metrics, runs.Names(all)...)
		out.Runs = append(out.Runs, r)
	}
	return out, nil
}

// Judged is what package runs decides by.
func (s *Steps) Judged(steps []*Step) []runs.Step { return judged(steps, s.States()) }

func judged(steps []*Step, state func(*Step) string) []runs.Step {
	out := make([]runs.Step, len(steps))
	for i, st := range steps {
		out[i] = runs.Step{Name: st.Name, Time: st.Time, Complete: state(st) == control.StepComplete,
			Metrics: st.Metrics}
	}
	return out
}

// Run is the name and the steps of the run that p names.
func (s *Steps) Run(ctx context.Context, op, p string) (string, []*Step, error) {
	run, err := RunOf(p)
	if err != nil {
		return "", nil, err
	}
	found, err := s.Of(run)
	if err == nil && s.beingWritten(found[run]) {
		s.Released(ctx) // a caller right after a save is not to be told that it goes on
		found, err = s.Of(run)
	}
	if err != nil {
		return "", nil, err
	}
	steps, ok := found[run]
	if !ok {
		return "", nil, &fs.PathError{Op: op, Path: p, Err: control.NotFound("there is no such run")}
	}
	return run, steps, nil
}

// Best is the best complete step of a run.
func (s *Steps) Best(ctx context.Context, p, metric, mode string) (*control.BestStep, error) {
	m, err := runs.ParseMode(mode)
	if err != nil {
		return nil, control.Invalid("%v", err)
	}
	run, steps, err := s.Run(ctx, "best", p)
	if err != nil {
		return nil, err
	}
	all := s.Judged(steps)
	i, ok := runs.Best(all, metric, m)
	if !ok {
		return nil, &fs.PathError{Op: "best", Path: p, Err: control.NoData("no complete step has metric %q with a number; %s", metric, runs.Known(all))}
	}
	value, _ := all[i].Metrics.Get(metric)
	return &control.BestStep{Run: run, Step: all[i].Name, Exact: control.Exact(all[i].Name),
		Path: path.Join(Dir, run, all[i].Name), Metric: metric, Mode: m.String(),
		Value: control.Number(value)}, nil
}

// List lists the steps of a run.
func (s *Steps) List(ctx context.Context, p string) (*control.RunLog, error) {
	run, steps, err := s.Run(ctx, "log", p)
	if err != nil {
		return nil, err
	}
	out, state := &control.RunLog{Run: run, Steps: make([]control.Step, len(steps))}, s.States()
	for i, st := range steps {
		Describe(st, state, &out.Steps[i])
	}
	if last := s.Last(steps); last != nil {
		out.Last = last.Name
	}
	return out, nil
}

// Describe sets out to what is said of a step, with state of States. The map of metrics there is used again.
func Describe(st *Step, state func(*Step) string, out *control.Step) {
	metrics := out.Metrics
	if metrics == nil {
		metrics = make(map[string]control.Number, len(st.Metrics))
	}
	clear(metrics)
	for _, m := range st.Metrics {
		metrics[m.Name] = control.Number(m.Value)
	}
	*out = control.Step{Step: st.Name, Exact: control.Exact(st.Name), State: state(st),
		Time: st.Time, Files: st.Files.Len(), LogicalBytes: st.Size, Metrics: metrics, Problem: st.Problem}
}
