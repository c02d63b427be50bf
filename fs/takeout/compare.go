package takeout

import (
	"context"
	"errors"
	"path"
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
	// Skipped is what is not copied, as sockets, and with Options.Attributes ACLs.
	Skipped []control.Skip
	Extra   Extra
}

// Compare reads the files at or below a path of the source once more, and compares them with their copies,
// which are at or below a path of another source.
func Compare(ctx context.Context, src Source, from string, of Source, at string, o Options) (
	*Compared, error) {
	c, err := compare(ctx, src, from, of, at, o)
	if err != nil {
		return nil, err
	}
	return &c.Compared, nil
}

func compare(ctx context.Context, src Source, from string, of Source, at string,
	o Options) (*comparer, error) {
	m, err := newMeter(ctx, src, o, from)
	if err != nil {
		return nil, err
	}
	e, err := src.Entry(ctx, from)
	if err != nil {
		return nil, err
	}
	c := &comparer{src: src, of: of, top: at, meter: m, o: o, sum: newSummer(), buf: make([]byte, bufferSize)}
	return c, c.entry(ctx, from, e, at)
}

// comparer is one comparison under way.
type comparer struct {
	Compared
	src, of Source
	top     string // the copy's path
	meter   *meter
	o       Options
	sum     *summer
	buf     []byte
	wrong   []string // paths of copies that are not equal, or cannot be read
}

func (c *comparer) entry(ctx context.Context, from string, e *control.Entry, at string) error {
	var err error
	if kindOf(e) != unix.S_IFLNK { // a file that cannot be read is met later
		_, others, _ := attributesOf(ctx, c.src, from, c.o)
		c.Skipped = append(c.Skipped, others...)
	}
	switch kindOf(e) {
	case unix.S_IFDIR:
		return c.folder(ctx, from, e, at)
	case unix.S_IFREG:
		if err = c.file(ctx, from, e, at); err == nil {
			c.Same++
		}
		c.meter.add(1, 0)
	case unix.S_IFLNK:
		var copied *control.Entry
		if copied, err = c.copied(ctx, e, at); err == nil && copied.Target != e.Target {
			err = errDiffers
		}
	default:
		c.Skipped = append(c.Skipped, control.Skip{Path: from, Reason: notRegular(e)})
		return ctx.Err()
	}
	if err != nil {
		return c.differs(ctx, from, at, err)
	}
	c.o.Checked.equal(from, e)
	return ctx.Err()
}

// differs notes a file that is not equal, or cannot be read. It returns what ends the comparison.
func (c *comparer) differs(ctx context.Context, from, at string, err error) error {
	if control.WentAway(err) {
		return err
	}
	c.Differ = append(c.Differ, control.Skip{Path: from, Reason: err.Error()})
	if err == errDiffers {
		c.wrong = append(c.wrong, at)
	}
	return ctx.Err()
}

func (c *comparer) folder(ctx context.Context, from string, e *control.Entry, at string) error {
	if _, err := c.copied(ctx, e, at); err != nil {
		return c.differs(ctx, from, at, err) // and what is in it, which nobody looks for
	}
	all, err := List(ctx, c.src, from)
	if err != nil {
		return c.differs(ctx, from, at, err)
	}
	if err := c.extra(ctx, at, all); err != nil {
		if err = c.differs(ctx, from, at, err); err != nil {
			return err
		}
	}
	for i := range all {
		if all[i].View {
			continue
		}
		name := string(all[i].Name)
		if err := c.entry(ctx, path.Join(from, name), &all[i], path.Join(at, name)); err != nil {
			return err
		}
	}
	c.o.Checked.equal(from, e)
	return nil
}

// extra notes what a folder of the copy has besides what the source has there.
func (c *comparer) extra(ctx context.Context, at string, all []control.Entry) error {
	has := make(map[string]bool, len(all))
	for i := range all {
		has[string(all[i].Name)] = !all[i].View
	}
	copied, err := List(ctx, c.of, at)
	for i := range copied {
		name := string(copied[i].Name)
		if has[name] || copied[i].View {
			continue
		}
		if c.Extra.N++; len(c.Extra.Paths) < mostExtra {
			c.Extra.Paths = append(c.Extra.Paths, strings.TrimPrefix(path.Join(at, name), c.top+"/"))
		}
	}
	return err
}

var errDiffers = errors.New("the copy differs")

// copied is the entry of a copy, which is of the same kind.
func (c *comparer) copied(ctx context.Context, e *control.Entry, at string) (*control.Entry, error) {
	copied, err := c.of.Entry(ctx, at)
	if err == nil && (kindOf(copied) != kindOf(e) || copied.View) {
		err = errDiffers
	}
	return copied, err
}

// file compares one file.
func (c *comparer) file(ctx context.Context, from string, e *control.Entry, at string) error {
	if c.o.Checked.is(from, e) {
		c.meter.add(0, e.Size)
		return nil
	}
	copied, err := c.copied(ctx, e, at)
	if err != nil {
		return err
	}
	if copied.Size != e.Size {
		return errDiffers
	}
	want, known := c.o.Checked.sum(e)
	settled := known || c.o.Checked.settled(e)
	if !known {
		want, err = sumOf(ctx, c.src, from, e.Size, c.sum, c.buf, nil)
	}
	if c.o.Checked != nil && !known {
		if cerr := unchanged(ctx, c.src, from, e); cerr != nil || !settled {
			return errChanged
		}
		if err == nil {
			c.o.Checked.read(e, want)
		}
	}
	if err != nil {
		return err
	}
	got, err := sumOf(ctx, c.of, at, e.Size, c.sum, c.buf, c.meter)
	if err != nil {
		c.wrong = append(c.wrong, at)
		return err
	}
	if got != want {
		return errDiffers
	}
	return nil
}
