package remote

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (c *commands) deleted() *cobra.Command {
	return &cobra.Command{
		Use:   "deleted PATH",
		Short: "List names that were deleted and can be brought back",
		Long: `Lists the names at or below PATH that some machine deleted, with who did and when. They can be brought back until
prune --remote has deleted what they need: 7 days after they were deleted at the earliest.`,
		Args: c.args("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.With(cmd.Context(), args[0], func(s *control.Client, at string) error {
				found, err := s.Deleted(cmd.Context(), at)
				if err != nil {
					return err
				}
				return c.Show(found, func(w io.Writer) {
					var rows [][]string
					for _, d := range found.Names {
						when := ""
						if !d.Time.IsZero() {
							when = d.Time.Local().Format(time.DateTime)
						}
						rows = append(rows, []string{text.Printable(d.Path), text.Bytes(d.Size), when,
							text.Printable(d.Writer)})
					}
					text.Table(w, []string{"PATH", ">SIZE", "DELETED", "BY"}, rows)
				})
			})
		},
	}
}

func (c *commands) undelete() *cobra.Command {
	return &cobra.Command{
		Use:   "undelete PATH",
		Short: "Bring back what was deleted, for all machines",
		Long: `Brings back the names at or below PATH that some machine deleted and that nothing else has now: publishes them, and
makes them here. Their bytes are fetched, but for what this store has. What is gone is named, with who deleted it and
when (exit code 7).`,
		Args: c.args("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.With(cmd.Context(), args[0], func(s *control.Client, at string) error {
				update, done := c.Progress("bringing back")
				out, err := s.Undelete(cmd.Context(), at, update)
				done()
				if err != nil {
					return err
				}
				return c.showSome(out, out.Skipped, func(w io.Writer) {
					fmt.Fprintf(w, "brought back %s, %s\n", text.Plural(int64(out.Names), "name"), text.Bytes(out.Bytes))
				})
			})
		},
	}
}
