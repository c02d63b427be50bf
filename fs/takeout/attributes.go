package takeout

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// attributesOf are the attributes of a file or folder that its copy gets, and what to say of the others.
func attributesOf(ctx context.Context, src Source, from string, o Options,
) (attrs []control.Attribute, others []control.Skip, err error) {
	of, is := src.(attributed)
	if !is || !o.Attributes {
		return nil, nil, nil
	}
	all, err := of.Attributes(ctx, from)
	for _, a := range all {
		if name := string(a.Name); copied(name) {
			attrs = append(attrs, a)
		} else {
			others = append(others, control.Skip{Path: from, Reason: "its " + name + " is not copied"})
		}
	}
	return attrs, others, err
}

// attributesOf are the attributes that a copy gets. The others are named.
func (c *copier) attributesOf(ctx context.Context, from string) ([]control.Attribute, error) {
	attrs, others, err := attributesOf(ctx, c.src, from, c.o)
	c.Skipped = append(c.Skipped, others...)
	return attrs, err
}

func (c *copier) skip(from, reason string) {
	c.Skipped = append(c.Skipped, control.Skip{Path: from, Reason: reason})
}

// attributesAgain gives a copy that an earlier run made its attributes.
func (c *copier) attributesAgain(ctx context.Context, from string, in *os.Root, name string) bool {
	attrs, err := c.attributesOf(ctx, from)
	if err != nil || len(attrs) == 0 {
		return err == nil
	}
	f, err := in.OpenFile(name, nonblock|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return c.attribute(f, from, attrs) == nil
}

// attribute gives a copy the attributes, and to a mirror no others. Those that the copy's filesystem cannot
// hold are named.
func (c *copier) attribute(f *os.File, from string, attrs []control.Attribute) error {
	var not, denied []string
	for _, a := range attrs {
		name := string(a.Name)
		if hasAttribute(f, name, a.Value) {
			continue
		}
		switch err := unix.Fsetxattr(int(f.Fd()), name, a.Value, 0); err {
		case nil:
		case unix.ENOSPC, unix.EDQUOT, unix.E2BIG, unix.ERANGE, unix.EOPNOTSUPP:
			not = append(not, name)
		case unix.EPERM: // trusted.*, of which the source knows
			denied = append(denied, name)
		default:
			return &fs.PathError{Op: "set attribute " + name + " of the copy of", Path: from, Err: err}
		}
	}
	if len(not) > 0 {
		c.skip(from, "the other filesystem has no room for its "+strings.Join(not, ", "))
	}
	if len(denied) > 0 {
		c.skip(from, "its "+strings.Join(denied, ", ")+": only root may set that")
	}
	if c.o.Checked == nil {
		return nil
	}
	left, err := attributeNames(int(f.Fd()))
	if err != nil {
		return &fs.PathError{Op: "list the attributes of the copy of", Path: from, Err: err}
	}
	for _, name := range left {
		has := slices.ContainsFunc(attrs, func(a control.Attribute) bool { return string(a.Name) == name })
		if has || !copied(name) {
			continue
		}
		if err := unix.Fremovexattr(int(f.Fd()), name); err != nil && err != unix.ENODATA {
			return &fs.PathError{Op: "remove attribute " + name + " of the copy of", Path: from, Err: err}
		}
	}
	return nil
}

// hasAttribute reports whether a file has an attribute already. A file may be one that nobody may change.
func hasAttribute(f *os.File, name string, value []byte) bool {
	has := make([]byte, len(value)+1) // a longer value is another one
	n, err := unix.Fgetxattr(int(f.Fd()), name, has)
	return err == nil && bytes.Equal(has[:n], value)
}
