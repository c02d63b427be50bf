package remote

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cas"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// repairFlags extends the command repair.
func (c *commands) repairFlags(cmd *cobra.Command) {
	var writers []string
	c.extend(cmd, "make heads of the remote again that were deleted or put back by hand",
		func(ctx context.Context, _ *cobra.Command, path string) error {
			return c.repair(ctx, path, writers)
		})
	cmd.Flags().StringSliceVar(&writers, "writer", nil, "with --remote, a writer whose head is to be made from commit records")
}

func (c *commands) repair(ctx context.Context, path string, writers []string) error {
	return c.With(ctx, path, func(s *control.Client, _ string) error {
		say, done := c.counts()
		r, err := s.RepairRemote(ctx, writers, func(p control.Progress) {
			say(p.Current, int64(p.DoneFiles))
		})
		done()
		if err != nil {
			return err
		}
		if err := c.Show(r, func(w io.Writer) { printMended(w, r, path) }); err != nil || len(r.Lost) == 0 {
			return err
		}
		return fmt.Errorf("%s lost: %w", text.Plural(int64(len(r.Lost)), "name"), cas.ErrCorrupt)
	})
}

func printMended(w io.Writer, r *control.RemoteRepaired, path string) {
	for _, h := range r.Heads {
		state := "it is as it was committed last"
		if !h.Same {
			state = "its writer publishes under a new name from now on; names that were deleted may be back"
		}
		fmt.Fprintf(w, "head of %s: %s; made again with %s: %s\n", text.Printable(h.Writer), text.Printable(h.Was),
			text.Plural(int64(h.Names), "name"), state)
	}
	if len(r.Heads) == 0 {
		fmt.Fprintln(w, "no head to repair")
	}
	if r.Revived > 0 {
		fmt.Fprintf(w, "published again, since their objects were about to be deleted: %s\n",
			text.Plural(int64(r.Revived), "name"))
	}
	for _, l := range r.Lost {
		fmt.Fprintf(w, "lost: %s: %s\n", text.Printable(l.Path), text.Printable(l.Reason))
	}
	if len(r.Lost) > 0 {
		fmt.Fprintln(w, "a machine that has them publishes them again: ckptfs umount MNT; rm STORE/remote.db; ckptfs push STORE")
	}
	for _, u := range r.Unknown {
		fmt.Fprintf(w, "%s has no head, and %s, the last of %s; unless it was idle for months, and folded:\n    ckptfs repair --remote --writer %[1]s %[4]s\n",
			text.Printable(u.Writer), text.Plural(int64(u.Commits), "commit record"),
			u.Last.Local().Format(time.DateTime),
			text.Printable(path))
	}
	for _, key := range r.Damaged {
		fmt.Fprintf(w, "%s could not be read: `ckptfs check --remote` says more\n", text.Printable(key))
	}
}
