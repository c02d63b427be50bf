package remote

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cas/remote/index"
	"ckptfs/cmd/ckptfs/text"
)

func (c *commands) index() *cobra.Command {
	return &cobra.Command{
		Use:   "index PATH",
		Short: "Have all machines find what the remote has already",
		Long: `Brings the index of the remote of the store that PATH lies in up to what all machines published. A machine that is about
to publish a model which another one has published finds it there, and puts nothing twice. It needs the credentials of a
collector.`,
		Args: c.args("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			j, err := c.writer(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			made, err := c.makeIndex(cmd.Context(), j)
			if err != nil {
				return fmt.Errorf("%s: %w", j.URL(), err)
			}
			return c.Show(made, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %s, %s of them new; the index has %s\n", j.URL(),
					text.Plural(int64(made.Files), "file"), humanize.Comma(int64(made.Added)),
					text.Plural(made.Items, "item"))
				if made.Unread > 0 {
					fmt.Fprintf(w, "%s could not be read, and are passed over\n",
						text.Plural(int64(made.Unread), "manifest"))
				}
			})
		},
	}
}

// makeIndex brings the index up to what the remote has.
func (c *commands) makeIndex(ctx context.Context, j *joined) (index.Made, error) {
	say, done := c.counts()
	defer done()
	return index.Make(ctx, j.bucket, index.Options{Remote: j.ID, Now: c.now, Random: rand.Reader, Say: say})
}
