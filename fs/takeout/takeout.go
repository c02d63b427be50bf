// Package takeout copies what a store holds to where no store is: to a folder, or into a tar. It reads by a
// Source, so it needs no mount.
//
// What has its name in a folder is whole and durable. A file is written to a name beside it, synced and
// renamed (part.go); a folder that is new is filled under such a name, too, and renamed last. An interrupted
// copy that is made again goes on: it keeps the files that it has already, by size and modification time.
//
// Mirror copies a folder of a disk until all of it is there as it is, compared and durable. It makes all
// files durable at once, and each has its name before: what an interrupted run left is compared like
// everything else.
//
// What cannot be read is left out and named, and the rest is copied. What cannot be written ends the copy.
// Views are left out, unless one is named: they hold nothing that the files do not.
package takeout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// Source is what is read of a store.
type Source interface {
	Entry(ctx context.Context, path string) (*control.Entry, error)
	Entries(ctx context.Context, path string, some func([]control.Entry) error) error
	Bytes(ctx context.Context, path string, off int64) (*control.Stretch, error)
}

// Options say how something is taken out.
type Options struct {
	Progress func(control.Progress) // nil: nobody asks
	Owners   bool                   // a copy belongs to whom the file belongs to, which takes root
	Checked  *Checked               // what is known to be equal; Mirror's alone
	Spare    bool                   // a file that was written later than what is copied stays, and is named

	// Attributes has a copy get the attributes user.* and trusted.*, too, of a Source that knows of them.
	Attributes bool
}

// Taken is what was copied.
type Taken struct {
	Files   int            `json:"files"` // regular ones
	Bytes   int64          `json:"bytes"` // of these
	Kept    int            `json:"kept"`  // files that an earlier copy had made
	Links   int            `json:"links"` // symbolic ones
	Skipped []control.Skip `json:"skipped"`
	// Failed is the first error of a file that could not be read. Each is named in Skipped.
	Failed error `json:"-"`

	hopeless bool // one of them will not be read the next time either
	failures []control.Skip
}

func kindOf(e *control.Entry) uint32 { return e.Mode & unix.S_IFMT }

// List is the entries of a folder.
func List(ctx context.Context, src Source, folder string) (all []control.Entry, err error) {
	err = src.Entries(ctx, folder, func(some []control.Entry) error {
		all = append(all, some...)
		return nil
	})
	return all, err
}

// errChanged: what was read of a file is of no one moment.
var errChanged = errors.New("was changed while it was read")

// Read calls do with the bytes of a file and where they begin, in order, without those of holes.
func Read(ctx context.Context, src Source, file string, buf []byte,
	do func(p []byte, off int64) error) error {
	return read(func(off int64) (*control.Stretch, error) { return src.Bytes(ctx, file, off) }, 0,
		math.MaxInt64, buf, do)
}

// Ranges is a Source that reads no further than it is asked to.
type Ranges interface {
	BytesUpTo(ctx context.Context, path string, off, end int64) (*control.Stretch, error)
}

// ReadRange is Read of the bytes from one offset up to another.
func ReadRange(ctx context.Context, src Ranges, file string, off, end int64, buf []byte,
	do func(p []byte, off int64) error) error {
	return read(func(off int64) (*control.Stretch, error) { return src.BytesUpTo(ctx, file, off, end) }, off,
		end, buf, do)
}

func read(open func(off int64) (*control.Stretch, error), off, end int64, buf []byte,
	do func(p []byte, off int64) error) error {
	for off < end {
		s, err := open(off)
		if err != nil {
			return err
		}
		if off = s.Off; s.Size == 0 {
			return s.Close()
		}
		for left := min(s.Size, end-off); left > 0 && err == nil; {
			var n int
			n, err = io.ReadFull(s, buf[:min(left, int64(len(buf)))])
			if n > 0 {
				if failed := do(buf[:n], off); failed != nil {
					s.Close()
					return failed
				}
			}
			off, left = off+int64(n), left-int64(n)
		}
		if cerr := s.Close(); err == nil {
			err = cerr
		}
		if err != nil || s.Last {
			return err
		}
	}
	return nil
}

// unchanged fails if a file is not what it was any more.
func unchanged(ctx context.Context, src Source, file string, was *control.Entry) error {
	now, err := src.Entry(ctx, file)
	if err != nil {
		return err
	}
	if now.Ino != was.Ino && !was.View || now.Size != was.Size || !now.Mtime.Equal(was.Mtime) ||
		!now.Ctime.Equal(was.Ctime) {
		return errChanged
	}
	return nil
}

// count adds up what is to be copied, for the progress.
func count(ctx context.Context, src Source, p string, e *control.Entry, to *control.Progress) error {
	switch kindOf(e) {
	case unix.S_IFREG:
		to.TotalFiles++
		to.TotalBytes += e.Size
	case unix.S_IFDIR:
		all, err := List(ctx, src, p)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // gone meanwhile
			return err
		}
		for i := range all {
			if !all[i].View {
				if err := count(ctx, src, path.Join(p, string(all[i].Name)), &all[i], to); err != nil {
					return err
				}
			}
		}
	}
	return ctx.Err()
}

// meter tells how far a copy is.
type meter struct {
	control.Progress
	tell func(control.Progress)
}

func newMeter(ctx context.Context, src Source, o Options, paths ...string) (*meter, error) {
	m := &meter{tell: o.Progress}
	if m.tell == nil {
		return m, nil
	}
	for _, p := range paths {
		e, err := src.Entry(ctx, p)
		if err == nil {
			err = count(ctx, src, p, e, &m.Progress)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *meter) add(files int, bytes int64) {
	m.DoneFiles += files
	m.DoneBytes += bytes
	if m.tell != nil {
		m.tell(m.Progress)
	}
}

// Parent is the deepest folder that several paths lie in.
func Parent(paths []string) string {
	parent := split(path.Dir("/" + paths[0]))
	for _, p := range paths[1:] {
		dir := split(path.Dir("/" + p))
		n := 0
		for n < min(len(parent), len(dir)) && parent[n] == dir[n] {
			n++
		}
		parent = parent[:n]
	}
	return path.Join(parent...)
}

func split(p string) []string {
	var names []string
	for p = path.Clean(p); p != "/" && p != "."; p = path.Dir(p) {
		names = append(names, path.Base(p))
	}
	slices.Reverse(names)
	return names
}

// notRegular is why something is left out.
func notRegular(e *control.Entry) string {
	return fmt.Sprintf("no file, folder or link: mode %o", e.Mode)
}
