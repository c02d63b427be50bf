package main

import (
	"fmt"
	"io"

	"ckptfs/cmd/ckptfs/remote"
	"ckptfs/cmd/ckptfs/text"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
)

func (a *app) syncCmd() *cobra.Command {
	var published, newest bool
	cmd := &cobra.Command{
		Use:   "sync [--remote [--newest]] PATH",
		Short: "Pack every closed file, and wait for it",
		Long: `Packs every closed file that is not packed yet and returns when all of them are packed and durable. Files that are open
for writing are not waited for. With --remote it also publishes what is complete at or below PATH, as push does, and
returns when every other machine can see it.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			if published {
				return remote.Push(cmd.Context(), shell{a}, args, newest)
			}
			if newest {
				return exit.Wrong(cmd, "--newest is about --remote")
			}
			return a.with(cmd.Context(), args[0], readWrite, func(s *session) error {
				update, done := a.progress("packing")
				err := s.Sync(cmd.Context(), update)
				done()
				if err != nil {
					return err
				}
				st, err := s.Status(cmd.Context())
				if err != nil {
					return err
				}
				text.NamePlain(a.err, st)
				out := synced{Store: s.place.Store, UnpackedBytes: st.UnpackedBytes}
				return a.show(out, func(w io.Writer) {
					if out.UnpackedBytes > 0 {
						fmt.Fprintf(w, "%s: all that is closed is packed; %s are open or mapped for writing\n", text.Printable(out.Store), text.Bytes(out.UnpackedBytes))
						return
					}
					fmt.Fprintf(w, "%s: %s is packed\n", text.Printable(out.Store), text.Everything(st))
				})
			})
		},
	}
	cmd.Flags().BoolVar(&published, "remote", false, "publish what is complete, too, and wait for it")
	cmd.Flags().BoolVar(&newest, "newest", false, "with --remote: publish the newest complete step first")
	return cmd
}

// synced is what sync prints.
type synced struct {
	Store         string `json:"store"`
	UnpackedBytes int64  `json:"unpacked_bytes"` // of files that are open or mapped for writing
}
