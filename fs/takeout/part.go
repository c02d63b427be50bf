package takeout

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// partOf is what a name is called until what has it is whole. It is the same each time, so that a copy that
// is made again finds what an earlier one left.
func partOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf(".ckptfs-part-%x", sum[:8])
}

// Part is a file that has its name once it is whole.
type Part struct {
	*os.File
	in         *os.Root
	name, part string
}

// NewPart makes an empty one. EBUSY: another process is writing it.
func NewPart(in *os.Root, name string) (*Part, error) {
	p := &Part{in: in, name: name, part: partOf(name)}
	f, err := in.OpenFile(p.part, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := p.own(f); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "write", Path: name, Err: err}
	}
	p.File = f
	return p, nil
}

// own locks the file against other copies, which open the same name, and empties it.
func (p *Part) own(f *os.File) error {
	if err := lock(f); err != nil {
		return err
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	now, err := p.in.Lstat(p.part)
	if err != nil || !os.SameFile(mine, now) {
		return fmt.Errorf("another copy has just written it: %w", unix.EBUSY)
	}
	if !mine.Mode().IsRegular() {
		return fmt.Errorf("%s is no file: remove it", p.part)
	}
	return f.Truncate(0)
}

// lock locks a file or folder against other copies, where the filesystem can.
func lock(f *os.File) error {
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
	case unix.EBADF, unix.ENOLCK, unix.ENOSYS, unix.EOPNOTSUPP: // NFS locks no folders
		return nil
	case unix.EWOULDBLOCK:
		return fmt.Errorf("another copy is writing it: %w", unix.EBUSY)
	default:
		return err
	}
}

// Commit gives the file its name. It is durable before that.
func (p *Part) Commit() error {
	if err := p.Sync(); err != nil {
		p.Drop()
		return err
	}
	return p.enter()
}

// enter gives the file its name, durable or not.
func (p *Part) enter() error {
	err := p.in.Rename(p.part, p.name)
	if err != nil {
		p.Drop()
		return err
	}
	return p.Close()
}

// Drop removes the file.
func (p *Part) Drop() {
	p.in.Remove(p.part)
	p.Close()
}

// Finish makes all that was written to the disk of a folder durable, names too.
func Finish(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Syncfs(int(dir.Fd()))
}

// replace makes a name by do, which makes it of another name first, instead of whatever file has it.
func replace(in *os.Root, name string, do func(part string) error) error {
	part := partOf(name)
	if err := in.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := do(part); err != nil {
		return err
	}
	err := in.Rename(part, name)
	if rerr := in.Remove(part); err == nil && rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		return rerr // what is renamed to another name of its own stays
	}
	return err
}
