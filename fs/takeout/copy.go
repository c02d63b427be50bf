package takeout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// bufferSize is how much is read at a time.
const bufferSize = 1 << 20

// copier is one copy under way.
type copier struct {
	Taken
	src       Source
	o         Options
	top       *os.Root          // the folder that is copied to
	firstName map[uint64]string // by inode number: the copy of a file with several names, below top
	to        end               // where a folder is copied to
	fresh     bool              // nobody but copies wrote what is there already
	meter     *meter
	sum       *summer
	buf       []byte
}

// end is the folder that a folder is copied to. Where that lies in the source, it is met there.
type end struct {
	name string
	ino  uint64
}

func (d end) is(e *control.Entry) bool {
	return d.ino == e.Ino && d.name == string(e.Name) && kindOf(e) == unix.S_IFDIR
}

// lossError is a failure to write: there is no sense in going on.
type lossError struct{ err error }

func (e *lossError) Error() string { return e.err.Error() }
func (e *lossError) Unwrap() error { return e.err }

// lost marks an error of the folder that is copied to.
func lost(err error) error {
	if err == nil {
		return nil
	}
	return &lossError{err}
}

// Copy copies the file, link or folder at a path of the source to a name in a folder. A file that has the
// name is replaced, but see Options.Spare; into a folder that has it, a folder is merged.
func Copy(ctx context.Context, src Source, from string, to *os.Root, name string,
	o Options) (*Taken, error) {
	m, err := newMeter(ctx, src, o, from)
	if err != nil {
		return nil, err
	}
	e, err := src.Entry(ctx, from)
	if err != nil {
		return nil, err
	}
	c := &copier{src: src, o: o, top: to, firstName: map[uint64]string{}, meter: m,
		sum: newSummer(), buf: make([]byte, bufferSize)}
	c.Skipped = []control.Skip{}
	switch {
	case o.Checked != nil:
		err = c.mirror(ctx, from, e, name)
	case kindOf(e) == unix.S_IFDIR:
		err = c.newFolder(ctx, from, e, name)
	default:
		err = c.entry(ctx, from, e, to, name, name)
	}
	if err == nil {
		err = Finish(to)
	}
	return &c.Taken, err
}

// newFolder copies a folder, which has its name last of all unless there is one of that name.
func (c *copier) newFolder(ctx context.Context, from string, e *control.Entry, name string) error {
	part, err := placeOf(c.top, from, e, name)
	if err != nil {
		return err
	}
	if part == name {
		return c.folder(ctx, from, e, c.top, name, name)
	}
	c.fresh = true
	release, err := c.own(part)
	if err != nil {
		return err
	}
	defer release()
	if err := c.folder(ctx, from, e, c.top, part, part); err != nil {
		_ = c.top.Remove(part) // if nothing is in it that the next copy goes on with
		return err
	}
	return c.top.Rename(part, name)
}

