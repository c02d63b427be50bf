package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (a *app) statusCmd() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status PATH",
		Short: "Show what the daemon does: mode, queue, failures",
		Long: `Prints where and how the store of PATH is mounted, the queue of files to pack, how much of --hot-size is in use, what
failed and will be tried again, and what the start repaired. The exit code is 1 while a file may have lost bytes. It
changes nothing, and fails (exit code 10) for a store that is not mounted and was not closed in order.

--watch prints it again every 2 seconds, --watch=10s every ten, until it is interrupted. A terminal shows the last
answer in its place. Elsewhere an empty line stands between two, and with --json each is an object in a line of its own.
The exit code is that of the last answer.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("watch") {
				if every < leastInterval {
					return exit.Wrong(cmd, "--watch takes a time of 100ms or more, such as 5s")
				}
				return a.watchStatus(cmd.Context(), args[0], every)
			}
			st, err := a.status(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return st.Loss.After(a.show(st, func(w io.Writer) { text.Status(w, st) }))
		},
	}
	cmd.Flags().DurationVar(&every, "watch", 0, "print it again and again, every 2 seconds unless a time is given")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return cmd
}

// leastInterval keeps a watch from being most of what a daemon does.
const leastInterval = 100 * time.Millisecond

// status asks once. Nothing is kept open afterwards: what is not mounted can be.
func (a *app) status(ctx context.Context, path string) (st *control.Status, err error) {
	err = a.with(ctx, path, untouched, func(s *session) error {
		st, err = s.Status(ctx)
		return err
	})
	return st, err
}

// watchStatus asks until ctx ends. A failure is one that the last answer is: at first it ends the watch, and
// later it is shown, since the next daemon may answer.
func (a *app) watchStatus(ctx context.Context, path string, every time.Duration) error {
	w := text.NewWatch(a.out, a.json)
	defer w.End()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last error
	for first := true; ; first = false {
		st, err := a.status(ctx, path)
		switch {
		case ctx.Err() != nil && !first:
			return last
		case err != nil && first:
			return err
		case err != nil:
			last = err
			w.Failed(err)
		default:
			last = st.Loss.After(w.Show(st, func(w io.Writer) { text.Status(w, st) }))
			if w.Broken() {
				return last
			}
		}
		select {
		case <-ctx.Done():
			return last
		case <-tick.C:
		}
	}
}
