package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ckptfs/index/runs"
)

// forgottenPrefix begins the name of a step's directory that is being removed. What an interruption leaves is removed by
// the next forget of that run.
const forgottenPrefix = ".forgotten-"

// settled is how long nothing of a step must have been written for it to count as complete.
const settled = time.Minute

func (a *app) forgetCmd() *cobra.Command {
	var (
		p      runs.Policy
		best   []string
		within string
		dry    bool
		drop   bool
	)
	cmd := &cobra.Command{
		Use:   "forget [flags] RUN… | --drop-optimizer FILE…",
		Short: "Remove the steps of a run that no rule keeps",
		Long: `Removes the directories of those steps of RUN, a folder below runs/ of a mount, that no rule keeps. Steps are in the order of
their names, as people count; a step's metrics are those in its metrics.json, trainer_state.json or _CHECKPOINT_METADATA,
and its attributes user.metric.NAME. A step that was written to in the last minute is kept, whatever the rules say.

    ckptfs forget --keep-last 3 --keep-best val_loss=2 --keep-best acc:max=1 --keep-within 7d --dry-run /mnt/ckpt/runs/a

It is the same as rm -r, chosen well: hard links and copies elsewhere stay, and the space comes back with the next prune.

    ckptfs forget --drop-optimizer /mnt/ckpt/runs/a/3/model.pt

makes a new file of the checkpoint's weights, model.weights.safetensors, in which what an optimizer keeps for itself is
missing (tensors below optimizer, optim_state and the like, or state.….exp_avg), and then removes model.pt. Whatever else was in it, such as
numbers and settings, is gone with it; training cannot go on from the new file as from the old one.`,
		Args: somePaths,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if drop {
				if within != "" || len(best) > 0 || p.KeepLast != 0 || p.ForgetTorn {
					return &usageError{msg: "--drop-optimizer takes files, and no rules of what is kept", cmd: cmd}
				}
				for _, file := range args {
					if err := a.dropOptimizer(cmd.Context(), file, dry); err != nil {
						return err
					}
				}
				return nil
			}
			if within != "" {
				if p.KeepWithin, err = runs.ParseAge(within); err != nil {
					return &usageError{msg: "--keep-within: " + err.Error(), cmd: cmd}
				}
			}
			for _, b := range best {
				k, err := parseBest(b)
				if err != nil {
					return &usageError{msg: "--keep-best: " + err.Error(), cmd: cmd}
				}
				p.KeepBest = append(p.KeepBest, k)
			}
			if _, err := p.Decide(nil, time.Now()); err != nil {
				return &usageError{msg: err.Error(), cmd: cmd}
			}
			for _, run := range args {
				if err := a.forget(cmd.Context(), run, p, dry); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&p.KeepLast, "keep-last", 0, "keep the last N complete steps")
	f.StringArrayVar(&best, "keep-best", nil, "keep the N best by a metric: METRIC=N, of which less is better, or METRIC:max=N")
	f.StringVar(&within, "keep-within", "", "keep what was written within 7d, 36h, 1w2d")
	f.BoolVar(&p.ForgetTorn, "forget-torn", false, "also give up steps that never were complete, where a later one is")
	f.BoolVar(&drop, "drop-optimizer", false, "make a file of a checkpoint's weights, without optimizer state, and remove the checkpoint")
	f.BoolVarP(&dry, "dry-run", "n", false, "only say what would be done")
	return cmd
}

// parseBest reads METRIC[:min|:max]=N.
func parseBest(s string) (runs.KeepBest, error) {
	name, count, ok := strings.Cut(s, "=")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 1 || name == "" {
		return runs.KeepBest{}, fmt.Errorf("%q is not METRIC=N or METRIC:max=N", s)
	}
	k := runs.KeepBest{Metric: name, N: n}
	if i := strings.LastIndexByte(name, ':'); i > 0 {
		if k.Mode, err = runs.ParseMode(name[i+1:]); err != nil {
			return k, err
		}
		k.Metric = name[:i]
	}
	return k, nil
}

// forgotten is what forget prints.
type forgotten struct {
	Run    string          `json:"run"`
	DryRun bool            `json:"dry_run"`
	Steps  []forgottenStep `json:"steps"`
}

type forgottenStep struct {
	Step   string   `json:"step"`
	Keep   bool     `json:"keep"`
	Reason []string `json:"reasons"`
}

func (a *app) forget(ctx context.Context, arg string, p runs.Policy, dry bool) error {
	at, err := find(arg)
	if err != nil {
		return err
	}
	if at.mount == nil {
		return &exitError{exitNotStore, fmt.Errorf("%s: store %s is not mounted: forget works on a mount", arg, at.store)}
	}
	if !strings.HasPrefix(at.path, "runs/") {
		return &exitError{exitUsage, fmt.Errorf("%s: no run: it is to be a folder below %s", arg, filepath.Join(at.mount.Mountpoint, "runs"))}
	}
	dir, err := filepath.EvalSymlinks(arg)
	if err != nil {
		return err
	}
	steps, err := stepsOf(dir)
	if err != nil {
		return err
	}
	decisions, err := p.Decide(steps, time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", arg, err)
	}
	out := forgotten{Run: at.path, DryRun: dry, Steps: []forgottenStep{}}
	for _, d := range decisions {
		if !d.Keep && !dry {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := removeStep(dir, d.Step.Name); err != nil {
				return err
			}
		}
		out.Steps = append(out.Steps, forgottenStep{d.Step.Name, d.Keep, d.Reasons})
	}
	if !dry {
		if err := removeLeft(dir); err != nil {
			return err
		}
	}
	return a.show(out, func(w io.Writer) { printForgotten(w, &out) })
}

func printForgotten(w io.Writer, out *forgotten) {
	rows := make([][]string, len(out.Steps))
	gone := 0
	for i, s := range out.Steps {
		what := "kept"
		if !s.Keep {
			what = "forgotten"
			gone++
		}
		rows[i] = []string{printable(s.Step), what, printable(strings.Join(s.Reason, ", "))}
	}
	table(w, []string{"STEP", "", "WHY"}, rows)
	verb := "forgotten"
	if out.DryRun {
		verb = "would be forgotten"
	}
	fmt.Fprintf(w, "%s: %d of %s %s\n", printable(out.Run), gone, plural(int64(len(rows)), "step"), verb)
}

// removeStep removes a step's directory: its name first, so that what is left by an interruption is no step.
func removeStep(run, step string) error {
	aside := filepath.Join(run, forgottenPrefix+step)
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(run, step), aside); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// removeLeft removes what an interrupted forget left.
func removeLeft(run string) error {
	entries, err := os.ReadDir(run)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), forgottenPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(run, e.Name())))
		}
	}
	return err
}

