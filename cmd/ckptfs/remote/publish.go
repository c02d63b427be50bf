package remote

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"ckptfs/cas/remote"
	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/patient"
	"ckptfs/cas/remote/probe"
	"ckptfs/cas/remote/record"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// Commands are those that have names of their own: push, pull, drop, fetch and clone.
func Commands(s Shell) []*cobra.Command {
	c := newCommands(s)
	return []*cobra.Command{c.push(), c.pull(), c.drop(), c.fetch(), c.clone()}
}

// patience is how long one request of a command or a mount is made again.
const patience = 20 * time.Second

// requests at a time.
const requests = 16

// Open opens the bucket of a remote.
func Open(j remote.Joined) (bucket.Bucket, error) {
	b, err := j.Open(context.Background())
	if err != nil {
		return nil, err
	}
	return guarded(j, b), nil
}

// guarded is a bucket with patience. Before anything is put there on a condition, the engine shows that it
// keeps conditions still.
func guarded(j remote.Joined, b bucket.Bucket) bucket.Bucket {
	return probe.Guard(patiently(b, patience), record.ProbeKey(j.Writer))
}

// patiently makes each request of a bucket again for so long.
func patiently(b bucket.Bucket, most time.Duration) bucket.Bucket {
	return patient.New(b, patient.Options{Requests: requests, For: most})
}