// own makes a folder that no other copy uses until it is released.
func (c *copier) own(part string) (release func(), err error) {
	if err := c.top.Mkdir(part, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	dir, err := c.top.OpenFile(part, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := lock(dir); err != nil {
		dir.Close()
		return nil, err
	}
	return func() { dir.Close() }, nil
}

// entry copies one name to a name in a folder; below is its path below the top. What cannot be read is noted.
func (c *copier) entry(ctx context.Context, from string, e *control.Entry, in *os.Root,
	name, below string) error {
	var err error
	switch kindOf(e) {
	case unix.S_IFDIR:
		err = c.folder(ctx, from, e, in, name, below)
	case unix.S_IFREG:
		err = c.file(ctx, from, e, in, name, below)
	case unix.S_IFLNK:
		err = c.link(e, in, name)
	default:
		c.skip(from, notRegular(e))
	}
	var loss *lossError
	if err == nil || errors.As(err, &loss) || ctx.Err() != nil {
		return err
	}
	if c.Failed == nil {
		c.Failed = err
	}
	skip := control.Skip{Path: from, Reason: err.Error()}
	c.Skipped, c.failures = append(c.Skipped, skip), append(c.failures, skip)
	c.hopeless = c.hopeless || !errors.Is(err, errChanged) && !errors.Is(err, fs.ErrNotExist)
	return nil
}

func (c *copier) folder(ctx context.Context, from string, e *control.Entry, in *os.Root,
	name, below string) error {
	all, err := List(ctx, c.src, from)
	if err != nil {
		return err
	}
	if st, err := in.Lstat(name); err == nil && !st.IsDir() {
		return lost(&fs.PathError{Op: "mkdir", Path: below, Err: unix.ENOTDIR})
	} else if err != nil {
		if err := in.Mkdir(name, 0o700); err != nil {
			return lost(err)
		}
	}
	sub, err := in.OpenRoot(name)
	if err != nil {
		return lost(err)
	}
	defer sub.Close()
	if c.o.Checked != nil && !c.o.Owners { // an earlier copy may have got the mode, which may deny its owner
		if err := sub.Chmod(".", 0o700); err != nil {
			return lost(err)
		}
	}
	if c.to == (end{}) {
		if c.to, err = endOf(sub, name); err != nil {
			return lost(err)
		}
	}
	if err := c.tidy(sub, all); err != nil {
		return lost(err)
	}
	for i := range all {
		e, name := &all[i], string(all[i].Name)
		if e.View {
			continue
		}
		if c.to.is(e) {
			c.skip(path.Join(from, name), "the copy goes there")
			continue
		}
		if err := c.entry(ctx, path.Join(from, name), e, sub, name, path.Join(below, name)); err != nil {
			return err
		}
	}
	attrs, err := c.attributesOf(ctx, from)
	if err != nil {
		return err
	}
	self, err := sub.Open(".")
	if err != nil {
		return lost(err)
	}
	defer self.Close()
	return lost(c.describe(self, from, e, attrs))
}

func endOf(folder *os.Root, name string) (end, error) {
	st, err := folder.Stat(".")
	if err != nil {
		return end{}, err
	}
	return end{name, st.Sys().(*syscall.Stat_t).Ino}, nil
}

// tidy removes from a fresh folder what an earlier copy left and the source has no more.
func (c *copier) tidy(folder *os.Root, all []control.Entry) error {
	if !c.fresh {
		return nil
	}
	has := map[string]*control.Entry{}
	for i := range all {
		if !all[i].View {
			has[string(all[i].Name)] = &all[i]
		}
	}
	dir, err := folder.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		st, err := folder.Lstat(name)
		if err != nil {
			return err
		}
		if e := has[name]; e == nil || st.Sys().(*syscall.Stat_t).Mode&unix.S_IFMT != kindOf(e) {
			if err := folder.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// describe gives a copy the attributes, owner, mode and times of what it is of.
func (c *copier) describe(f *os.File, from string, e *control.Entry, attrs []control.Attribute) error {
	if err := c.attribute(f, from, attrs); err != nil {
		return err
	}
	mode := e.Mode & 0o7777
	if !c.o.Owners {
		mode &^= unix.S_ISUID | unix.S_ISGID // they would be rights of another user
	} else if err := f.Chown(int(e.UID), int(e.GID)); err != nil {
		return err
	}
	if err := unix.Fchmod(int(f.Fd()), mode); err != nil {
		return err
	}
	mtime, err := unix.TimeToTimespec(e.Mtime)
	if err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	return unix.UtimesNanoAt(int(f.Fd()), "", times, unix.AT_EMPTY_PATH)
}

func (c *copier) file(ctx context.Context, from string, e *control.Entry, in *os.Root,
	name, below string) error {
	st, err := in.Lstat(name)
	switch {
	case err == nil && st.Mode().IsRegular() && st.Size() == e.Size && st.ModTime().Equal(e.Mtime) &&
		c.keeps(ctx, from, e, in, name, st):
		c.Kept++
		c.meter.add(1, e.Size)
	case err == nil && st.IsDir():
		return lost(&fs.PathError{Op: "write", Path: below, Err: unix.EISDIR})
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return lost(err)
	case err == nil && c.o.Spare && st.ModTime().After(e.Mtime):
		c.skip(from, "the file there was written later, and stays")
		c.meter.add(1, e.Size)
		return nil
	default:
		if first := c.firstName[e.Ino]; first != "" {
			return c.again(first, in, name, below)
		}
		if err := c.bytes(ctx, from, e, in, name); err != nil {
			return err
		}
		c.Files++
		c.Bytes += e.Size
		c.meter.add(1, 0)
	}
	if e.Links > 1 && !e.View {
		c.firstName[e.Ino] = below
	}
	return nil
}

// again makes another name of a file that was copied.
func (c *copier) again(first string, in *os.Root, name, below string) error {
	return lost(replace(in, name, func(part string) error {
		return c.top.Link(first, path.Join(path.Dir(below), part))
	}))
}

// bytes copies what a file holds.
func (c *copier) bytes(ctx context.Context, from string, e *control.Entry, in *os.Root, name string) error {
	p, err := NewPart(in, name)
	if err != nil {
		return lost(err)
	}
	settled := c.o.Checked.settled(e)
	c.sum.reset()
	err = Read(ctx, c.src, from, c.buf, func(b []byte, off int64) error {
		c.meter.add(0, int64(len(b)))
		if settled {
			c.sum.add(b, off)
		}
		_, err := p.WriteAt(b, off)
		return lost(err)
	})
	var attrs []control.Attribute
	if err == nil {
		attrs, err = c.attributesOf(ctx, from)
	}
	var loss *lossError
	if !errors.As(err, &loss) {
		if cerr := unchanged(ctx, c.src, from, e); cerr == errChanged { // which may be why it failed
			err = fmt.Errorf("%s %w", from, cerr)
		} else if err == nil {
			err = cerr
		}
	}
	if err != nil {
		p.Drop()
		return err
	}
	err = p.Truncate(e.Size) // it may end with a hole
	if err == nil {
		err = c.describe(p.File, from, e, attrs)
	}
	if err != nil {
		p.Drop()
		return lost(err)
	}
	if settled {
		c.o.Checked.read(e, c.sum.sum(e.Size))
	}
	if c.o.Checked != nil {
		return lost(p.enter())
	}
	return lost(p.Commit())
}

func (c *copier) link(e *control.Entry, in *os.Root, name string) error {
	if now, err := in.Readlink(name); err == nil && now == string(e.Target) {
		c.Kept++
		return nil
	}
	c.Links++
	return lost(replace(in, name, func(part string) error {
		err := in.Symlink(string(e.Target), part)
		if err == nil && c.o.Owners {
			err = in.Lchown(part, int(e.UID), int(e.GID))
		}
		if err == nil {
			err = dated(in, part, e)
		}
		return err
	}))
}

// dated gives a symbolic link its modification time.
func dated(in *os.Root, name string, e *control.Entry) error {
	dir, err := in.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	mtime, err := unix.TimeToTimespec(e.Mtime)
	if err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	return unix.UtimesNanoAt(int(dir.Fd()), name, times, unix.AT_SYMLINK_NOFOLLOW)
}
