package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/remote"
	"ckptfs/cmd/ckptfs/rundir"
	"ckptfs/cmd/ckptfs/space"
	"ckptfs/fs/control"
)

func (a *app) pruneCmd() *cobra.Command {
	o := control.PruneOptions{Grace: control.DefaultGrace}
	unused := percentFlag{share: 0.5}
	cmd := &cobra.Command{
		Use:     "prune PATH",
		Aliases: []string{"gc"},
		Short:   "Free the space of removed files",
		Long: `Removes the chunks that no file of the store needs, and returns their space to the disk: as holes in their segments, or
by moving the rest of a segment in which little is left and removing the file. Programs may save, load and remove files
meanwhile. An interrupted prune continues when it is run again.

What is computed of removed files, such as what was quantised from one, is stored without these where that takes less.

What was written within the grace period stays; --grace 0 takes everything. A segment's age counts from when it was
sealed, or the store was unmounted. Chunks of files in lost+found are kept.

--remote deletes the objects of the store's remote that no machine's names need, for 7 days unless --grace is given.
Other machines may publish and read meanwhile. Until then what was removed can be brought back: see remote undelete.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.MaxUnused = unused.share
			if o.Grace < 0 {
				return exit.Wrong(cmd, "--grace is a time span such as 24h, or 0")
			}
			return whole(a, cmd, args[0], unlessDry(o.DryRun), func(s *session) error {
				if m := s.place.Mount; m != nil && !o.DryRun {
					if err := rundir.RemoveLeftBelow(m.Mountpoint, s.place.Device()); err != nil {
						fmt.Fprintf(os.Stderr, "ckptfs: what an interrupted forget left stays: %v\n", err)
					}
				}
				update, done := a.progress("pruning")
				p, err := s.Prune(cmd.Context(), o, update)
				done()
				if err != nil {
					return err
				}
				return a.show(p, func(w io.Writer) { space.Pruned(w, p, o.Grace) })
			})
		},
	}
	f := cmd.Flags()
	f.Var((*remote.Span)(&o.Grace), "grace", "leave alone what was written less than this ago")
	f.Var(&unused, "max-unused", "share of a segment that may lie unused before the rest of it is moved")
	f.BoolVar(&o.DryRun, "dry-run", false, "remove nothing, and say what would go")
	return cmd
}

// percentFlag is a share as a pflag.Value: "50%", "0.5".
type percentFlag struct{ share float64 }

func (f *percentFlag) String() string { return humanize.Ftoa(f.share*100) + "%" }
func (f *percentFlag) Type() string   { return "percent" }
func (f *percentFlag) Set(s string) error {
	t, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(t), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return fmt.Errorf("%q is not a share from 0%% to 100%%", s)
	}
	f.share = v
	return nil
}