func (c *commands) push() *cobra.Command {
	var o control.PushOptions
	cmd := &cobra.Command{
		Use:   "push [--newest] [--no-conflict] PATH…",
		Short: "Publish runs and steps to the remote",
		Long: `Publishes what is complete at or below PATH, and returns when every other machine can see it. Below the mountpoint
itself, or a store, that is all runs. Complete steps are published without being asked for while the store is mounted;
push does not wait until they were left alone. What is not published is named (exit code 7).

If another machine changed what is to be published, and this store has not seen it, both versions are kept. With
--no-conflict nothing is published then (exit code 14).`,
		Args: c.some("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.pushAll(cmd.Context(), args, o) },
	}
	cmd.Flags().BoolVar(&o.Newest, "newest", false, "publish the newest complete step first")
	cmd.Flags().BoolVar(&o.NoConflict, "no-conflict", false, "publish nothing if a name would have several versions then")
	return cmd
}

// Push publishes what is complete at or below paths, and says so. newest: the newest step first.
func Push(ctx context.Context, s Shell, paths []string, newest bool) error {
	return newCommands(s).pushAll(ctx, paths, control.PushOptions{Newest: newest})
}

// PushAll publishes what is complete in a volume, with progress, and names what is left. One that only reads
// its remote has nothing to publish.
func PushAll(ctx context.Context, s Shell, cl *control.Client) error {
	if st, err := cl.Status(ctx); err == nil && st.Remote != nil && st.Remote.ReadOnly {
		return nil
	}
	update, done := s.Progress("publishing")
	p, err := cl.Push(ctx, "", control.PushOptions{}, update)
	done()
	if err == nil {
		s.Left(p.Skipped)
	}
	return err
}

// each calls do for each path, in the volume that it lies in, with what shows the progress of it.
func (c *commands) each(ctx context.Context, paths []string, doing string,
	do func(s *control.Client, at string, update func(control.Progress)) error) error {
	for _, path := range paths {
		err := c.With(ctx, path, func(s *control.Client, at string) error {
			update, done := c.Progress(doing)
			defer done()
			return do(s, at, update)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// showSome prints a result, and names what was left as it was.
func (c *commands) showSome(v any, skipped []control.Skip, human func(io.Writer)) error {
	err := c.Show(v, func(w io.Writer) {
		c.Left(skipped)
		human(w)
	})
	if err == nil && len(skipped) > 0 {
		err = c.Partial()
	}
	return err
}

// pushAll publishes what lies at or below paths; what it prints is the sum.
func (c *commands) pushAll(ctx context.Context, paths []string, o control.PushOptions) error {
	sum := &control.Pushed{Skipped: []control.Skip{}}
	err := c.each(ctx, paths, "publishing",
		func(s *control.Client, at string, update func(control.Progress)) error {
			p, err := s.Push(ctx, at, o, update)
			if err != nil {
				return err
			}
			sum.Remote, sum.Writer = p.Remote, p.Writer
			sum.Names, sum.Removed = sum.Names+p.Names, sum.Removed+p.Removed
			sum.Objects, sum.Bytes = sum.Objects+p.Objects, sum.Bytes+p.Bytes
			sum.Skipped = append(sum.Skipped, p.Skipped...)
			return nil
		})
	if err != nil {
		return err
	}
	return c.showSome(sum, sum.Skipped, func(w io.Writer) {
		fmt.Fprintf(w, "%s: published %s, removed %d; %s in %s\n", text.Printable(sum.Remote),
			text.Plural(int64(sum.Names), "name"), sum.Removed, text.Bytes(sum.Bytes),
			text.Plural(int64(sum.Objects), "object"))
	})
}

func (c *commands) pull() *cobra.Command {
	return &cobra.Command{
		Use:   "pull PATH…",
		Short: "Bring runs and steps from the remote",
		Long: `Makes the names at or below PATH as other machines published them, with their bytes; PATH need not be there yet. What
this store has already is not fetched. What was changed here and is not published stays as it is, and is named (exit
code 7).`,
		Args: c.some("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.pullAll(cmd.Context(), args) },
	}
}

// pullAll brings what lies at or below paths; what it prints is the sum.
func (c *commands) pullAll(ctx context.Context, paths []string) error {
	sum := &control.Pulled{Skipped: []control.Skip{}}
	err := c.each(ctx, paths, "pulling",
		func(s *control.Client, at string, update func(control.Progress)) error {
			p, err := s.Pull(ctx, at, update)
			if err != nil {
				return err
			}
			sum.Files, sum.Bytes, sum.Fetched = sum.Files+p.Files, sum.Bytes+p.Bytes, sum.Fetched+p.Fetched
			sum.Skipped = append(sum.Skipped, p.Skipped...)
			return nil
		})
	if err != nil {
		return err
	}
	return c.showSome(sum, sum.Skipped, func(w io.Writer) {
		printPulled(w, sum)
	})
}

func printPulled(w io.Writer, p *control.Pulled) {
	fmt.Fprintf(w, "pulled %s, %s; fetched %s\n", text.Plural(int64(p.Files), "file"),
		text.Bytes(p.Bytes), text.Bytes(p.Fetched))
}

func (c *commands) fetch() *cobra.Command {
	return &cobra.Command{
		Use:   "fetch PATH",
		Short: "Look what other machines published",
		Args:  c.args("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.With(cmd.Context(), args[0], func(s *control.Client, _ string) error {
				done := c.Waiting("asking the remote")
				f, err := s.Fetch(cmd.Context())
				done()
				if err != nil {
					return err
				}
				return c.Show(f, func(w io.Writer) {
					for _, p := range f.Problems {
						c.Left([]control.Skip{{Path: f.Remote, Reason: p.What}})
					}
					what := "nothing new"
					if f.Changed {
						what = "there is something new"
					}
					fmt.Fprintf(w, "%s: %s; %s\n", text.Printable(f.Remote), what,
						text.Plural(int64(len(f.Writers)), "writer"))
				})
			})
		},
	}
}

func (c *commands) conflicts() *cobra.Command {
	return &cobra.Command{
		Use:   "conflicts PATH",
		Short: "List names of which the remote has several versions",
		Long: `Lists the names at or below PATH that machines changed without having seen each other's change. All versions are kept;
the first one of each has the name. A later change on a machine that has seen them replaces all.`,
		Args: c.args("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.With(cmd.Context(), args[0], func(s *control.Client, at string) error {
				found, err := s.Conflicts(cmd.Context(), at)
				if err != nil {
					return err
				}
				return c.Show(found, func(w io.Writer) {
					for _, n := range found.Names {
						fmt.Fprintln(w, text.Printable(n.Path))
						for _, v := range n.Versions {
							what := text.Bytes(v.Size)
							switch {
							case v.Folder && v.Writer == "":
								fmt.Fprintln(w, "  a folder, by what is in it")
								continue
							case v.Folder:
								what = "a folder"
							}
							fmt.Fprintf(w, "  %s  %s  %s\n", text.Printable(v.Writer),
								v.Time.Format(time.DateTime), what)
						}
					}
				})
			})
		},
	}
}
