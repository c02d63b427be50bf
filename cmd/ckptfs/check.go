package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"ckptfs/cmd/ckptfs/args"
	"ckptfs/cmd/ckptfs/exit"
	"ckptfs/cmd/ckptfs/place"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
)

func (a *app) checkCmd() *cobra.Command {
	o := control.CheckOptions{}
	subset := percentFlag{share: 1}
	cmd := &cobra.Command{
		Use:     "check PATH",
		Aliases: []string{"fsck"},
		Short:   "Look for damage",
		Long: `Checks whether the store of PATH is sound: the record, manifest, size and chunks of each file; the header, records and
footer of each segment; the index against the segments. --read-data reads and decodes everything stored and compares it
with its hash; --read-data-subset 5% does so for a random share. The store may be in use. Nothing is changed, except
that an unmounted store that was not closed in order is repaired first. When the store was checked, and what was found,
is kept: status says so. Damage of data stays known until a check --read-data finds it whole. What a check finds is not
kept of a store that is mounted to be read only, or is another user's; it says so.

Damage is printed with the files and tensors that it touches and the command that repairs what can be repaired. The exit
code is then 6.`,
		Args: args.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("read-data-subset") {
				if subset.share == 0 {
					return exit.Wrong(cmd, "--read-data-subset is a share above 0%")
				}
				o.ReadData, o.Subset = true, subset.share
			}
			return whole(a, cmd, args[0], readOnly, func(s *session) error {
				update, done := a.progress("checking")
				c, err := s.Check(cmd.Context(), o, update)
				done()
				if err != nil {
					return err
				}
				if err := a.show(c, func(w io.Writer) {
					printChecked(w, c,
						repairs(c, s.place))
				}); err != nil || c.Damaged == 0 {
					return err
				}
				return errFoundDamage
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.ReadData, "read-data", false, "read everything stored and compare it with its hash")
	f.Var(&subset, "read-data-subset", "do that with a share of it")
	return cmd
}

// errFoundDamage: it has been printed already.
var errFoundDamage = exit.With(exit.Damaged, errors.New("the store is damaged"))

func printChecked(w io.Writer, c *control.Checked, todo []string) {
	fmt.Fprintf(w, "checked %s, %s packed; %s, %s, %s in the index\n", text.Plural(c.Files, "file"), humanize.Comma(c.Packed),
		text.Plural(c.Segments, "segment"), text.Plural(c.Records, "record"), humanize.Comma(c.Entries))
	if c.ReadRecords > 0 {
		fmt.Fprintf(w, "read %s, %s, %s/s\n", text.Plural(c.ReadRecords, "record"), text.Bytes(c.ReadBytes),
			text.Bytes(int64(float64(c.ReadBytes)/max(c.ReadSeconds, 1e-3))))
	}
	if c.Verified > 0 {
		fmt.Fprintf(w, "%s of %s compared with their checksums\n", humanize.Comma(c.Verified), text.Plural(c.PlainFiles, "plain file"))
	}
	if c.LostFound > 0 {
		fmt.Fprintf(w, "%s in lost+found, moved there by repairs\n", text.Plural(c.LostFound, "file"))
	}
	paint := text.Paints(w)
	for _, p := range c.Problems {
		s := p.What
		if p.Path != "" {
			s = p.Path + ": " + s
		}
		fmt.Fprintln(w, paint.Bad(text.Printable(s)))
		if p.TensorCount > 0 {
			more := ""
			if n := p.TensorCount - len(p.Tensors); n > 0 {
				more = fmt.Sprintf(" and %s more", humanize.Comma(int64(n)))
			}
			fmt.Fprintf(w, "    tensors: %s%s\n", text.Printable(strings.Join(p.Tensors, ", ")), more)
		}
	}
	switch {
	case c.Damaged == 0 && c.Unseen == 0:
		fmt.Fprintln(w, "no damage found")
	case c.Damaged == 0:
		fmt.Fprintln(w, "no damage found in what was looked at")
	case c.Damaged > int64(len(c.Problems)):
		fmt.Fprintf(w, "and %s more\n", humanize.Comma(c.Damaged-int64(len(c.Problems))))
	}
	if c.Unseen > 0 {
		fmt.Fprintf(w, "%s; --read-data looks again\n",
			paint.Bad(text.Plural(c.Unseen, "problem")+" known of data that was not read now"))
	}
	if c.NotKept != "" {
		fmt.Fprintf(w, "status will not know of this check: %s\n", text.Printable(c.NotKept))
	}
	if len(todo) > 0 {
		fmt.Fprintf(w, "to repair:\n")
		for _, t := range todo {
			fmt.Fprintf(w, "    %s\n", t)
		}
	}
}

// repairs are the commands that repair what a check found, in their order.
func repairs(c *control.Checked, p *place.Place) (todo []string) {
	want := map[string]bool{}
	for _, pr := range c.Problems {
		want[pr.Repair] = true
	}
	for _, part := range []string{"segments", "index", "tree"} {
		if want[part] {
			todo = append(todo, fmt.Sprintf("ckptfs repair %s %s", part, quoted(p.Store)))
		}
	}
	mountpoint := place.MountpointOf(p.Store)
	if len(todo) > 0 && mountpoint != "" {
		todo = append([]string{"ckptfs umount " + quoted(mountpoint)}, todo...)
	}
	for _, pr := range c.Problems {
		if pr.Repair == "evict" {
			root := filepath.Join(p.Store, "tree")
			if mountpoint != "" {
				root = mountpoint
			}
			todo = append([]string{"ckptfs evict " + quoted(filepath.Join(root, pr.Path))}, todo...)
		}
	}
	if len(todo) > 0 {
		again := "ckptfs check "
		if c.Data > 0 || c.Unseen > 0 {
			again += "--read-data "
		}
		todo = append(todo, again+quoted(p.Store))
	}
	return todo
}

// quoted is a word for a shell.
func quoted(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("/._-+@:,", r))
	}) < 0 && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
