package remote

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/sweep"
	"ckptfs/cmd/ckptfs/text"
)

// Grace is for how long what nothing needs stays in a remote: what was deleted can be brought back, and what
// is open elsewhere be read.
const Grace = 7 * 24 * time.Hour

// epochsKept is for how long it is told what was deleted: who was away for longer publishes again.
const epochsKept = 400 * 24 * time.Hour

// idle is for how long a writer publishes nothing before its names move to @archive.
const idle = 30 * 24 * time.Hour

// collected is what prune prints of a remote.
type collected struct {
	Remote  string `json:"remote"`
	DryRun  bool   `json:"dry_run,omitempty"`
	Heads   int    `json:"heads"`
	Names   int    `json:"entries"`
	Objects int64  `json:"objects"`
	Bytes   int64  `json:"bytes"`
	// Unneeded is what nothing refers to, Due what of it is past the grace.
	Unneeded     int64        `json:"unneeded_objects"`
	UnneededSize int64        `json:"unneeded_bytes"`
	Due          int64        `json:"due_objects"`
	DueSize      int64        `json:"due_bytes"`
	Next         *time.Time   `json:"next,omitempty"` // when the first of the others is due
	Deleted      int          `json:"deleted_objects"`
	TakenOut     int          `json:"taken_out_entries"`
	Folded       int          `json:"folded_writers"`
	Kept         *bucket.Kept `json:"kept_versions,omitempty"`
	KeptUnknown  string       `json:"kept_unknown,omitempty"` // why Kept is not known
}

func (c *commands) prune(ctx context.Context, cmd *cobra.Command, path string) error {
	grace := Span(Grace)
	if f := cmd.Flags().Lookup("grace"); f.Changed {
		if err := grace.Set(f.Value.String()); err != nil || grace < 0 {
			return c.Usage(cmd, "--grace is a time span such as 7d, or 0")
		}
	}
	if cmd.Flags().Changed("max-unused") {
		return c.Usage(cmd, "--max-unused is of a store, not of a remote")
	}
	dry, err := cmd.Flags().GetBool("dry-run")
	if err != nil {
		return err
	}
	open := c.writer
	if dry {
		open = c.joined
	}
	j, err := open(ctx, path)
	if err != nil {
		return err
	}
	say, done := c.counts()
	stats, err := sweep.Collect(ctx, j.bucket, sweep.Options{Remote: j.ID, Collector: j.Writer,
		Grace: time.Duration(grace), Keep: epochsKept, Fold: idle, DryRun: dry, Now: c.now, Say: say})
	done()
	if err != nil {
		return fmt.Errorf("%s: %w; what was begun goes on when prune --remote is run again", j.URL(), err)
	}
	out := collected{Remote: j.URL(), DryRun: dry, Heads: stats.Heads, Names: stats.Entries,
		Objects: stats.Listed.Objects, Bytes: stats.Listed.Bytes,
		Unneeded: stats.Unreferenced.Objects, UnneededSize: stats.Unreferenced.Bytes,
		Due: stats.Condemned.Objects, DueSize: stats.Condemned.Bytes, Deleted: stats.Deleted,
		TakenOut: stats.TakenOut, Folded: stats.Folded}
	if !stats.Next.IsZero() {
		out.Next = &stats.Next
	}
	if engine, ok := j.engine.(interface {
		Kept(context.Context) (*bucket.Kept, error)
	}); ok {
		if out.Kept, err = engine.Kept(ctx); err != nil {
			out.KeptUnknown = err.Error()
		}
	}
	if err := c.Show(out, func(w io.Writer) { printCollected(w, &out) }); err != nil || dry {
		return err
	}
	if _, err = c.makeIndex(ctx, j); err != nil {
		err = fmt.Errorf("%s was pruned; its index is as it was: %w", j.URL(), err)
	}
	return err
}

func printCollected(w io.Writer, c *collected) {
	if c.DryRun {
		fmt.Fprintf(w, "would delete %s, %s\n", text.Plural(c.Due, "object"), text.Bytes(c.DueSize))
	} else {
		fmt.Fprintf(w, "deleted %s, about %s\n", text.Plural(int64(c.Deleted), "object"), text.Bytes(c.DueSize))
	}
	fmt.Fprintf(w, "%s: %s, %s; %s and %s need %s of it\n", c.Remote, text.Plural(c.Objects, "object"),
		text.Bytes(c.Bytes), text.Plural(int64(c.Heads), "writer"), text.Plural(int64(c.Names), "name"),
		text.Bytes(c.Bytes-c.UnneededSize))
	if wait := c.Unneeded - c.Due; wait > 0 {
		fmt.Fprintf(w, "%s more, %s, nobody needs: kept for the grace period", text.Plural(wait, "object"),
			text.Bytes(c.UnneededSize-c.DueSize))
		if c.Next != nil {
			fmt.Fprintf(w, ", the first until %s", c.Next.Local().Format(time.DateTime))
		}
		fmt.Fprintln(w)
	}
	if c.Folded > 0 {
		fmt.Fprintf(w, "%s published nothing for 30 days: their names are @archive's now\n",
			text.Plural(int64(c.Folded), "writer"))
	}
	switch {
	case c.KeptUnknown != "":
		fmt.Fprintf(w, "what older versions the bucket keeps is not known: %s\n", text.Printable(c.KeptUnknown))
	case c.Kept != nil && c.Kept.Versioned:
		fmt.Fprintf(w, "the bucket keeps %s older versions, %s: its own rules say for how long\n",
			humanize.Comma(c.Kept.Objects), text.Bytes(c.Kept.Bytes))
	}
}
