package takeout

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
)

// Unsettled is how long after a change another one may bear the same time: the kernel's clock for files
// ticks each 10 ms at most. What changed so lately is not found equal.
const Unsettled = 100 * time.Millisecond

// Checked remembers what was copied, and of what the copy was found equal, by everything that a change to a
// file changes. It takes about a hundred bytes a file.
type Checked struct {
	now  func() time.Time
	sums map[state]cas.Hash // of what was read
	same map[state]struct{} // names whose copy is equal
}

// state is a file as it was at one moment, and of a name if it is in same.
type state [16]byte

// NewChecked remembers nothing yet.
func NewChecked(now func() time.Time) *Checked {
	return &Checked{now, map[state]cas.Hash{}, map[state]struct{}{}}
}

// stateOf is what tells an entry from what becomes of it. A rename of a folder changes its own change time
// alone, so that does not count for folders.
func stateOf(name string, e *control.Entry) state {
	b := make([]byte, 0, 128)
	mtime := uint64(e.Mtime.UnixNano())
	for _, n := range []uint64{uint64(e.Mode), e.Ino, uint64(e.UID), uint64(e.GID), mtime} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	if kindOf(e) != unix.S_IFDIR {
		b = binary.LittleEndian.AppendUint64(b, uint64(e.Size))
		b = binary.LittleEndian.AppendUint64(b, uint64(e.Ctime.UnixNano()))
	}
	sum := cas.Sum(append(b, name...))
	return state(sum[:])
}

// settled reports whether a file that is read from now on cannot change without its times telling.
func (c *Checked) settled(e *control.Entry) bool {
	if c == nil {
		return false
	}
	age := c.now().Sub(e.Ctime)
	return age > Unsettled || age < -Unsettled // in another clock's future: it says nothing
}

// read notes the sum of a file that was settled before it was read, and did not change.
func (c *Checked) read(e *control.Entry, sum cas.Hash) { c.sums[stateOf("", e)] = sum }

func (c *Checked) sum(e *control.Entry) (sum cas.Hash, known bool) {
	if c == nil {
		return sum, false
	}
	sum, known = c.sums[stateOf("", e)]
	return sum, known
}

// equal notes that the copy that has a name is equal.
func (c *Checked) equal(name string, e *control.Entry) {
	if c != nil {
		c.same[stateOf(name, e)] = struct{}{}
	}
}

func (c *Checked) is(name string, e *control.Entry) bool {
	if c == nil {
		return false
	}
	_, is := c.same[stateOf(name, e)]
	return is
}

// Open lists what is at or below a path of the source and was not found equal to its copy as it is now.
// Sockets, FIFOs and devices have none.
func (c *Checked) Open(ctx context.Context, src Source, from string) (open []string, err error) {
	e, err := src.Entry(ctx, from)
	if err != nil {
		return nil, err
	}
	return open, c.walk(ctx, src, from, e, &open)
}

func (c *Checked) walk(ctx context.Context, src Source, from string, e *control.Entry, open *[]string) error {
	switch kindOf(e) {
	case unix.S_IFDIR, unix.S_IFREG, unix.S_IFLNK:
	default:
		return nil
	}
	if !c.is(from, e) {
		*open = append(*open, from)
	}
	if kindOf(e) != unix.S_IFDIR {
		return ctx.Err()
	}
	all, err := List(ctx, src, from)
	if errors.Is(err, fs.ErrNotExist) { // gone meanwhile
		*open = append(*open, from)
		return nil
	}
	for i := range all {
		if err == nil && !all[i].View {
			err = c.walk(ctx, src, path.Join(from, string(all[i].Name)), &all[i], open)
		}
	}
	return err
}
