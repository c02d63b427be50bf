package space

import (
	"context"
	"fmt"
	"io"
	"os/user"
	"path"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

// Shell is the program to the commands of this package.
type Shell interface {
	// Show prints a result, as JSON if that was asked for.
	Show(v any, human func(io.Writer)) error
	// Look connects to the volume that paths lie in; at are the paths below the mount's root.
	Inside(ctx context.Context, paths []string, do func(c *control.Client, at []string) error) error
	// Waiting shows on a terminal for how long something takes; done takes it away.
	Waiting(doing string) (done func())
}

// Du is the command du.
func Du(s Shell) *cobra.Command {
	var o control.DuOptions
	cmd := &cobra.Command{
		Use:   "du [flags] [PATH…]",
		Short: "Show what files, steps, runs or users take, and what removing them gives back",
		Long: `Prints what the files below each PATH take, or, of one folder, what each file and folder in it takes. Without a PATH it
is the working folder.

    size    of the files
    stored  what the files need of the segments: chunks and manifests, and what chunks are stored as a difference from
    alone   the part of stored that nothing else needs: ckptfs prune gives it back once the files are removed
    local   plain files, and local copies of packed ones; the local copies are a cache

The last row is of all of them: what they share is counted in the stored of each, and in the last row once. Below it
stand what removing all of it gives back, and when; and with which other steps or files it is shared. These may also
need it as what theirs are stored as a difference from.

The figures are exact to the byte for ckptfs prune --grace 0. The disk gets whole blocks: at each edge of a hole less
than one of these stays taken. A file with another name elsewhere gives nothing back.

The first answer after a mount reads every manifest of the store. Later ones read those of PATH, and those of the files
that may share.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			return s.Inside(cmd.Context(), args, func(c *control.Client, at []string) error {
				o.Paths = at
				done := s.Waiting("counting")
				d, err := c.Du(cmd.Context(), o)
				done()
				if err != nil {
					return err
				}
				as := map[string]string{}
				for i := range at {
					as[at[i]] = args[i]
				}
				return s.Show(d, func(w io.Writer) { printDu(w, d, as, o.ByUser) })
			})
		},
	}
	cmd.Flags().BoolVar(&o.ByUser, "by-user", false, "list what each user owns")
	return cmd
}

// printDu prints what paths take; as are the names that they were given by.
func printDu(w io.Writer, d *control.Du, as map[string]string, byUser bool) {
	head := "PATH"
	if byUser {
		head = "USER"
	}
	var rows [][]string
	for i := range d.Parts {
		p := &d.Parts[i]
		of, given := as[p.Name]
		switch {
		case byUser:
			of = p.Name
			if u, err := user.LookupId(p.Name); err == nil {
				of = u.Username
			}
		case !given:
			of = path.Base(p.Name)
		}
		rows = append(rows, useRow(of, p))
	}
	if d.MoreParts > 0 {
		rows = append(rows, []string{fmt.Sprintf("and %s more", humanize.Comma(int64(d.MoreParts)))})
	}
	total := "all"
	if of, given := as[d.Name]; given {
		total = of
	}
	rows = append(rows, useRow(total, &d.Use))
	text.Table(w, []string{head, ">FILES", ">SIZE", ">STORED", ">ALONE", ">LOCAL"}, rows)
	removed := text.Printable(total)
	if d.Name == "" { // the store itself is not to be removed
		removed = "all these files"
	}
	fmt.Fprintf(w, "Removing %s gives back %s.\n", removed, Removal(d))
	if d.Unmounted && d.StoredBytes == 0 && d.LocalBytes > 0 {
		fmt.Fprintln(w, "Nothing of it is packed: a store packs while it is mounted.")
	}
	shared := d.StoredBytes - d.AloneBytes
	if shared == 0 {
		return
	}
	fmt.Fprintf(w, "%s of it is shared:\n", text.Bytes(shared))
	var with [][]string
	for _, x := range d.SharedWith {
		with = append(with, []string{text.Printable(x.Path), text.Bytes(x.Bytes)})
	}
	if d.MoreShare > 0 {
		with = append(with, []string{fmt.Sprintf("and %s more", humanize.Comma(int64(d.MoreShare)))})
	}
	text.Table(w, []string{"WITH", ">SHARED"}, with)
}

func useRow(name string, u *control.Use) []string {
	return []string{text.Printable(name), humanize.Comma(u.Files), text.Bytes(u.LogicalBytes),
		text.Bytes(u.StoredBytes), text.Bytes(u.AloneBytes), text.Bytes(u.LocalBytes)}
}

// Removal says what the removal of files gives back, and when.
func Removal(d *control.Du) string {
	s := fmt.Sprintf("%s at once, and %s by `ckptfs prune`", text.Bytes(d.FreedBytes), text.Bytes(d.AloneBytes))
	when := fmt.Sprintf("after %s, or now with --grace 0", Span(control.DefaultGrace))
	switch {
	case d.YoungBytes == 0:
		return s
	case d.YoungBytes == d.AloneBytes:
		return s + ": " + when
	}
	return fmt.Sprintf("%s: of that %s %s", s, text.Bytes(d.YoungBytes), when)
}
