package inout

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/takeout"
)

// copied is what leave --copy prints.
type copied struct {
	takeout.Taken
	To   string `json:"to"`
	Same int    `json:"same"` // files that were compared afterwards
}

// copy copies all files of a store, which stays as it is, to a folder, and compares them.
func (l *leave) copy(ctx context.Context, from string) error {
	root, err := os.OpenRoot(filepath.Dir(l.dir))
	if err != nil {
		return err
	}
	defer root.Close()
	out := &copied{To: l.dir}
	err = l.Inside(ctx, []string{from}, func(c *control.Client, at []string) error {
		return l.copyFrom(ctx, c, at[0], root, out)
	})
	if err != nil {
		return err
	}
	err = l.Show(out, func(w io.Writer) {
		for _, s := range out.Skipped {
			l.Say("%s: left out: %s", text.Printable(s.Path), text.Printable(s.Reason))
		}
		fmt.Fprintf(w, "copied %s, %s, to %s; %s compared with the store\n",
			text.Plural(int64(out.Files), "file"), text.Bytes(out.Bytes), text.Printable(l.dir),
			text.Plural(int64(out.Same), "file"))
	})
	if err == nil && len(out.Skipped) > 0 {
		err = l.Damaged()
	}
	return err
}

func (l *leave) copyFrom(ctx context.Context, src takeout.Source, at string, root *os.Root,
	out *copied) error {
	base := filepath.Base(l.dir)
	update, done := l.Progress("copying")
	o := takeout.Options{Progress: update, Owners: os.Geteuid() == 0}
	took, err := takeout.Copy(ctx, src, at, root, base, o)
	done()
	if err != nil {
		return err
	}
	out.Taken = *took
	update, done = l.Progress("comparing")
	defer done()
	var differ []control.Skip
	out.Same, differ, err = takeout.Compare(ctx, src, at, root, base, takeout.Options{Progress: update})
	out.Skipped = append(out.Skipped, differ...)
	return err
}
