package takeout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// Compare reads the files at or below a path of the source once more, and compares them with a copy that has
// a name in a folder, as the disk has that. It returns how many were equal, and names those that were not.
func Compare(ctx context.Context, src Source, from string, in *os.Root, name string,
	o Options) (same int, differ []control.Skip, err error) {
	m, err := newMeter(ctx, src, o, from)
	if err != nil {
		return 0, nil, err
	}
	e, err := src.Entry(ctx, from)
	if err != nil {
		return 0, nil, err
	}
	c := &comparer{src: src, in: in, meter: m, buf: make([]byte, bufferSize), has: make([]byte, bufferSize)}
	err = c.entry(ctx, from, e, name)
	return c.same, c.differ, err
}

// comparer is one comparison under way.
type comparer struct {
	src      Source
	in       *os.Root
	meter    *meter
	buf, has []byte
	same     int
	differ   []control.Skip
}

func (c *comparer) entry(ctx context.Context, from string, e *control.Entry, name string) error {
	switch kindOf(e) {
	case unix.S_IFDIR:
		all, err := List(ctx, c.src, from)
		for i := range all {
			at := string(all[i].Name)
			if err == nil && !all[i].View {
				err = c.entry(ctx, path.Join(from, at), &all[i], path.Join(name, at))
			}
		}
		return err
	case unix.S_IFREG:
		if err := c.file(ctx, from, e, name); err != nil {
			c.differ = append(c.differ, control.Skip{Path: from, Reason: err.Error()})
		} else {
			c.same++
		}
		c.meter.add(1, e.Size)
	}
	return ctx.Err()
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
