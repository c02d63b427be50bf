package volume

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual"
)

// Entry describes what is at a path.
func (q *Requests) Entry(ctx context.Context, p string) (*control.Entry, error) {
	q.v.sharing.appear(ctx, p)
	n, err := q.v.resolve(p)
	if err != nil {
		return nil, &fs.PathError{Op: "look at", Path: p, Err: err}
	}
	defer n.Unpin()
	a, err := n.Attr()
	var e control.Entry
	if err == nil {
		e, err = entryOf(n, path.Base("/"+p), a)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "look at", Path: p, Err: err}
	}
	return &e, nil
}

// entriesAtOnce is how many entries are handed on at a time.
const entriesAtOnce = 256

// Entries describes what is in a folder. What is removed meanwhile is left out.
func (q *Requests) Entries(ctx context.Context, p string, some func([]control.Entry) error) error {
	dir, err := q.v.resolve(p)
	if err != nil {
		return &fs.PathError{Op: "list", Path: p, Err: err}
	}
	defer dir.Unpin()
	listed, err := listing(ctx, q.v, dir)
	if err != nil {
		return &fs.PathError{Op: "list", Path: p, Err: err}
	}
	out := make([]control.Entry, 0, entriesAtOnce)
	for _, name := range listed {
		e, err := entryIn(ctx, q.v, dir, name.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "look at", Path: path.Join(p, name.Name), Err: err}
		}
		if out = append(out, e); len(out) == entriesAtOnce {
			if err := some(out); err != nil {
				return err
			}
			out = make([]control.Entry, 0, entriesAtOnce)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return some(out)
}

// listing is the names in a folder and its views, sorted.
func listing(ctx context.Context, v *Volume, dir *names.Node) ([]tree.DirEntry, error) {
	if !dir.IsDir() {
		return nil, unix.ENOTDIR
	}
	v.sharing.ensure(ctx, dir, "")
	list := dir.ListQuietly
	if dir.Synth() != nil {
		list = dir.List
	}
	all, err := list()
	if err != nil {
		return nil, err
	}
	if dir.Synth() == nil {
		all = append(all, v.virtual.Views(&tree.Asker{}, dir, all)...)
	}
	all = slices.DeleteFunc(all, func(e tree.DirEntry) bool { return e.Name == "." || e.Name == ".." })
	slices.SortFunc(all, func(a, b tree.DirEntry) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

func entryIn(ctx context.Context, v *Volume, dir *names.Node, name string) (control.Entry, error) {
	n, a, err := lookup(ctx, v, tree.Caller{}, dir, name)
	if err != nil {
		return control.Entry{}, err
	}
	defer n.Unpin()
	return entryOf(n, name, a)
}

func entryOf(n *names.Node, name string, a tree.Attr) (e control.Entry, err error) {
	e = control.Entry{Name: control.Name(name), Mode: a.Mode, Size: a.Size, Ino: a.Ino, Links: a.Nlink,
		Blocks: a.Blocks, UID: a.UID, GID: a.GID,
		Mtime: time.Unix(a.Mtime.Unix()), Ctime: time.Unix(a.Ctime.Unix()),
		View: virtual.ViewOf(n) != nil}
	if f := n.File(); f != nil {
		e.State, err = storedAs(f)
	} else if a.Mode&unix.S_IFMT == unix.S_IFLNK {
		var target string
		target, err = n.Readlink()
		e.Target = control.Name(target)
	}
	return e, err
}

func storedAs(f *content.File) (string, error) {
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		return "", err
	}
	switch is := f.StateLocked(); {
	case !is.Packed():
		return control.StatePlain, nil
	case is.Record.Remote:
		return control.StateRemote, nil
	case is.Record.Hollow:
		return control.StatePacked, nil
	}
	return control.StateResident, nil
}

// Attributes are the attributes user.* of what is at a path, but for the store's own, and trusted.* as far as
// this process sees them: then who asks is root, too (package control). A symbolic link has none.
func (q *Requests) Attributes(ctx context.Context, p string) (all []control.Attribute, err error) {
	n, err := q.v.resolve(p)
	if err != nil {
		return nil, &fs.PathError{Op: "look at", Path: p, Err: err}
	}
	defer n.Unpin()
	buf := make([]byte, maxXattrList)
	k, err := q.v.ListXattr(n, buf, func() bool { return true })
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:k]), "\x00"), "\x00") {
		if name == "" || err != nil {
			break
		}
		value := make([]byte, maxXattr)
		k, err = q.v.GetXattr(ctx, n, name, value)
		if err == unix.ENODATA { // gone meanwhile
			err = nil
			continue
		}
		all = append(all, control.Attribute{Name: control.Name(name), Value: bytes.Clone(value[:max(k, 0)])})
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read the attributes of", Path: p, Err: err}
	}
	return all, nil
}

// Bytes opens a file or a view between two holes.
func (q *Requests) Bytes(ctx context.Context, p string, off int64) (*control.Stretch, error) {
	n, err := q.v.resolve(p)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	r, size, done, err := openPinned(n)
	if err != nil {
		if errors.Is(err, tree.ErrNotRegular) && n.IsDir() {
			err = unix.EISDIR
		}
		return nil, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	from, to, err := stretch(n, off, size)
	if err != nil {
		done()
		return nil, &fs.PathError{Op: "read", Path: p, Err: err}
	}
	return &control.Stretch{Off: from, Size: to - from, ReadCloser: &openStretch{
		Reader: io.NewSectionReader(telling{n, r}, from, to-from), done: done}}, nil
}

// stretch is where data begins from off on, and where it ends, in an open file of this size.
func stretch(n *names.Node, off, size int64) (from, to int64, err error) {
	f := n.File()
	if f == nil { // a view
		return min(off, size), size, nil
	}
	if from, err = content.Seek(f, off, unix.SEEK_DATA); err == nil {
		to, err = content.Seek(f, from, unix.SEEK_HOLE)
	}
	if err == unix.ENXIO {
		return size, size, nil
	}
	return from, max(from, min(to, size)), err
}

// telling reports a read that failed, as one of the mount is.
type telling struct {
	n *names.Node
	io.ReaderAt
}

func (t telling) ReadAt(p []byte, off int64) (int, error) {
	k, err := t.ReaderAt.ReadAt(p, off)
	if err == nil || err == io.EOF {
		return k, err
	}
	src := t.n
	if w := virtual.ViewOf(src); w != nil {
		src = w.Source()
	}
	return k, src.File().ReadFailed(off, err)
}

type openStretch struct {
	io.Reader
	done func()
}

func (s *openStretch) Close() error {
	s.done()
	return nil
}
