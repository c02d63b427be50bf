package takeout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// mostExtra is how many names of Extra are kept; the others are counted.
const mostExtra = 20

// Extra is names that a copy has and the source has not: what an earlier copy brought and was removed since,
// or what was there before. Of a folder it is the folder alone.
type Extra struct {
	N     int64    `json:"n"`
	Paths []string `json:"paths,omitempty"` // in the copy; the first ones
}

// Compared is what a comparison found.
type Compared struct {
	Same   int            // files that are equal
	Differ []control.Skip // files that are not
	Extra  Extra
}

// Compare reads the files at or below a path of the source once more, and compares them with a copy that has
// a name in a folder, as the disk has that.
func Compare(ctx context.Context, src Source, from string, in *os.Root, name string,
	o Options) (*Compared, error) {
	m, err := newMeter(ctx, src, o, from)
	if err != nil {
		return nil, err
	}
	e, err := src.Entry(ctx, from)
	if err != nil {
		return nil, err
	}
	c := &comparer{src: src, in: in, top: name, meter: m, buf: make([]byte, bufferSize),
		has: make([]byte, bufferSize)}
	err = c.entry(ctx, from, e, name)
	return &c.Compared, err
}

// comparer is one comparison under way.
type comparer struct {
	Compared
	src      Source
	in       *os.Root
	top      string // the copy's name in it
	meter    *meter
	buf, has []byte
}

func (c *comparer) entry(ctx context.Context, from string, e *control.Entry, name string) error {
	switch kindOf(e) {
	case unix.S_IFDIR:
		all, err := List(ctx, c.src, from)
		if err == nil {
			err = c.extra(name, all)
		}
		for i := range all {
			at := string(all[i].Name)
			if err == nil && !all[i].View {
				err = c.entry(ctx, path.Join(from, at), &all[i], path.Join(name, at))
			}
		}
		return err
	case unix.S_IFREG:
		if err := c.file(ctx, from, e, name); err != nil {
			c.Differ = append(c.Differ, control.Skip{Path: from, Reason: err.Error()})
		} else {
			c.Same++
		}
		c.meter.add(1, e.Size)
	}
	return ctx.Err()
}

// extra notes what a folder of the copy has besides what the source has there.
func (c *comparer) extra(name string, all []control.Entry) error {
	has := make(map[string]bool, len(all))
	for i := range all {
		has[string(all[i].Name)] = !all[i].View
	}
	names, err := namesIn(c.in, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its files are said to differ
	}
	slices.Sort(names)
	for _, n := range names {
		if has[n] {
			continue
		}
		if c.Extra.N++; len(c.Extra.Paths) < mostExtra {
			c.Extra.Paths = append(c.Extra.Paths, strings.TrimPrefix(path.Join(name, n), c.top+"/"))
		}
	}
	return err
}

func namesIn(in *os.Root, name string) ([]string, error) {
	dir, err := in.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

var errDiffers = errors.New("the copy differs")

// file compares one file.
func (c *comparer) file(ctx context.Context, from string, e *control.Entry, name string) error {
	f, err := c.in.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() != e.Size {
		return errors.Join(errDiffers, err)
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // it was synced
	end := int64(0)
	err = Read(ctx, c.src, from, c.buf, func(p []byte, off int64) error {
		if err := c.zeros(f, end, off); err != nil {
			return err
		}
		end = off + int64(len(p))
		if err := c.read(f, len(p), off); err != nil {
			return err
		}
		if !bytes.Equal(c.has[:len(p)], p) {
			return fmt.Errorf("%w, between bytes %d and %d", errDiffers, off, end)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.zeros(f, end, e.Size)
}

// zeros looks whether the copy has zeros where the file has a hole.
func (c *comparer) zeros(f *os.File, from, to int64) error {
	for from < to {
		n := int(min(to-from, int64(len(c.has))))
		if err := c.read(f, n, from); err != nil {
			return err
		}
		if bytes.Count(c.has[:n], []byte{0}) < n {
			return fmt.Errorf("%w, behind byte %d", errDiffers, from)
		}
		from += int64(n)
	}
	return nil
}

func (c *comparer) read(f *os.File, n int, off int64) error {
	_, err := io.ReadFull(io.NewSectionReader(f, off, int64(n)), c.has[:n])
	return err
}
