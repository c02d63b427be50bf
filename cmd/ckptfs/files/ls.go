package files

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/takeout"
)

// listed is an entry as --json has it.
type listed struct {
	Path control.Name `json:"path"` // below the mount's root
	control.Entry
}

func (c *commands) ls() *cobra.Command {
	var recursive, itself bool
	cmd := &cobra.Command{
		Use:   "ls PATH…",
		Short: "List the files of a store, without a mount",
		Long: `Lists what is in folders, as ls -l does: mode, size, time of the last change, state, name. PATH is a path in a mount or
STORE/PATH, whether the store is mounted or not. The state is plain, resident, packed (without a local copy), remote, or
view.

    ckptfs ls ./store/runs/a`,
		Args: c.atLeast(1, "a path or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.Inside(cmd.Context(), args, func(s *control.Client, at []string) error {
				l := &lister{src: s, recursive: recursive, itself: itself}
				l.show = l.print(c.Out(), args, at)
				if c.JSON() {
					return l.json(cmd.Context(), c.Out(), at)
				}
				return l.all(cmd.Context(), at)
			})
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "list the folders below, too")
	cmd.Flags().BoolVarP(&itself, "directory", "d", false, "list folders themselves, not what is in them")
	cmd.Flags().BoolP("long", "l", false, "the list is a long one in any case")
	return cmd
}

// lister lists paths.
type lister struct {
	src       takeout.Source
	recursive bool
	itself    bool
	// show is told of the entries of a folder; of a file, itself.
	show func(folder string, all []control.Entry) error
}

func (l *lister) all(ctx context.Context, paths []string) error {
	for _, p := range paths {
		e, err := l.src.Entry(ctx, p)
		if err == nil && e.Mode&unix.S_IFMT == unix.S_IFDIR && !l.itself {
			err = l.folder(ctx, p)
		} else if err == nil {
			err = l.show(path.Dir("/" + p)[1:], []control.Entry{*e})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) folder(ctx context.Context, p string) error {
	all, err := takeout.List(ctx, l.src, p)
	if err == nil {
		err = l.show(p, all)
	}
	if err != nil || !l.recursive {
		return err
	}
	for i := range all {
		if all[i].Mode&unix.S_IFMT == unix.S_IFDIR {
			if err := l.folder(ctx, path.Join(p, string(all[i].Name))); err != nil {
				return err
			}
		}
	}
	return nil
}

// json lists as one JSON object, which need not be there all at once.
func (l *lister) json(ctx context.Context, w io.Writer, paths []string) error {
	const begin = "{\"entries\": ["
	before := begin
	l.show = func(folder string, all []control.Entry) error {
		for i := range all {
			var b bytes.Buffer
			name := control.Name(path.Join(folder, string(all[i].Name)))
			if err := text.JSON(&b, "  ").Encode(listed{name, all[i]}); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%s\n  %s", before, bytes.TrimSpace(b.Bytes())); err != nil {
				return err
			}
			before = ","
		}
		return nil
	}
	if err := l.all(ctx, paths); err != nil {
		return err
	}
	end := "\n]}\n"
	if before == begin {
		end = begin + "]}\n"
	}
	_, err := io.WriteString(w, end)
	return err
}

// print prints tables. A folder has its name above its table if there is more than one.
func (l *lister) print(w io.Writer, args, at []string) func(folder string, all []control.Entry) error {
	first := true
	return func(folder string, all []control.Entry) error {
		if l.recursive || len(args) > 1 {
			if !first {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "%s:\n", text.Printable(path.Join("/", folder)))
		}
		first = false
		rows := make([][]string, len(all))
		for i := range all {
			rows[i] = row(&all[i])
		}
		text.Table(w, []string{"MODE", ">SIZE", "CHANGED", "STATE", "NAME"}, rows)
		return nil
	}
}

func row(e *control.Entry) []string {
	name, state, size := text.Printable(string(e.Name)), e.State, strconv.FormatInt(e.Size, 10)
	switch e.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		name, size = strings.TrimSuffix(name, "/")+"/", "" // the root has the name /
	case unix.S_IFLNK:
		name += " -> " + text.Printable(string(e.Target))
	}
	if e.View {
		state = "view"
	}
	return []string{modeText(e.Mode), size, text.Time(e.Mtime), state, name}
}

// modeText is a st_mode as ls shows it.
func modeText(mode uint32) string {
	kinds := map[uint32]byte{unix.S_IFDIR: 'd', unix.S_IFLNK: 'l', unix.S_IFIFO: 'p', unix.S_IFSOCK: 's',
		unix.S_IFCHR: 'c', unix.S_IFBLK: 'b'}
	b := []byte("-rwxrwxrwx")
	if kind, ok := kinds[mode&unix.S_IFMT]; ok {
		b[0] = kind
	}
	for i := range 9 {
		if mode&(0o400>>i) == 0 {
			b[1+i] = '-'
		}
	}
	for _, special := range []struct {
		bit uint32
		at  int
		c   byte
	}{{unix.S_ISUID, 3, 's'}, {unix.S_ISGID, 6, 's'}, {unix.S_ISVTX, 9, 't'}} {
		switch {
		case mode&special.bit == 0:
		case b[special.at] == '-':
			b[special.at] = special.c - 'a' + 'A'
		default:
			b[special.at] = special.c
		}
	}
	return string(b)
}
