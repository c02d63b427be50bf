package remote

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cas"
	"ckptfs/cas/remote/audit"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (c *commands) audit(ctx context.Context, path string, o audit.Options) (*joined, *audit.Report, error) {
	j, err := c.joined(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	var done func()
	o.Remote = j.ID
	o.Say, done = c.counts()
	rep, err := audit.Run(ctx, j.bucket, o)
	done()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", j.URL(), err)
	}
	return j, rep, nil
}

func (c *commands) check(ctx context.Context, cmd *cobra.Command, path string) error {
	if cmd.Flags().Changed("read-data-subset") {
		return c.Usage(cmd, "--read-data-subset is of a store: --read-data reads all that the remote's names need")
	}
	data, err := cmd.Flags().GetBool("read-data")
	if err != nil {
		return err
	}
	j, rep, err := c.audit(ctx, path, audit.Options{ReadData: data})
	if err != nil {
		return err
	}
	if err := c.addSeen(ctx, rep, path); err != nil {
		return err
	}
	if err := c.Show(rep, func(w io.Writer) { printAudit(w, rep, path) }); err != nil ||
		len(rep.Problems) == 0 {
		return err
	}
	return fmt.Errorf("%s is damaged: %w", j.URL(), cas.ErrCorrupt)
}

// addSeen adds what only a store that read the heads before can tell: that one was removed, or put back.
func (c *commands) addSeen(ctx context.Context, rep *audit.Report, path string) error {
	return c.With(ctx, path, func(s *control.Client, _ string) error {
		f, err := s.Fetch(ctx)
		if err != nil {
			return err
		}
		for _, bad := range f.Problems {
			told := slices.ContainsFunc(rep.Problems, func(p audit.Problem) bool { return p.Key == bad.Key })
			if !told {
				rep.Problems = append(rep.Problems,
					audit.Problem{Key: bad.Key, What: bad.What, Kind: audit.Names, Paths: []string{}})
			}
		}
		return nil
	})
}

func printAudit(w io.Writer, r *audit.Report, path string) {
	fmt.Fprintf(w, "checked %s, %s, %s; %s, %s; plans name %s\n", text.Plural(int64(r.Heads), "head"),
		text.Plural(int64(r.Entries), "name"), text.Plural(r.Files, "file"), text.Plural(r.Objects, "object"),
		text.Bytes(r.Bytes), text.Plural(r.Records, "record"))
	if r.ReadData > 0 {
		fmt.Fprintf(w, "read %s\n", text.Bytes(r.ReadData))
	}
	todo := map[audit.Kind]bool{}
	for _, p := range r.Problems {
		todo[p.Kind] = true
		fmt.Fprintf(w, "%s: %s\n", text.Printable(p.Key), text.Printable(p.What))
		for _, path := range p.Paths {
			fmt.Fprintf(w, "    %s\n", text.Printable(path))
		}
		if p.More > 0 {
			fmt.Fprintf(w, "    and %s more\n", humanize.Comma(p.More))
		}
	}
	if r.More > 0 {
		fmt.Fprintf(w, "and %s more\n", humanize.Comma(r.More))
	}
	if len(r.Problems) == 0 {
		fmt.Fprintln(w, "no damage found")
	}
	if todo[audit.Names] {
		fmt.Fprintf(w, "heads and tables: put their newest versions back if the bucket keeps versions; else\n"+
			"    ckptfs repair --remote %s\n", text.Printable(path))
	}
	if todo[audit.Content] {
		fmt.Fprintln(w, strings.Join([]string{"objects: put them back if the bucket keeps versions; else, on a machine that has the files,",
			"    ckptfs umount MNT; rm STORE/remote.db; ckptfs push STORE",
			"which publishes them again, as of another writer. Mount it then, touch these files, and push once more:",
			"no name needs the objects any more"}, "\n"))
	}
}

func (c *commands) stats(ctx context.Context, _ *cobra.Command, path string) error {
	_, rep, err := c.audit(ctx, path, audit.Options{Share: true})
	if err != nil {
		return err
	}
	return c.Show(rep, func(w io.Writer) {
		text.Pairs(w, "writers", humanize.Comma(int64(rep.Heads)), "names",
			humanize.Comma(int64(rep.Entries)),
			"files", humanize.Comma(rep.Files), "objects",
			humanize.Comma(rep.Objects)+", "+text.Bytes(rep.Bytes),
			"data needed", fmt.Sprintf("%s of %s in %s", text.Bytes(rep.Share.Needed),
				text.Bytes(rep.Share.Bytes),
				text.Plural(rep.Share.Objects, "object")))
		var rows [][]string
		for i, t := range rep.Share.Tenths {
			if t.Objects > 0 {
				rows = append(rows, []string{fmt.Sprintf("%d%% to %d%%", 10*i, 10*i+10),
					humanize.Comma(t.Objects),
					text.Bytes(t.Bytes)})
			}
		}
		if len(rows) > 0 {
			fmt.Fprintln(w)
			text.Table(w, []string{"NEEDED", ">OBJECTS", ">BYTES"}, rows)
		}
		if n := len(rep.Problems); n > 0 {
			fmt.Fprintf(w, "%s: `ckptfs check --remote` names them\n", text.Plural(int64(n), "problem"))
		}
	})
}
