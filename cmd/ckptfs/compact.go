package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (a *app) compactCmd() *cobra.Command {
	o := control.CompactOptions{}
	cmd := &cobra.Command{
		Use:   "compact PATH",
		Short: "Re-encode chunks that can be stored smaller now",
		Long: `Goes through all packed files, the oldest first, and re-encodes the chunks that can be stored smaller now: this version
of ckptfs has a better encoding, or a better base arrived later, or the same tensor in single precision did. A delta
that gains little is stored whole again. So is the rounding of a tensor that no file names any more, which the next
prune then removes. Each new chunk is read, decoded and compared with its hash before the old one goes.

Programs may save, load and remove files meanwhile, and prune may run. Like packing, it uses only idle processors. It
may be interrupted at any time: what is done stays done. It needs up to 1 GiB of space.

With --dry-run everything is read and encoded, and nothing written. The true gain may be larger, because chunks that
were re-encoded could serve as bases for others.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			return whole(a, cmd, args[0], unlessDry(o.DryRun), func(s *session) error {
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
	did := "re-encoded"
	if c.DryRun {
		did = "would re-encode"
	}
	fmt.Fprintf(w, "%s %s of %s: %s before, %s after\n", did, text.Plural(c.Chunks, "chunk"),
		text.Plural(int64(c.Files), "file"), text.Bytes(c.BytesBefore), text.Bytes(c.BytesAfter))
	if !c.DryRun {
		fmt.Fprintf(w, "%s freed; the segments take %s\n",
			text.Bytes(max(0, c.FreedBytes-c.CopiedBytes-c.BytesAfter)), text.Bytes(c.SegmentBytes))
	}
	if c.Passed > 0 {
		fmt.Fprintf(w, "%s left alone: damaged; `ckptfs check` says more\n", text.Plural(int64(c.Passed), "file"))
	}
}
