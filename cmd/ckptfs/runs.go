package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/index/runs"
)

func (a *app) runsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "runs PATH",
		Short: "List the training runs: steps, sizes, metrics",
		Long: `Lists the directories below runs/ of the store of PATH. The steps of a run are the directories in it that hold files.

A step is complete when all its files were closed. It is torn when a file of it was open for writing while a daemon
died, until that file is written again or removed. Names such as tmp-checkpoint-500 belong to steps that are being
written.`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], readOnly, func(s *session) error {
				r, err := s.Runs(cmd.Context())
				if err != nil {
					return err
				}
				return a.show(r, func(w io.Writer) { printRuns(w, r) })
			})
		},
	}
}

func printRuns(w io.Writer, l *control.RunList) {
	rows := make([][]string, len(l.Runs))
	for i := range l.Runs {
		r := &l.Runs[i]
		var not []string
		if r.Torn > 0 {
			not = append(not, fmt.Sprintf("%d torn", r.Torn))
		}
		if r.Writing > 0 {
			not = append(not, fmt.Sprintf("%d being written", r.Writing))
		}
		rows[i] = []string{text.Printable(r.Run), humanize.Comma(int64(r.Steps)), strings.Join(not, ", "),
			text.Bytes(r.LogicalBytes),
			timeText(r.Last), text.Printable(strings.Join(r.Metrics, ", "))}
	}
	text.Table(w, []string{"RUN", ">STEPS", "NOT COMPLETE", ">SIZE", "LAST WRITTEN", "METRICS"}, rows)
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

func (a *app) logCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "log RUN",
		Short: "List the steps of a run: metrics, sizes, what each added",
		Long: `Lists the steps of RUN, a folder below runs/, in the order of the numbers in their names: the size of each, how much of
it no step before it has (raw, before compression), the step with which it shares most of the rest, and its metrics.

Metrics are read from metrics.json, trainer_state.json, _CHECKPOINT_METADATA and Lightning's *.ckpt in the step's
directory, and from its extended attributes user.metric.NAME, which take precedence:

    setfattr -n user.metric.val_loss -v 0.31 /mnt/ckpt/runs/a/3`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], readOnly, func(s *session) error {
				l, err := s.Log(cmd.Context(), s.place.path)
				if err != nil {
					return err
				}
				return a.show(l, func(w io.Writer) { printLog(w, l) })
			})
		},
	}
}

// leastPlain is how much of a step must not be packed to be worth a word: small files never are.
const leastPlain = 64 << 10

func printLog(w io.Writer, l *control.RunLog) {
	rows := make([][]string, len(l.Steps))
	for i := range l.Steps {
		s := &l.Steps[i]
		fresh := text.Bytes(s.NewBytes)
		if s.PlainBytes >= leastPlain {
			fresh += " + " + text.Bytes(s.PlainBytes) + " not packed"
		}
		shared := ""
		if s.SharedWith != "" {
			shared = fmt.Sprintf("%s with %s", text.Bytes(s.SharedBytes), s.SharedWith)
		}
		metrics := make([]string, 0, len(s.Metrics))
		for _, name := range slices.Sorted(maps.Keys(s.Metrics)) {
			metrics = append(metrics, fmt.Sprintf("%s=%s", name, s.Metrics[name]))
		}
		rows[i] = []string{text.Printable(s.Step), s.State, timeText(s.Time), text.Bytes(s.LogicalBytes),
			fresh, text.Printable(shared),
			text.Printable(strings.Join(metrics, " "))}
	}
	text.Table(w, []string{"STEP", "STATE", "WRITTEN", ">SIZE", ">NEW", "SHARED", "METRICS"}, rows)
	if len(rows) > 0 {
		fmt.Fprintln(w, "NEW is what no step above has, before compression and deltas; `ckptfs stats` says what is stored.")
	}
	for i := range l.Steps {
		if s := &l.Steps[i]; s.Problem != "" {
			fmt.Fprintf(w, "%s: %s\n", text.Printable(s.Step), text.Printable(s.Problem))
		}
	}
}

func (a *app) bestCmd() *cobra.Command {
	mode := ""
	cmd := &cobra.Command{
		Use:   "best RUN METRIC",
		Short: "Print the complete step with the best value of a metric",
		Long: `Prints the directory of the complete step of RUN with the least value of METRIC, or with --mode max the greatest, and
the value. NaN never wins. Of equal values the earlier step wins. ckptfs log RUN shows the metrics.`,
		Args: func(cmd *cobra.Command, args []string) error { return wantArgs(cmd, args, 2) },
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := runs.ParseMode(mode)
			if err != nil {
				return &usageError{msg: "--mode: " + err.Error(), cmd: cmd}
			}
			return a.with(cmd.Context(), args[0], readOnly, func(s *session) error {
				b, err := s.Best(cmd.Context(), s.place.path, args[1], m.String())
				if err != nil {
					return err
				}
				return a.show(b, func(w io.Writer) {
					fmt.Fprintf(w, "%s  %s=%s\n", text.Printable(s.place.full(b.Path)),
						text.Printable(b.Metric), b.Value)
				})
			})
		},
	}
	cmd.Flags().StringVar(&mode, "mode", "min", "min or max: which end is good")
	return cmd
}
