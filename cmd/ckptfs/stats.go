package main

import (
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/space"
	"ckptfs/fs/control"
)

func (a *app) statsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats PATH",
		Short: "Show what is stored and what it costs",
		Long: `Prints what the store of PATH holds and what that costs on the disk:

    logical   the sizes of all files
    unique    the distinct chunks of packed files, before compression
    stored    segments (live and dead chunks, manifests) and index, as they lie on the disk
    local     bytes in the tree: plain files, and the local copies of packed ones ("resident_bytes" in JSON)
    on disk   stored and local
    ratio     logical bytes of packed files, divided by stored
    waiting   what is not packed yet, and is; ckptfs sync packs it now

Dead is what no file needs: ckptfs prune gives back what was written more than 24 hours ago, and with --grace 0 all but
parts of blocks beside the holes that it makes, which --max-unused 0 gives back. The local copies are a cache: ckptfs
evict drops them, and mount --hot-size bounds them.

The same follows for each run, a folder below runs/, by name. UNIQUE is of the chunks that its files use, NEW of those
that no run listed above it uses, both before compression.

The first answer after a mount reads every manifest. The daemon keeps it up to date for the later ones.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			return whole(a, cmd, args[0], readOnly, func(s *session) error {
				done := shell{a}.Waiting("counting")
				st, err := s.Stats(cmd.Context())
				done()
				if err != nil {
					return err
				}
				if st.Runs == nil {
					st.Runs = []control.RunStats{}
				}
				return a.show(st, func(w io.Writer) { space.Stats(w, st) })
			})
		},
	}
}