// stepsOf reads the steps of a run: the directories in it that hold a file, at whatever depth.
func stepsOf(run string) ([]runs.Step, error) {
	entries, err := os.ReadDir(run)
	if err != nil {
		return nil, err
	}
	var steps []runs.Step
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), forgottenPrefix) { // a link to a step is none
			continue
		}
		s := runs.Step{Name: e.Name()}
		dir := filepath.Join(run, e.Name())
		if s.Time, err = lastWritten(dir); err != nil {
			return nil, err
		}
		if s.Time.IsZero() {
			continue
		}
		s.Complete = time.Since(s.Time) > settled
		if s.Metrics, err = metricsOf(dir); err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// lastWritten is when a file at or below dir was written last; zero when there is none.
func lastWritten(dir string) (time.Time, error) {
	var last time.Time
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		st, err := d.Info()
		if err == nil && st.ModTime().After(last) {
			last = st.ModTime()
		}
		return err
	})
	return last, err
}

// metricsOf reads the metrics of a step, in the order in which a later source wins.
func metricsOf(dir string) (map[string]float64, error) {
	all := map[string]float64{}
	for _, src := range runs.Sources {
		path := filepath.Join(dir, src.Name)
		st, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !st.Mode().IsRegular() {
			continue
		}
		if err == nil && st.Size() > src.Max {
			err = fmt.Errorf("%s: %s is too large for metrics", path, bytesText(st.Size()))
		}
		var b []byte
		if err == nil {
			b, err = os.ReadFile(path)
		}
		if err != nil {
			return nil, err
		}
		found, err := src.Parse(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for k, v := range found {
			all[k] = v
		}
	}
	return all, attributeMetrics(dir, all)
}

// attributeMetrics adds the attributes user.metric.NAME of a step's directory.
func attributeMetrics(dir string, all map[string]float64) error {
	list := make([]byte, 64<<10)
	n, err := unix.Listxattr(dir, list)
	if err != nil {
		return &fs.PathError{Op: "listxattr", Path: dir, Err: err}
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		metric, ok := runs.FromXattr(name)
		if !ok {
			continue
		}
		value := make([]byte, 256)
		k, err := unix.Getxattr(dir, name, value)
		if err != nil {
			return &fs.PathError{Op: "getxattr " + name, Path: dir, Err: err}
		}
		v, err := runs.ParseValue(value[:k])
		if err != nil {
			return fmt.Errorf("%s: attribute %s: %w", dir, name, err)
		}
		all[metric] = v
	}
	return nil
}
