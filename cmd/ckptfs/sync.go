package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) syncCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "sync PATH",
		Short: "Pack everything that waits, and wait for it",
		Long: `Packs every closed file that is not packed yet and returns when all of them are packed and durable. Files that are
open for writing are not waited for.`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), args[0], readWrite, func(s *session) error {
				update, done := a.progress("packing")
				err := s.Sync(cmd.Context(), update)
				done()
				if err != nil {
					return err
				}
				return a.show(map[string]string{"store": s.place.store}, func(w io.Writer) {
					fmt.Fprintf(w, "%s: everything is packed\n", printable(s.place.store))
				})
			})
		},
	}
}
