package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// away is for how long a daemon that went away is waited for: the next one takes its place.
const away = 15 * time.Second

func watchCmd(s Shell) *cobra.Command {
	o, count := control.FollowOptions{}, 0
	cmd := &cobra.Command{
		Use:   "watch RUN",
		Short: "Print each step of a run when it is complete",
		Long: `Prints the folder of each step of RUN, a folder below runs/ of a mount, as soon as it is complete: its files are
closed, and it has as many as the step before it, and of the same kinds. The first step of a run has nothing before it:
it is complete when it has not changed for --settle.

Steps that are complete already are passed over, but those behind --from, and with --all none is. A step is printed
once. With --json each line also has the step before it, and the path of the patch that leads from that to it: a
safetensors file of what changed (docs/views.md).`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Settle < 0 {
				return exit.Wrong(cmd, "--settle: a time of at least 0")
			}
			if count < 0 {
				return exit.Wrong(cmd, "--count: a number of at least 0")
			}
			if o.All && o.From != "" {
				return exit.Wrong(cmd, "--all and --from: one of the two")
			}
			return watchRun(cmd.Context(), s, args[0], o, count)
		},
	}
	cmd.Flags().StringVar(&o.From, "from", "", "print the steps behind `STEP` too that are complete already")
	cmd.Flags().BoolVar(&o.All, "all", false, "print all steps that are complete already, too")
	cmd.Flags().DurationVar(&o.Settle, "settle", 2*time.Second, "how long the first step of a run must not have changed")
	cmd.Flags().IntVarP(&count, "count", "n", 0, "end after so many steps; 0: never")
	return cmd
}

// printStep prints a line.
func printStep(s Shell, st control.NewStep) error {
	if s.JSON() {
		enc := json.NewEncoder(s.Out())
		enc.SetEscapeHTML(false)
		return enc.Encode(st)
	}
	_, err := io.WriteString(s.Out(), text.Printable(st.Path)+"\n")
	return err
}

var errEnough = errors.New("enough steps")

// watchRun follows a run, also when another daemon takes the place of the one that was asked.
func watchRun(ctx context.Context, s Shell, run string, o control.FollowOptions, count int) error {
	printed := 0
	var lost time.Time // when the daemon went away; zero: it is there
	for {
		err := s.Look(ctx, run, func(c *control.Client, at *place.Place) error {
			o.Run = at.Path
			return c.Follow(ctx, o, func(st control.NewStep) error {
				lost = time.Time{}
				if st.Step == "" {
					o.From, o.All = st.Before, st.Before == ""
					return nil
				}
				o.From, o.All = st.Step, false
				st.Path = at.Full(st.Path)
				if st.Patch != "" {
					st.Patch = at.Full(st.Patch)
				}
				if err := printStep(s, st); err != nil {
					return err
				}
				if printed++; printed == count {
					return errEnough
				}
				return nil
			})
		})
		switch {
		case errors.Is(err, errEnough):
			return nil
		case !lost.IsZero() && !control.WentAway(err) && ctx.Err() == nil:
			return exit.With(exit.NotStore, fmt.Errorf("%s was unmounted, or its daemon ended, while it was watched: %w",
				run, err))
		case !control.WentAway(err) || ctx.Err() != nil:
			return err
		case lost.IsZero():
			lost = time.Now()
		case time.Since(lost) > away:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
