package inout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/disk"
	"ckptfs/cmd/ckptfs/procs"
	"ckptfs/cmd/ckptfs/text"
	"ckptfs/fs/control"
	"ckptfs/fs/takeout"
)

// copied is what leave --copy prints.
type copied struct {
	takeout.Taken
	To   string `json:"to"`
	Same int    `json:"same"` // files that were compared afterwards
	// names that To has, and the store has not
	Extra takeout.Extra `json:"extra"`

	differ bool
}

// copy copies all files of a store, which stays as it is, to a folder, and compares them.
func (l *leave) copy(ctx context.Context, from string) error {
	if err := l.apart(from); err != nil {
		return err
	}
	if store, _, _, err := l.Place(from); err == nil { // else who reads it says why
		claim, err := share(ctx, l, store)
		if err != nil {
			return err
		}
		if claim != nil {
			defer claim.Close()
		}
	}
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
		fmt.Fprintf(w, "copied %s, %s, to %s; %s compared with the store\n",
			text.Plural(int64(out.Files), "file"), text.Bytes(out.Bytes), text.Printable(l.dir),
			text.Plural(int64(out.Same), "file"))
	})
	if err != nil || len(out.Skipped) == 0 && out.Extra.N == 0 {
		return err
	}
	l.Left(out.Skipped)
	l.extra(out)
	switch {
	case errors.Is(out.Failed, cas.ErrCorrupt):
		return out.Failed
	case out.differ:
		return fmt.Errorf("%s is not what the store has: run the command again, once no program writes to these files; remove those that differ still, and copy them again: %w",
			l.dir, cas.ErrCorrupt)
	}
	return l.Partial()
}

// extra names what the copy has that the store has not.
func (l *leave) extra(out *copied) {
	for _, p := range out.Extra.Paths {
		l.Say("%s: stays, though the store does not have it", text.Printable(filepath.Join(l.dir, p)))
	}
	if more := out.Extra.N - int64(len(out.Extra.Paths)); more > 0 {
		l.Say("%s: %s more that the store does not have", text.Printable(l.dir), text.Plural(more, "name"))
	}
}

// apart looks that the copy does not go into the store itself, its mount or its folder, nor into another's
// folder.
func (l *leave) apart(from string) error {
	store, _, _, err := l.Place(from)
	if err != nil {
		return l.Outside(l.dir) // who reads it says what is wrong with it
	}
	in := procs.Within(l.dir, store)
	for _, path := range []string{l.dir, filepath.Dir(l.dir)} { // it need not be there
		there, _, _, err := l.Place(path)
		in = in || err == nil && there == store
	}
	if in {
		return l.Unfit(fmt.Sprintf("%s lies in the store %s: name a folder outside of it, and of its mount", l.dir, store))
	}
	return l.Outside(l.dir)
}

func (l *leave) copyFrom(ctx context.Context, src takeout.Source, at string, root *os.Root,
	out *copied) error {
	base := filepath.Base(l.dir)
	if err := l.fits(ctx, src, at, root, base); err != nil {
		return err
	}
	update, done := l.Progress("copying")
	o := takeout.Options{Progress: update, Owners: os.Geteuid() == 0, Spare: true, Attributes: true}
	took, err := takeout.Copy(ctx, src, at, root, base, o)
	done()
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w; free room there, and run the command again: it goes on with what is copied", err)
	}
	if err != nil {
		return fmt.Errorf("copy to %s: %w", l.dir, err)
	}
	out.Taken = *took
	update, done = l.Progress("comparing")
	defer done()
	of, err := takeout.NewFolder(root, "")
	if err != nil {
		return err
	}
	defer of.Close()
	c, err := takeout.Compare(ctx, src, at, of.Cold(), base, takeout.Options{Progress: update})
	if err != nil {
		return err
	}
	out.Same, out.Extra = c.Same, c.Extra
	out.Skipped, out.differ = append(out.Skipped, c.Differ...), len(c.Differ) > 0
	return nil
}

// nearest is a folder that may be another disk's root, or, if it is not there, the one that it will be in.
func nearest(dir string) (*disk.Folder, error) {
	d, err := disk.OpenFolder(dir)
	if errors.Is(err, os.ErrNotExist) {
		return disk.OpenFolder(filepath.Dir(dir))
	}
	return d, err
}

// fits looks that there is room for what is not copied yet.
func (l *leave) fits(ctx context.Context, src takeout.Source, at string, root *os.Root, name string) error {
	_, done := l.Progress("counting the room")
	needed, err := takeout.Room(ctx, src, at, root, name)
	done()
	if err != nil {
		return err
	}
	d, err := nearest(l.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	size, free, err := d.Space()
	if err != nil || size == 0 || needed <= free { // what has no size is no disk
		return err
	}
	return fmt.Errorf("the files that are to be copied take %s, and the disk of %s has %s free: free %s there, or name a folder on another disk: %w",
		text.Bytes(needed), l.dir, text.Bytes(free), text.Bytes(needed-free), unix.ENOSPC)
}
