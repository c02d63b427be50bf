package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/rundir"
	"ckptfs/cmd/ckptfs/space"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/policy"
	"ckptfs/index/runs"
)

// settled is how long nothing of a step must have been written for it to count as complete.
const settled = time.Minute

func forgetCmd(s Shell) *cobra.Command {
	var (
		p      runs.Policy
		best   []string
		within string
		dry    bool
		drop   bool
		even   bool
		ruled  bool
	)
	cmd := &cobra.Command{
		Use:   "forget [flags] RUN… | --drop-optimizer FILE… | --drop-optimizer --keep-last N RUN… | --policy PATH…",
		Short: "Remove the steps of a run that no rule keeps",
		Long: `Removes the directories of those steps of RUN, a folder below runs/ of a mount, that no rule keeps. Steps are in the
order of the numbers in their names, with the metrics that ckptfs log shows. Rules choose among complete steps. A step
that is being written, or was written to in the last minute, is always kept. So is one behind the step that the run can
be gone on from (.ckptfs/latest), and a torn step, except with --forget-torn where a later step is complete.

    ckptfs forget --keep-last 3 --keep-best val_loss=2 --keep-best acc:max=1 --keep-within 7d --dry-run /mnt/ckpt/runs/a

The effect is that of rm -r: hard links and copies elsewhere stay, and the next prune frees the space.

    ckptfs forget --drop-optimizer /mnt/ckpt/runs/a/3/model.pt

makes a new file of the checkpoint's weights, model.weights.safetensors, without the optimizer's state (tensors below
optimizer, optim_state and the like, or state.….exp_avg), and then removes model.pt. Whatever else was in model.pt, such
as numbers and settings, is lost: training cannot continue from the new file as from the old one. A file of the last
step that its run can be gone on from stays, except with --even-last.

    ckptfs forget --drop-optimizer --keep-last 2 --dry-run /mnt/ckpt/runs/a

does the same to all files in old steps of RUN, and to folders that torch.distributed wrote. It removes files and such
folders that hold nothing but optimizer state. The last N steps keep theirs, two at least, and so does each step that is
torn or being written, and the last one that the run can be gone on from.

    ckptfs forget --policy --dry-run /mnt/ckpt

does so by the rules drop-optimizer of the store (ckptfs policy). Run it from a timer.`,
		Args: args.Some,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if even && (!drop || ruled || p.KeepLast != 0 || within != "") {
				return exit.Wrong(cmd, "--even-last is of the files that --drop-optimizer names")
			}
			if ruled {
				if drop || within != "" || len(best) > 0 || p.KeepLast != 0 || p.ForgetTorn {
					return exit.Wrong(cmd, "--policy takes paths, and no other rules of what is kept")
				}
				return forgetByRules(cmd.Context(), s, args, nil, dry)
			}
			if drop && (p.ForgetTorn || len(best) > 0 || p.KeepLast < 0 || within != "" && p.KeepLast == 0) {
				return exit.Wrong(cmd, "--drop-optimizer takes files, or with --keep-last N, and perhaps --keep-within, runs")
			}
			if drop && p.KeepLast > 0 {
				rules, err := policy.Lines(1, func(int) (int, string, string) {
					rule := fmt.Sprintf("%s keep-last=%d", policy.Drop, p.KeepLast)
					if within != "" {
						rule += " older-than=" + within
					}
					return 2, runs.Dir + "/**", rule
				})
				if err != nil {
					reason := err.Error()
					if of := (*policy.Error)(nil); errors.As(err, &of) {
						reason = of.Reason // the line is not the user's
					}
					return exit.Wrong(cmd, "--keep-last or --keep-within: "+reason)
				}
				return forgetByRules(cmd.Context(), s, args, rules, dry)
			}
			if drop {
				for _, file := range args {
					if err := dropOptimizer(cmd.Context(), s, file, dry, even); err != nil {
						return err
					}
				}
				return nil
			}
			if within != "" {
				if p.KeepWithin, err = runs.ParseAge(within); err != nil {
					return exit.Wrong(cmd, "--keep-within: "+err.Error())
				}
			}
			for _, b := range best {
				k, err := parseBest(b)
				if err != nil {
					return exit.Wrong(cmd, "--keep-best: "+err.Error())
				}
				p.KeepBest = append(p.KeepBest, k)
			}
			if _, err := p.Decide(nil, time.Now()); err != nil {
				return exit.Wrong(cmd, err.Error())
			}
			for _, run := range args {
				if err := forget(cmd.Context(), s, run, p, dry); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&p.KeepLast, "keep-last", 0, "keep the last N complete steps")
	f.StringArrayVar(&best, "keep-best", nil, "keep the N best by a metric: METRIC=N, or METRIC:min=N, METRIC:max=N (else its name says which end is good)")
	f.StringVar(&within, "keep-within", "", "keep what was written within 7d, 36h, 1w2d")
	f.BoolVar(&p.ForgetTorn, "forget-torn", false, "also remove torn steps where a later one is complete")
	f.BoolVar(&drop, "drop-optimizer", false, "make a file of a checkpoint's weights, without optimizer state, and remove the checkpoint")
	f.BoolVar(&even, "even-last", false, "with --drop-optimizer FILE: also if FILE is of the last step that the run can be gone on from")
	f.BoolVar(&ruled, "policy", false, "remove the optimizer's state of old steps that rules of the store name")
	f.BoolVarP(&dry, "dry-run", "n", false, "only say what would be done")
	return cmd
}

// parseBest reads METRIC[:min|:max]=N. Without one of these the metric's name has to say which end is good.
func parseBest(s string) (runs.KeepBest, error) {
	name, count, ok := strings.Cut(s, "=")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 1 || name == "" {
		return runs.KeepBest{}, fmt.Errorf("%q is not METRIC=N or METRIC:max=N", s)
	}
	k := runs.KeepBest{Metric: name, N: n}
	mode, known := runs.ModeOf(name)
	k.Mode = mode
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		if k.Mode, err = runs.ParseMode(name[i+1:]); err != nil {
			return k, err
		}
		k.Metric = name[:i]
	} else if !known {
		return k, fmt.Errorf("the name of %s does not say which end is good: %s:min=%d or %s:max=%d does", name, name, n,
			name, n)
	}
	return k, runs.CheckName(k.Metric)
}

