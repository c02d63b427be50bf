package virtual

import (
	"context"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/inspect"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
)

// folder is a directory whose names the daemon makes up. No lock is held when its methods are called. They
// show a caller what it may see.
type folder interface {
	// lookup finds a name; ENOENT when there is none. The caller is also asked for by the entry's sight.
	lookup(ctx context.Context, v *Virtual, c *tree.Asker, name string) (entry, error)
	// list is the names in it, with Name and the S_IFMT bits of Mode. It may leave out names that lookup
	// finds.
	list(v *Virtual, c *tree.Asker) ([]tree.DirEntry, error)
}

// changing is a folder in which names are made and removed.
type changing interface {
	create(v *Virtual, name string) (entry, error)
	remove(v *Virtual, name string) error
}

// entry is what a name leads to: of dir, link, data, text, view, made, set, query, loser and patch one is
// set.
type entry struct {
	// key is comparable. As long as it is the same, the name leads to the same node.
	key any
	// src is the node of the tree that this is made of, or nil. It has a reference, which the node of the
	// name takes over.
	src *names.Node

	dir folder
	// link is the target of a symbolic link for a caller, asked for each time.
	link func(v *Virtual, c *tree.Asker) (string, error)
	data []byte // a file's bytes
	// text is a file's bytes, found by each open, which may end it; its size is 0 as in /proc.
	text func(ctx context.Context, v *Virtual) ([]byte, error)
	view *View // a file over src's bytes

	made  *computed // a file that is computed of src and others
	set   *setView  // a file over those of a set
	query *query    // a file that may be written; see queryRoot
	loser *Loser    // a file that a remote has; see conflictDir
	patch *inspect.Patch

	// brief: who finds it finds the same, so that the kernel may keep it for a tick of its clock.
	brief bool
	// sight says who finds it.
	sight sight
	// stat describes it: owner, times, and the permissions and S_IFMT bits of Mode. nil: as src, without the
	// permissions to write. nil without src: as the mount's root, and readable by all.
	stat func(v *Virtual) (tree.Attr, error)
}

// synthetic is the Synthetic of a virtual file.
type synthetic struct {
	entry
	v     *Virtual
	mode  uint32 // S_IFMT bits only
	fixed bool
}

func (w *entry) mode() uint32 {
	switch {
	case w.dir != nil:
		return unix.S_IFDIR
	case w.link != nil:
		return unix.S_IFLNK
	}
	return unix.S_IFREG
}

func (w *entry) size() int64 {
	if w.view != nil {
		return w.view.size
	}
	if w.made != nil {
		return w.made.size
	}
	if w.set != nil {
		return w.set.plan.Size()
	}
	if w.query != nil {
		return w.query.size()
	}
	if w.loser != nil {
		return w.loser.Size
	}
	if w.patch != nil {
		return w.patch.Size()
	}
	return int64(len(w.data))
}

// Key is that of what the name leads to.
func (n *synthetic) Key() any { return n.key }

// Traits are those of a virtual file.
func (n *synthetic) Traits() names.Traits {
	return names.Traits{
		View: n.view != nil, Virtual: true, Fixed: n.fixed, Query: n.query != nil, Brief: n.brief,
		Passing: n.query != nil || n.set != nil || n.data != nil || n.loser != nil || n.patch != nil,
	}
}

// Origin is what it is made of, and of a file the generations of that.
func (n *synthetic) Origin() names.Origin {
	if n.view != nil {
		return n.view.Origin()
	}
	if n.made != nil {
		return n.made.origin
	}
	return names.Origin{Src: n.src}
}

// Size is what can be read of it, as far as that is known.
func (n *synthetic) Size() int64 { return n.size() }

// viewed is the view that it is, or nil.
func (n *synthetic) viewed() *View { return n.view }

// Stat describes a virtual file.
func (n *synthetic) Stat() (a tree.Attr, err error) {
	v := n.v
	switch {
	case n.stat != nil:
		a, err = n.stat(v)
	case n.src != nil:
		a, err = n.src.Attr()
		a.Mode = n.mode | withoutWrite(a.Mode, n.mode)
	default:
		a, err = v.o.Names.Root().Attr()
		a.Mode = n.mode | withoutWrite(0o444, n.mode)
	}
	if n.mode == unix.S_IFLNK {
		a.Mode = n.mode | 0o777
	}
	return a, err
}

