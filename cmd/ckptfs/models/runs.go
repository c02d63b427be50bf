package models

import (
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

func runsCmd(s Shell) *cobra.Command {
	tree := false
	cmd := &cobra.Command{
		Use:   "runs PATH",
		Short: "List the training runs: steps, sizes, metrics",
		Long: `Lists the directories below runs/ of the store of PATH. The steps of a run are the directories in it that hold files.

A step is complete when all its files were closed. It is torn when a file of it was open for writing while a daemon
died, until that file is written again or removed. Names such as tmp-checkpoint-500 belong to steps that are being
written.

--tree lists each run below the one that its first step comes from, as ckptfs lineage has it, and the metrics of its
last step that has any.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.Whole(cmd, args[0], func(c *control.Client, _ *place.Place) error {
				r, err := c.Runs(cmd.Context())
				if err != nil {
					return err
				}
				if tree {
					return showTree(cmd.Context(), s, c, r)
				}
				return s.Show(r, func(w io.Writer) { printRuns(w, r) })
			})
		},
	}
	cmd.Flags().BoolVar(&tree, "tree", false, "list each run below the one that it comes from")
	return cmd
}

func printRuns(w io.Writer, l *control.RunList) {
	paint := text.Paints(w)
	rows := make([][]string, len(l.Runs))
	for i := range l.Runs {
		r := &l.Runs[i]
		rows[i] = []string{text.Printable(r.Run), humanize.Comma(int64(r.Steps)), incomplete(r, paint),
			text.Bytes(r.LogicalBytes),
			text.Time(r.Last), metricsOf(r.Metrics)}
	}
	text.Table(w, []string{"RUN", ">STEPS", "NOT COMPLETE", ">SIZE", "LAST WRITTEN", "METRICS"}, rows)
}

// mostMetrics is how many metrics of a run are named.
const mostMetrics = 10

// metricsOf names the first of some metrics, and says how many more there are.
func metricsOf(names []string) string {
	shown := make([]string, min(len(names), mostMetrics))
	for i := range shown {
		shown[i] = cutTo(names[i], 64)
	}
	all := text.Printable(strings.Join(shown, ", "))
	if n := len(names) - len(shown); n > 0 {
		all += " and " + humanize.Comma(int64(n)) + " more"
	}
	return all
}

// incomplete says how many steps of a run are not complete; "" for none.
func incomplete(r *control.Run, paint text.Paint) string {
	var not []string
	if r.Torn > 0 {
		not = append(not, paint.Bad(fmt.Sprintf("%d torn", r.Torn)))
	}
	if r.Writing > 0 {
		not = append(not, paint.Doubtful(fmt.Sprintf("%d being written", r.Writing)))
	}
	return strings.Join(not, ", ")
}

func logCmd(s Shell) *cobra.Command {
	plots := false
	cmd := &cobra.Command{
		Use:   "log RUN | --plot RUN [METRIC…]",
		Short: "List the steps of a run: metrics, sizes, what each added",
		Long: `Lists the steps of RUN, a folder below runs/, in the order of the numbers in their names: the size of each, how much of
it no step before it has (raw, before compression), the step with which it shares most of the rest, and its metrics.

Metrics are read from metrics.json, trainer_state.json, _CHECKPOINT_METADATA and Lightning's *.ckpt in the step's
directory, and from its extended attributes user.metric.NAME, which take precedence:

    setfattr -n user.metric.val_loss -v 0.31 /mnt/ckpt/runs/a/3

--plot draws each METRIC over the steps as a curve, or every one that a complete step has. Values that are not finite
are gaps, and torn steps are left out. With --json the log is printed as without it.`,
		Args: func(cmd *cobra.Command, given []string) error {
			if plots {
				return args.Some(cmd, given)
			}
			return args.One(cmd, given)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if plots && !s.JSON() {
				return plotLog(cmd.Context(), s, args[0], args[1:])
			}
			return s.Look(cmd.Context(), args[0], func(c *control.Client, at *place.Place) error {
				log := func(to control.Listed) (*control.RunLog, error) {
					defer s.Waiting("reading")()
					return c.Log(cmd.Context(), at.Path, to)
				}
				if s.JSON() {
					return text.LogAsJSON(s.Out(), path.Base(at.Path), log)
				}
				return text.Log(s.Out(), log)
			})
		},
	}
	cmd.Flags().BoolVar(&plots, "plot", false, "draw metrics over the steps")
	return cmd
}

// bestStep is what best prints: the step, by its path for programs of this machine.
type bestStep struct {
	*control.BestStep
	Path  string `json:"path"`            // absolute
	Mount string `json:"mount,omitempty"` // where the store is mounted that the path lies in; "": nowhere
}

func bestCmd(s Shell) *cobra.Command {
	mode := ""
	cmd := &cobra.Command{
		Use:   "best RUN METRIC",
		Short: "Print the complete step with the best value of a metric",
		Long: `Prints the directory of the complete step of RUN with the best value of METRIC, and the value. --mode says which end
is good; without it the metric's name does: of a loss, an error or a perplexity the least is best, of an accuracy, a
reward or a score the greatest. Of a name that does not say it, such as lr or epoch, --mode has to. NaN never wins. Of
equal values the earlier step wins. ckptfs log RUN shows the metrics.`,
		Args: args.Two,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, known := runs.ModeOf(args[1])
			if mode != "" {
				var err error
				if m, err = runs.ParseMode(mode); err != nil {
					return exit.Wrong(cmd, "--mode: "+err.Error())
				}
				known = true
			} else if m == runs.Max && !s.JSON() {
				s.Say("%s: more is better, by its name; --mode min prints the least", args[1])
			}
			return s.Look(cmd.Context(), args[0], func(c *control.Client, at *place.Place) error {
				b, err := c.Best(cmd.Context(), at.Path, args[1], m.String())
				if err != nil {
					return err
				}
				if !known { // the metric is there
					return exit.Wrong(cmd, text.Printable(args[1])+": its name does not say which end is good: "+
						"--mode min or --mode max does")
				}
				found := bestStep{BestStep: b}
				if found.Path = at.Full(b.Path); at.Mount != nil {
					found.Mount = at.Mount.Mountpoint
				} else if !s.JSON() {
					s.Say("%s is not mounted, and packed files are read through a mount", at.Store)
				}
				return s.Show(found, func(w io.Writer) {
					fmt.Fprintf(w, "%s  %s=%s\n", text.Printable(found.Path), text.Printable(b.Metric),
						text.Paints(w).Best(b.Value.String()))
				})
			})
		},
	}
	cmd.Flags().StringVar(&mode, "mode", "", "min or max: which end is good (default: as the metric's name says)")
	return cmd
}