// forgotten is what forget prints.
type forgotten struct {
	Run    string          `json:"run"`
	DryRun bool            `json:"dry_run"`
	Steps  []forgottenStep `json:"steps"`
	Gives  *control.Du     `json:"gives,omitempty"` // of a dry run: what removing the steps gives back
}

type forgottenStep struct {
	Step   string   `json:"step"`
	Keep   bool     `json:"keep"`
	Reason []string `json:"reasons"`
}

func forget(ctx context.Context, s Shell, arg string, p runs.Policy, dry bool) error {
	at, err := place.Find(arg)
	if err != nil {
		return err
	}
	if at.Mount == nil {
		return exit.With(exit.NotStore, fmt.Errorf("%s: store %s is not mounted, and forget works on a mount: `ckptfs mount %s MOUNTPOINT` first", arg, at.Store, text.Word(at.Store)))
	}
	if !strings.HasPrefix(at.Path, "runs/") {
		return exit.With(exit.Usage, fmt.Errorf("%s: no run: it is to be a folder below %s", arg, filepath.Join(at.Mount.Mountpoint, "runs")))
	}
	dir, err := filepath.EvalSymlinks(arg)
	if err != nil {
		return err
	}
	run, err := rundir.Open(dir, at.Device())
	if err != nil {
		return err
	}
	defer run.Close()
	var l *control.RunLog
	err = s.Look(ctx, arg, func(c *control.Client, at *place.Place) error {
		l, err = c.Steps(ctx, at.Path)
		return err
	})
	if err != nil {
		return err
	}
	if len(l.Steps) == 0 {
		s.Say("%s: %s", arg, text.NoSteps)
	}
	steps, err := judged(l, len(p.KeepBest) > 0)
	if err != nil {
		return fmt.Errorf("%s: %w", arg, err)
	}
	decisions, err := p.Decide(steps, time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", arg, err)
	}
	if n := p.Untimed(steps, time.Now()); n > 0 {
		s.Say("%s: %s with an impossible time, before 2000 or in the future: --keep-within keeps them", arg, text.Plural(int64(n), "step"))
	}
	out := forgotten{Run: at.Path, DryRun: dry, Steps: []forgottenStep{}}
	var gone []string
	if !dry {
		defer func() { logForgotten(context.WithoutCancel(ctx), s, arg, gone) }()
	}
	for _, d := range decisions {
		if !d.Keep && dry {
			gone = append(gone, d.Step.Name)
		}
		if !d.Keep && !dry {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := rundir.RemoveStep(run, d.Step.Name); err != nil {
				return err
			}
			gone = append(gone, d.Step.Name)
		}
		out.Steps = append(out.Steps, forgottenStep{d.Step.Name, d.Keep, d.Reasons})
	}
	if dry {
		if out.Gives, err = gives(ctx, s, arg, gone); err != nil {
			s.Say("what that gives back is not known: %v", err)
		}
	} else if err := rundir.RemoveLeft(run); err != nil {
		return err
	}
	return s.Show(out, func(w io.Writer) { printForgotten(w, &out) })
}

