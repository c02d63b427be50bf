package files

import (
	"github.com/spf13/cobra"

	"ckptfs/fs/control"
	"ckptfs/fs/takeout"
)

func (c *commands) cat() *cobra.Command {
	return &cobra.Command{
		Use:   "cat FILE…",
		Short: "Write files to standard output, without a mount",
		Long: `Writes the bytes of files, one after the other. FILE is a path in a mount or STORE/PATH, whether the store is mounted or
not. It may be a view, too. Packed bytes are compared with their hashes on the way.

    ckptfs cat ./store/runs/a/7/metrics.json`,
		Args: c.atLeast(1, "a file or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return c.Inside(ctx, args, func(s *control.Client, at []string) error {
				buf := make([]byte, 1<<20)
				for _, file := range at {
					e, err := s.Entry(ctx, file)
					if err != nil {
						return err
					}
					w := takeout.Filled{W: c.Out()}
					if err := takeout.Read(ctx, s, file, buf, w.WriteAt); err != nil {
						return err
					}
					if err := w.WriteAt(nil, e.Size); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
