package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
	"ckptfs/fs/volume"
)

func (a *app) repairCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "repair index|segments|tree STORE | --remote PATH",
		Short: "Repair a damaged store",
		Long: `Repairs one part of a store that is not mounted. ` + "`ckptfs check`" + ` says which:

    index     builds the index from the segments; the old one is moved aside
    segments  reads every record; keeps the whole records of a damaged segment in a new one and moves the file aside;
              then builds the index
    tree      restores records that were lost when the store was copied without extended attributes; corrects sizes that
              differ from the manifest's; moves files aside whose bytes are not available any more, unless they are
              resident

--remote PATH makes heads of the store's remote again that somebody deleted or put back to an earlier version: from what
this store read of them last, and from the commit records among the objects. --writer NAME makes the head of a writer
that this store never saw. Nothing that is committed is lost; what was deleted may come back.

Aside is the store's folder lost+found. Nothing is deleted. A repair may be interrupted and repeated.`,
		Args: args.Two,
		RunE: func(cmd *cobra.Command, args []string) error {
			part := args[0]
			switch part {
			case volume.RepairIndex, volume.RepairSegments, volume.RepairTree:
			default:
				return exit.Wrong(cmd, fmt.Sprintf("%q is no part of a store: index, segments or tree", part))
			}
			p, err := place.Find(args[1])
			if err != nil {
				return err
			}
			update, done := a.progress("repairing")
			o := asOpened(a, p.Store)
			o.RemoteOptions = volume.RemoteOptions{}
			r, err := volume.Repair(cmd.Context(), part, o, update)
			done()
			var locked *tree.LockedError
			if errors.As(err, &locked) {
				how := ""
				if m := place.MountpointOf(p.Store); m != "" {
					how = ": `ckptfs umount " + quoted(m) + "` first"
				}
				return fmt.Errorf("%w, and a repair needs it for itself%s", err, how)
			}
			if err != nil {
				return err
			}
			if err := a.show(r, func(w io.Writer) { printRepaired(w, r) }); err != nil || r.Left == 0 {
				return err
			}
			return errFoundDamage
		},
	}
}

func printRepaired(w io.Writer, r *control.Repaired) {
	for _, x := range r.Actions {
		fmt.Fprintf(w, "%s: %s\n", text.Printable(x.Path), text.Printable(x.Did))
	}
	if len(r.Actions) == 0 {
		fmt.Fprintf(w, "%s: nothing to repair\n", r.Part)
	}
	fmt.Fprintf(w, "the store holds %s\n", text.Plural(r.Records, "record"))
}