// gives is what removing steps of a run gives back; nil for none.
func gives(ctx context.Context, s Shell, run string, steps []string) (d *control.Du, err error) {
	if len(steps) == 0 {
		return nil, nil
	}
	err = s.Look(ctx, run, func(c *control.Client, at *place.Place) error {
		o := control.DuOptions{Brief: true}
		for _, step := range steps {
			o.Paths = append(o.Paths, path.Join(at.Path, step))
		}
		d, err = c.Du(ctx, o)
		return err
	})
	return d, err
}

// logForgotten has the daemon's log say which steps were removed, and by whom. A daemon that ended meanwhile,
// or is older, does not.
func logForgotten(ctx context.Context, s Shell, run string, steps []string) {
	if len(steps) == 0 {
		return
	}
	_ = s.Look(ctx, run, func(c *control.Client, at *place.Place) error {
		return c.Forgot(ctx, at.Path, steps)
	})
}

// judged is what a policy decides by. Steps behind the one that the run can be gone on from are not complete.
// When metrics are to choose, those of a step that cannot be read are an error: it may be the best.
func judged(l *control.RunLog, metrics bool) ([]runs.Step, error) {
	out := make([]runs.Step, len(l.Steps))
	_, numbers := runs.Numbers(l.Last)
	for i := range l.Steps {
		s := &l.Steps[i]
		if metrics && s.Problem != "" {
			return nil, fmt.Errorf("step %s: its metrics cannot be read: %s; mend its metrics file, or remove the step", s.Step, s.Problem)
		}
		// A save of several files has closed all that there are, for a moment, before it makes the next.
		age := time.Since(s.Time)
		writing := s.Unfinished() || age < settled && age > -time.Hour
		is := runs.Step{Name: s.Step, Time: s.Time, Complete: s.State == control.StepComplete && !writing,
			Writing: writing, Last: s.Step == l.Last, Metrics: runs.MetricsOf(s.Metrics)}
		// A saver that was killed between two files left none that is torn.
		_, has := runs.Numbers(s.Step)
		if len(numbers) > 0 && len(has) > 0 && runs.Compare(s.Step, l.Last) > 0 {
			is.Complete, is.Lacks = false, is.Complete
		}
		out[i] = is
	}
	return out, nil
}

func printForgotten(w io.Writer, out *forgotten) {
	rows := make([][]string, len(out.Steps))
	gone := 0
	for i, s := range out.Steps {
		what := "kept"
		if !s.Keep {
			what = text.Paints(w).Doubtful("forgotten")
			gone++
		}
		rows[i] = []string{text.Printable(s.Step), what, text.Printable(strings.Join(s.Reason, ", "))}
	}
	text.Table(w, []string{"STEP", "", "WHY"}, rows)
	verb := "forgotten"
	if out.DryRun {
		verb = "would be forgotten"
	}
	fmt.Fprintf(w, "%s: %d of %s %s\n", text.Printable(out.Run), gone,
		text.Plural(int64(len(rows)), "step"), verb)
	if out.Gives != nil {
		fmt.Fprintf(w, "That gives back %s.\n", space.Removal(out.Gives))
	}
	if gone == 0 && len(out.Steps) > 0 {
		fmt.Fprintln(w, "Each step is kept for the reason beside it. One that was written to in the last minute is forgotten by a later call.")
	}
	if gone > 0 && !out.DryRun {
		fmt.Fprintf(w, "The room of what was packed comes back with `ckptfs prune`: after %s, or now with --grace 0.\n",
			space.Span(control.DefaultGrace))
	}
}
