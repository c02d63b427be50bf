package remote

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (c *commands) export() *cobra.Command {
	var serving bool
	cmd := &cobra.Command{
		Use:   "export NAME PATH",
		Short: "Publish a run or a step once more, for servers",
		Long: `Publishes what the remote has at PATH, below runs/, as the run NAME, in a head that all machines share. It is all that
is shown where the bucket is read over plain HTTP. What was exported as NAME before is replaced, at once.

--serving stores all that it needs alone, in objects of its own, in the order in which it is read: who reads nothing
else fetches nothing else. This takes the room of the whole files once more.`,
		Args: c.args("NAME PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.With(cmd.Context(), args[1], func(s *control.Client, at string) error {
				done := c.Waiting("publishing")
				out, err := s.Export(cmd.Context(), args[0], at, serving)
				done()
				if err != nil {
					return err
				}
				return c.showSome(out, out.Skipped, func(w io.Writer) {
					fmt.Fprintf(w, "exported %s as %s, removed %d; %s in %s\n", text.Plural(int64(out.Names), "name"),
						text.Printable(out.Name), out.Removed, text.Bytes(out.Bytes),
						text.Plural(int64(out.Objects), "object"))
				})
			})
		},
	}
	cmd.Flags().BoolVar(&serving, "serving", false, "store all that it needs alone, in the order in which it is read")
	return cmd
}
