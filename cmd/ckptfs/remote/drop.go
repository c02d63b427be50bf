package remote

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (c *commands) drop() *cobra.Command {
	return &cobra.Command{
		Use:   "drop PATH…",
		Short: "Free local room: leave to the remote what it has",
		Long: `From now on the published files at or below PATH are read from the remote. Their names stay, here and elsewhere. Whether
the remote has each object of them is asked first. The next 'ckptfs prune' frees the room. What is not published, or is
in use, stays as it is, and is named (exit code 7). 'ckptfs pull' brings the bytes back.`,
		Args: c.some("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.dropAll(cmd.Context(), args) },
	}
}

// dropAll drops what lies at or below paths; what it prints is the sum.
func (c *commands) dropAll(ctx context.Context, paths []string) error {
	sum := &control.Dropped{Skipped: []control.Skip{}}
	err := c.each(ctx, paths, "dropping",
		func(s *control.Client, at string, update func(control.Progress)) error {
			d, err := s.Drop(ctx, at, update)
			if err != nil {
				return err
			}
			sum.Files, sum.Bytes = sum.Files+d.Files, sum.Bytes+d.Bytes
			sum.Skipped = append(sum.Skipped, d.Skipped...)
			return nil
		})
	if err != nil {
		return err
	}
	return c.showSome(sum, sum.Skipped, func(w io.Writer) {
		fmt.Fprintf(w, "left to the remote: %s, %s\n", text.Plural(int64(sum.Files), "file"), text.Bytes(sum.Bytes))
	})
}
