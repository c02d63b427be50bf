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

// block is what a filesystem gives a file in multiples of.
const block = 4096

// Room is how many bytes a Copy takes on the disk that it goes to, without what an earlier one left there. Of
// what the filesystem writes beside the bytes it knows nothing.
func Room(ctx context.Context, src Source, from string, to *os.Root, name string) (int64, error) {
	e, err := src.Entry(ctx, from)
	if err != nil {
		return 0, err
	}
	if kindOf(e) == unix.S_IFDIR {
		if name, err = placeOf(to, from, e, name); err != nil {
			return 0, err
		}
	}
	r := &rooms{src: src, to: to, seen: map[uint64]bool{}}
	err = r.add(ctx, from, e, name)
	return r.bytes, err
}

// placeOf is the name under which a folder is copied that is to have a name: another one until it is whole,
// unless that is there.
func placeOf(to *os.Root, from string, e *control.Entry, name string) (string, error) {
	_, err := to.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		// What is left of a copy of something else is not used.
		return partOf(fmt.Sprint(name, "\x00", from, "\x00", e.Ino)), nil
	}
	return name, err
}

// rooms adds up the room of a copy.
type rooms struct {
	src   Source
	to    *os.Root
	seen  map[uint64]bool // inode numbers of files with several names
	bytes int64
}

func (r *rooms) add(ctx context.Context, from string, e *control.Entry, name string) error {
	switch kindOf(e) {
	case unix.S_IFREG:
		return r.file(e, name)
	case unix.S_IFDIR:
	default:
		return nil
	}
	if _, err := r.to.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		r.bytes += block
	}
	all, err := List(ctx, r.src, from)
	if errors.Is(err, fs.ErrNotExist) { // gone meanwhile
		return nil
	}
	for i := range all {
		if below := string(all[i].Name); err == nil && !all[i].View {
			err = r.add(ctx, path.Join(from, below), &all[i], path.Join(name, below))
		}
	}
	return errors.Join(err, ctx.Err())
}

// file adds the room of a file. One that is there with its size and time is not copied.
func (r *rooms) file(e *control.Entry, name string) error {
	if e.Links > 1 {
		if r.seen[e.Ino] {
			return nil
		}
		r.seen[e.Ino] = true
	}
	st, err := r.to.Lstat(name)
	if err == nil && st.Mode().IsRegular() && st.Size() == e.Size && st.ModTime().Equal(e.Mtime) {
		return nil
	}
	r.bytes += min((e.Size+block-1)/block*block, max(e.Blocks, 0)*512+block)
	if st, err := r.to.Lstat(path.Join(path.Dir(name), partOf(path.Base(name)))); err == nil {
		r.bytes -= st.Sys().(*syscall.Stat_t).Blocks * 512 // it is emptied first
	}
	return nil
}
