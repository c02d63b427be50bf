package volume

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

// Runs lists the runs and how far their steps are.
func (v *Volume) Runs(ctx context.Context) (*control.RunList, error) {
	found, err := v.stepsOf()
	if err != nil {
		return nil, err
	}
	out := &control.RunList{Runs: []control.Run{}}
	for _, name := range slices.SortedFunc(maps.Keys(found), runs.Compare) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		steps := found[name]
		r := control.Run{Run: name, Steps: len(steps), Metrics: []string{}}
		all := v.judged(steps)
		for i, s := range steps {
			r.LogicalBytes += s.size
			if s.time.After(r.Last) {
				r.Last = s.time
			}
			switch {
			case all[i].Complete:
				r.Complete++
			case v.stepState(s) == control.StepTorn:
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

// judged is what index/runs decides by.
func (v *Volume) judged(steps []*step) []runs.Step {
	out := make([]runs.Step, len(steps))
	for i, s := range steps {
		out[i] = runs.Step{Name: s.name, Time: s.time, Complete: v.stepState(s) == control.StepComplete, Metrics: s.metrics}
	}
	return out
}

// oneRun is the name and the steps of the run that p names.
func (v *Volume) oneRun(ctx context.Context, op, p string) (string, []*step, error) {
	run, err := runOf(p)
	if err != nil {
		return "", nil, err
	}
	found, err := v.stepsOf(run)
	if err == nil && v.beingWritten(found[run]) {
		v.awaitReleases(ctx) // who asks right after a save is not to be told that it goes on
		found, err = v.stepsOf(run)
	}
	if err != nil {
		return "", nil, err
	}
	steps, ok := found[run]
	if !ok {
		return "", nil, &fs.PathError{Op: op, Path: p, Err: fmt.Errorf("there is no such run: %w", unix.ENOENT)}
	}
	return run, steps, nil
}

// Best is the best complete step of a run.
func (v *Volume) Best(ctx context.Context, p, metric, mode string) (*control.BestStep, error) {
	m, err := runs.ParseMode(mode)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, unix.EINVAL)
	}
	run, steps, err := v.oneRun(ctx, "best", p)
	if err != nil {
		return nil, err
	}
	all := v.judged(steps)
	i, ok := runs.Best(all, metric, m)
	if !ok {
		return nil, &fs.PathError{Op: "best", Path: p, Err: fmt.Errorf("no complete step has metric %q with a number; %s: %w", metric, runs.Known(all), unix.ENODATA)}
	}
	return &control.BestStep{Run: run, Step: all[i].Name, Path: path.Join(runsDir, run, all[i].Name), Metric: metric, Mode: m.String(),
		Value: control.Number(all[i].Metrics[metric])}, nil
}

// Steps lists the steps of a run.
func (v *Volume) Steps(ctx context.Context, p string) (*control.RunLog, error) {
	run, steps, err := v.oneRun(ctx, "log", p)
	if err != nil {
		return nil, err
	}
	out := &control.RunLog{Run: run, Steps: make([]control.Step, len(steps))}
	for i, s := range steps {
		st := control.Step{Step: s.name, State: v.stepState(s), Time: s.time, Files: len(s.files), LogicalBytes: s.size,
			Metrics: map[string]control.Number{}, Problem: s.problem}
		for name, m := range s.metrics {
			st.Metrics[name] = control.Number(m)
		}
		out.Steps[i] = st
	}
	return out, nil
}

// Log lists the steps of a run, with what each added to those before it.
func (v *Volume) Log(ctx context.Context, p string) (*control.RunLog, error) {
	out, err := v.Steps(ctx, p)
	if err != nil {
		return nil, err
	}
	l := &logger{v: v, objects: map[cas.Hash]int{}, chunks: map[uint64]int32{}}
	for i := range out.Steps {
		st := &out.Steps[i]
		if err := l.step(ctx, i, path.Join(p, st.Step), st); err != nil {
			return nil, err
		}
		best, bytes := -1, int64(0)
		for j, n := range l.shared {
			if n > bytes || n == bytes && best >= 0 && j > best {
				best, bytes = j, n
			}
		}
		if best >= 0 {
			st.SharedWith, st.SharedBytes = out.Steps[best].Step, bytes
		}
	}
	return out, nil
}

// logger adds up what a step shares with those before it. An object, or a chunk, belongs to the last step that had it.
type logger struct {
	v       *Volume
	objects map[cas.Hash]int // digest → the last step that had it, known to be whole
	chunks  map[uint64]int32 // by the first 8 bytes of their hashes, as good as all for a sum: a run may have many millions
	shared  map[int]int64    // of the step at hand: bytes by the step that had them last
}

func (l *logger) step(ctx context.Context, i int, p string, st *control.Step) error {
	l.shared = map[int]int64{}
	err := l.v.walk(ctx, p, func(_ string, n *Node) error {
		a, err := l.v.Stat(n)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return err
		}
		n.file.mu.Lock()
		err = n.file.load()
		rec := n.file.rec
		n.file.mu.Unlock()
		if err != nil {
			return err
		}
		if !rec.Packed() {
			st.PlainBytes += a.Size
			return nil
		}
		m, err := l.v.asm.Manifest(rec.Manifest)
		if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) {
			st.Problem = "a file's manifest cannot be read: see check"
			return nil
		}
		if err != nil {
			return err
		}
		for _, o := range m.Objects {
			if j, ok := l.objects[o.Digest]; ok {
				if j != i {
					l.shared[j] += o.Len
				}
				l.objects[o.Digest] = i
				continue
			}
			spans, err := o.Spans(l.v.store.Get)
			if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) {
				st.Problem = "a file's chunk list cannot be read: see check"
				continue
			}
			if err != nil {
				return err
			}
			for _, s := range spans {
				k := binary.LittleEndian.Uint64(s.Hash[:])
				if j, ok := l.chunks[k]; !ok {
					st.NewBytes += int64(s.Len)
				} else if int(j) != i {
					l.shared[int(j)] += int64(s.Len)
				}
				l.chunks[k] = int32(i)
			}
			l.objects[o.Digest] = i
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return nil // gone meanwhile
	}
	return err
}

var _ control.Models = (*Volume)(nil)
