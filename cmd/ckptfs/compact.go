package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/fs/control"
)

func (a *app) compactCmd() *cobra.Command {
	o := control.CompactOptions{}
	cmd := &cobra.Command{
		Use:   "compact PATH",
		Short: "Store again, in less room, what older versions or other circumstances left large",
		Long: `Goes through all packed files, the oldest first, and stores those chunks anew that take less room than they do: by an
encoding that this version of ckptfs has and an earlier one had not, or against an earlier version of the file that was
not known, or not there yet, when it was saved, or as the rounding of a tensor in single precision that came later. What is
stored against an earlier version and gains little by it is stored alone again, and so is the rounding of what no file
names any more, which the next prune takes then. Every chunk is read, decoded and held against its hash where it lies now before the old one goes.

Programs may save, load and remove files meanwhile, and so may prune; like packing it leaves the processors to others that
want them. It may be interrupted at any time, and loses nothing: what it has done stays done. It needs up to 1 GiB of
room.

With --dry-run everything is read and encoded, and nothing written; what would then be stored against what was stored anew is
not foreseen, so that the gain may turn out larger.`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], readWrite, func(s *session) error {
				update, done := a.progress("compacting")
				c, err := s.Compact(cmd.Context(), o, update)
				done()
				if err != nil {
					return err
				}
				return a.show(c, func(w io.Writer) { printCompacted(w, c) })
			})
		},
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "change nothing, and say what would become smaller")
	return cmd
}

func printCompacted(w io.Writer, c *control.Compacted) {
	did := "stored"
	if c.DryRun {
		did = "would store"
	}
	fmt.Fprintf(w, "%s %s of %s anew: %s before, %s after\n", did, plural(c.Chunks, "chunk"), plural(int64(c.Files), "file"), bytesText(c.BytesBefore), bytesText(c.BytesAfter))
	if !c.DryRun {
		fmt.Fprintf(w, "%s freed; the segments take %s\n", bytesText(max(0, c.FreedBytes-c.CopiedBytes-c.BytesAfter)), bytesText(c.SegmentBytes))
	}
	if c.Passed > 0 {
		fmt.Fprintf(w, "%s left alone: damaged; `ckptfs check` says more\n", plural(int64(c.Passed), "file"))
	}
}
