package main

import (
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/text"
)

func (a *app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status PATH",
		Short: "Show what the daemon does: mode, queue, failures",
		Long: `Prints where and how the store of PATH is mounted, the queue of files to pack, how much of --hot-size is in use, what
failed and will be tried again, and what the start repaired. The exit code is 1 while a file may have lost bytes. It
changes nothing, and fails (exit code 10) for a store that is not mounted and was not closed in order.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], untouched, func(s *session) error {
				st, err := s.Status(cmd.Context())
				if err != nil {
					return err
				}
				return st.Loss.After(a.show(st, func(w io.Writer) { text.Status(w, st) }))
			})
		},
	}
}