// Setattr truncates a query that is being written. Nothing else can be changed.
func (n *synthetic) Setattr(s *tree.SetAttr) error {
	if n.query == nil {
		return unix.EROFS
	}
	if s.Size != nil {
		n.query.mu.Lock()
		defer n.query.mu.Unlock()
		n.query.truncateLocked(*s.Size)
	}
	return nil
}

// Readlink is the target of a symbolic link.
func (n *synthetic) Readlink(c tree.Caller) (string, error) {
	if n.link == nil {
		return "", unix.EINVAL
	}
	return n.link(n.v, &tree.Asker{Caller: c})
}

// Lookup finds a name in a directory; ENOENT when the caller may not see it.
func (n *synthetic) Lookup(
	ctx context.Context, c tree.Caller, dir *names.Node, name string,
) (*names.Node, error) {
	if n.dir == nil {
		return nil, unix.ENOTDIR
	}
	by := &tree.Asker{Caller: c}
	w, err := n.dir.lookup(ctx, n.v, by, name)
	if err == nil && !n.v.visible(by, w.sight, w.src) {
		err = unix.ENOENT
		w.drop()
	}
	if err != nil {
		return nil, err
	}
	return n.v.node(dir, name, w), nil
}

// List is the names in a directory that a caller may see.
func (n *synthetic) List(c tree.Caller) ([]tree.DirEntry, error) {
	if n.dir == nil {
		return nil, unix.ENOTDIR
	}
	return n.dir.list(n.v, &tree.Asker{Caller: c})
}

// Create makes a name in a directory that is changing.
func (n *synthetic) Create(dir *names.Node, name string) (*names.Node, error) {
	d, ok := n.dir.(changing)
	if !ok {
		return nil, unix.EROFS
	}
	w, err := d.create(n.v, name)
	if err != nil {
		return nil, err
	}
	return n.v.node(dir, name, w), nil
}

// Remove removes a name from a directory that is changing.
func (n *synthetic) Remove(name string) error {
	d, ok := n.dir.(changing)
	if !ok {
		return unix.EROFS
	}
	return d.remove(n.v, name)
}

// Gone drops the references to what it is made of.
func (n *synthetic) Gone() {
	if n.view != nil {
		n.v.tensors.forget(n.view)
	}
	n.drop()
}

// drop gives back the references that the entry has.
func (w *entry) drop() {
	if w.made != nil {
		w.made.drop(1)
	}
	if w.src != nil {
		w.src.Unpin()
	}
}

// withoutWrite is what is left of a mode's permissions for something of type kind that cannot be changed. A
// file may be shown as a directory. Then the permissions to read the file are those to enter the directory.
func withoutWrite(mode, kind uint32) uint32 {
	read := mode & 0o444
	switch {
	case kind != unix.S_IFDIR:
		return read
	case mode&unix.S_IFMT == unix.S_IFDIR:
		return mode & 0o555
	}
	return read | read>>2
}

// Open opens a virtual file.
func (n *synthetic) Open(
	ctx context.Context, _ tree.Caller, flags uint32,
) (names.Opened, content.Mode, error) {
	write := flags&unix.O_ACCMODE != unix.O_RDONLY
	switch {
	case n.query != nil:
		return n.query.open(n.v, write, flags)
	case write || flags&unix.O_TRUNC != 0:
		return nil, 0, unix.EROFS
	case n.view != nil:
		return n.view.open()
	case n.made != nil:
		return n.made.open()
	case n.mode != unix.S_IFREG:
		return nil, 0, unix.ENXIO
	case n.set != nil:
		if !n.set.current() || !n.set.retain() {
			return nil, 0, unix.ESTALE
		}
		return openSet{s: n.set}, content.Cached, nil
	case n.loser != nil:
		return n.loser.open(ctx)
	case n.patch != nil:
		return openPatch{p: n.patch}.open()
	case n.text != nil:
		text, err := n.text(ctx, n.v)
		return openData{data: text}, content.Direct, err
	}
	return openData{data: n.data}, content.Cached, nil
}

// openData is an open file of these bytes.
type openData struct {
	unwritten
	data []byte
}

func (o openData) Close() {}

func (o openData) Read(p []byte, off int64) (int, error) {
	if off >= int64(len(o.data)) {
		return 0, nil
	}
	return copy(p, o.data[off:]), nil
}
