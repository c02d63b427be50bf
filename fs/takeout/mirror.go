package takeout

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// rounds is how often Mirror begins again with what changed meanwhile.
const rounds = 4

// Mirrored is what Mirror did.
type Mirrored struct {
	Same    int            `json:"compared"` // files whose copies were read from the disk, and are equal
	Skipped []control.Skip `json:"skipped"`  // what cannot be copied, as sockets and ACLs
	// Failed are files that could not be read, or changed each time: the copy is not whole.
	Failed []control.Skip `json:"failed,omitempty"`
}

// Mirror makes a name in a folder a copy of a folder on another disk: with holes, modes, modification times,
// attributes, links among its files, and as root owners. What was there of another time goes. All of it is
// durable then, was read from the disk afterwards and compared by BLAKE3, and has not changed since: what did
// is copied again, some times. checked knows the states that were compared.
//
// An interrupted run is gone on with: a copy of the right size and modification time is not made again, but
// compared. Each phase shows its progress.
func Mirror(ctx context.Context, src *Folder, to *os.Root, name string, checked *Checked, owners bool,
	phase func(doing string) (update func(control.Progress), done func())) (*Mirrored, error) {
	out := &Mirrored{}
	reasons := map[string]string{}
	for round := 1; ; round++ {
		update, done := phase("copying")
		took, err := Copy(ctx, src, ".", to, name, Options{Progress: update, Owners: owners,
			Attributes: true, Checked: checked})
		done()
		if err != nil {
			return nil, err
		}
		failed := map[string]string{}
		for _, s := range took.failures {
			failed[s.Path] = s.Reason
		}
		for _, s := range took.Skipped {
			if _, is := failed[s.Path]; !is {
				reasons[s.Path] = s.Reason
			}
		}
		if took.hopeless {
			out.Skipped, out.Failed = skips(reasons), took.failures
			return out, nil
		}
		update, done = phase("comparing")
		open, err := mirrored(ctx, src, to, name, Options{Progress: update, Checked: checked}, out, failed)
		done()
		if err != nil {
			return nil, err
		}
		if len(open) == 0 || round == rounds {
			out.Skipped, out.Failed = skips(reasons), skips(open)
			return out, nil
		}
		time.Sleep(Unsettled)
	}
}

// mirrored compares the copy, removes what is wrong, and says what is still open, and why.
func mirrored(ctx context.Context, src *Folder, to *os.Root, name string, o Options, out *Mirrored,
	failed map[string]string) (map[string]string, error) {
	of, err := NewFolder(to, "")
	if err != nil {
		return nil, err
	}
	defer of.Close()
	c, err := compare(ctx, src, ".", of.Cold(), name, o)
	if err != nil {
		return nil, err
	}
	out.Same = c.Same
	for _, wrong := range c.wrong {
		if err := to.RemoveAll(wrong); err != nil {
			return nil, err
		}
	}
	for _, s := range c.Differ {
		if _, is := failed[s.Path]; !is {
			failed[s.Path] = s.Reason
		}
	}
	paths, err := o.Checked.Open(ctx, src, ".")
	open := map[string]string{}
	for _, p := range paths {
		if open[p] = failed[p]; open[p] == "" {
			open[p] = errChanged.Error()
		}
	}
	return open, err
}

func skips(reasons map[string]string) []control.Skip {
	out := []control.Skip{}
	for _, p := range slices.Sorted(maps.Keys(reasons)) {
		out = append(out, control.Skip{Path: p, Reason: reasons[p]})
	}
	return out
}

// mirror makes what has the name a copy of a folder.
func (c *copier) mirror(ctx context.Context, from string, e *control.Entry, name string) error {
	if kindOf(e) != unix.S_IFDIR {
		return &fs.PathError{Op: "copy", Path: from, Err: unix.ENOTDIR}
	}
	c.fresh = true
	release, err := c.own(name)
	if err != nil {
		return err
	}
	defer release()
	return c.folder(ctx, from, e, c.top, name, name)
}

// keeps reports whether a copy of the right size and modification time is kept. What else there is to a file
// may have changed.
func (c *copier) keeps(ctx context.Context, from string, e *control.Entry, in *os.Root, name string,
	st os.FileInfo) bool {
	if c.o.Checked.is(from, e) {
		return true
	}
	if c.o.Checked == nil {
		return !c.o.Attributes || c.attributesAgain(ctx, from, in, name)
	}
	if first := c.firstName[e.Ino]; first != "" {
		other, err := c.top.Lstat(first)
		return err == nil && os.SameFile(other, st)
	}
	if e.Links == 1 && st.Sys().(*syscall.Stat_t).Nlink > 1 {
		return false
	}
	f, err := in.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	attrs, err := c.attributesOf(ctx, from)
	return err == nil && c.describe(f, from, e, attrs) == nil
}
