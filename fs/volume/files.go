package volume

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/formats"
	"ckptfs/fs/content"
	"ckptfs/fs/inspect"
	"ckptfs/fs/models"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual"
	"ckptfs/index/runs"
)

// files is the tree for the parts that read it by paths, on the daemon's own account: inspect.Files, and
// those of steps and models.
type files struct{ *Volume }

// openNode makes the bytes of a file or a view readable to the daemon until done is called. size is their
// number when it was opened.
func openNode(n *names.Node) (r io.ReaderAt, size int64, done func(), err error) {
	if w := virtual.ViewOf(n); w != nil {
		if err := w.Use(); err != nil {
			return nil, 0, nil, err
		}
		return w, w.Size(), w.Done, nil
	}
	f := n.File()
	if f == nil {
		return nil, 0, nil, tree.ErrNotRegular
	}
	a, err := n.Attr()
	if err != nil {
		return nil, 0, nil, err
	}
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		return nil, 0, nil, err
	}
	if err := f.VetLocked(); err != nil {
		return nil, 0, nil, err
	}
	if err := f.UseLocked(); err != nil {
		return nil, 0, nil, err
	}
	return f, a.Size, func() {
		f.Lock()
		defer f.Unlock()
		f.DoneLocked()
	}, nil
}

// openPath is openNode of the file at a path.
func (f files) openPath(p string) (r io.ReaderAt, size int64, done func(), err error) {
	n, err := f.resolve(p)
	if err != nil {
		return nil, 0, nil, err
	}
	return openPinned(n)
}

// openPinned makes the bytes of a node readable until done is called, and unpins it then.
func openPinned(n *names.Node) (r io.ReaderAt, size int64, done func(), err error) {
	r, size, closeIt, err := openNode(n)
	if err != nil {
		n.Unpin()
		return nil, 0, nil, err
	}
	return r, size, func() { closeIt(); n.Unpin() }, nil
}

// ReadSmall reads a file of at most so many bytes, packed or not. The error wraps runs.ErrInvalid when it has
// more.
func (f files) ReadSmall(p string, most int64) ([]byte, error) {
	n, err := f.resolve(p)
	if err != nil {
		return nil, err
	}
	return readSmall(n, most)
}

// readSmall is ReadSmall of a node, which it unpins.
func readSmall(n *names.Node, most int64) ([]byte, error) {
	r, size, done, err := openPinned(n)
	if err != nil {
		return nil, err
	}
	defer done()
	if size > most {
		return nil, fmt.Errorf("%d bytes, of at most %d: %w", size, most, runs.ErrInvalid)
	}
	b := make([]byte, size)
	k, err := r.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b[:k], err
}

// Read calls do with the bytes of a file or a view.
func (f files) Read(path string, do func(r io.ReaderAt, size int64) error) error {
	r, size, done, err := f.openPath(path)
	if err != nil {
		return err
	}
	defer done()
	return do(r, size)
}

// stepFiles are the files for package steps, which are read without the network.
type stepFiles struct{ files }

// ReadSmall is files' of a file whose bytes are here.
func (f stepFiles) ReadSmall(p string, most int64) ([]byte, error) {
	n, err := f.here(p)
	if err != nil {
		return nil, err
	}
	return readSmall(n, most)
}

// Read is files' of a file whose bytes are here.
func (f stepFiles) Read(p string, do func(r io.ReaderAt, size int64) error) error {
	n, err := f.here(p)
	if err != nil {
		return err
	}
	r, size, done, err := openPinned(n)
	if err != nil {
		return err
	}
	defer done()
	return do(r, size)
}

// here finds a file, pinned. The error is steps.ErrRemote for one whose bytes are not here.
func (f stepFiles) here(p string) (*names.Node, error) {
	n, err := f.resolve(p)
	if err != nil {
		return nil, err
	}
	is, err := content.IsRemote(n.File())
	if is {
		err = fmt.Errorf("%s: %w", p, steps.ErrRemote)
	}
	if err != nil {
		n.Unpin()
		return nil, err
	}
	return n, nil
}

// Open finds a file, a folder or a view.
func (f files) Open(path string) (inspect.File, error) {
	n, err := f.resolve(path)
	if err != nil {
		return nil, err
	}
	return inspected{f.Volume, n}, nil
}

// maxLinks is how many symbolic links Follow follows, one to the next, as Linux does.
const maxLinks = 40

// Follow finds the file that a symbolic link leads to, within the mount. Links among the folders on the way
// are not followed. The error is ELOOP for too many links, and ENOENT for one that leads out.
func (f files) Follow(p string) (inspect.File, error) {
	for range maxLinks {
		n, err := f.resolve(p)
		if err != nil {
			return nil, err
		}
		if n.File() != nil {
			return inspected{f.Volume, n}, nil
		}
		target, err := n.Readlink()
		n.Unpin()
		if err != nil {
			return nil, err
		}
		if p, err = f.within(path.Dir(p), target); err != nil {
			return nil, err
		}
	}
	return nil, unix.ELOOP
}

// within is the path in the mount that the target of a link in a folder stands for.
func (f files) within(dir, target string) (string, error) {
	if !path.IsAbs(target) {
		p := path.Join(dir, target)
		if p == ".." || strings.HasPrefix(p, "../") {
			return "", unix.ENOENT
		}
		return p, nil
	}
	root := f.mount().point
	if root == "" || !strings.HasPrefix(path.Clean(target), root+"/") {
		return "", unix.ENOENT
	}
	return strings.TrimPrefix(path.Clean(target), root+"/"), nil
}

// Walk calls do with every regular file at or below a path.
func (f files) Walk(ctx context.Context, path string, do func(path string, file inspect.File) error) error {
	return f.walk(ctx, path, func(p string, n *names.Node) error { return do(p, inspected{f.Volume, n}) })
}

// List reads the names of a folder.
func (f files) List(path string) ([]tree.DirEntry, error) {
	n, err := f.resolve(path)
	if err != nil {
		return nil, err
	}
	defer n.Unpin()
	return n.ListQuietly()
}

// inspected is a node as inspect.File.
type inspected struct {
	v *Volume
	n *names.Node
}

func (f inspected) Pin()         { f.n.Pin() }
func (f inspected) Unpin()       { f.n.Unpin() }
func (f inspected) Path() string { return f.n.Path() }

func (f inspected) Info() (inspect.Info, error) {
	a, err := f.n.Attr()
	if err != nil {
		return inspect.Info{}, err
	}
	i := inspect.Info{Size: a.Size, Dir: f.n.IsDir(), Virtual: f.n.IsVirtual(), Regular: f.n.File() != nil,
		Mtime: a.Mtime.Nano()}
	if x := f.n.File(); x != nil {
		x.Lock()
		is := x.StateLocked()
		i.Waits, i.Gen = is.Dirty && !is.Packed(), is.Gen
		x.Unlock()
	}
	if w := virtual.ViewOf(f.n); w != nil {
		i.View = &inspect.View{Source: inspected{f.v, w.Source()}, Format: w.Format(), Only: w.Tensor()}
	}
	return i, nil
}

func (f inspected) Manifest() (cas.Hash, error) {
	if f.n.File() == nil {
		return cas.Hash{}, tree.ErrNotRegular
	}
	f.n.File().Lock()
	defer f.n.File().Unlock()
	if err := f.n.File().LoadLocked(); err != nil {
		return cas.Hash{}, err
	}
	return f.n.File().StateLocked().Record.Manifest, nil
}

func (f inspected) Contents() (*inspect.Contents, error) {
	x := f.n.File()
	if x == nil {
		return nil, tree.ErrNotRegular
	}
	x.Lock()
	defer x.Unlock()
	l, err := x.LayoutLocked()
	if err != nil {
		return nil, err
	}
	is := x.StateLocked()
	c := &inspect.Contents{Layout: l, Resident: !is.Record.Hollow}
	if is.Packed() {
		c.Manifest = is.Record.Manifest
		c.Doc, err = f.v.asm.Manifest(c.Manifest)
	}
	return c, err
}

func (f inspected) Detect() (*formats.Layout, error) {
	r, size, done, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer done()
	return f.n.File().Detect(io.NewSectionReader(r, 0, size), size)
}

func (f inspected) Open() (io.ReaderAt, int64, func(), error) { return openNode(f.n) }

func (f inspected) Ino() uint64 { return f.n.Ino() }

// resolveInode is resolve of a path that inode ino was seen at. ENOENT when another is there; 0: any may be.
func (f files) resolveInode(p string, ino uint64) (*names.Node, error) {
	if n := f.names.Known(ino); n != nil {
		if n.Path() == p {
			return n, nil // as most that were packed just now
		}
		n.Unpin()
	}
	n, err := f.resolve(p)
	if err == nil && ino != 0 && n.Ino() != ino {
		n.Unpin()
		return nil, unix.ENOENT
	}
	return n, err
}

// OpenInode is Open of the inode that was seen at a path.
func (f files) OpenInode(path string, ino uint64) (inspect.File, error) {
	n, err := f.resolveInode(path, ino)
	if err != nil {
		return nil, err
	}
	return inspected{f.Volume, n}, nil
}

// Record is what is recorded of a regular file.
func (f files) Record(path string, ino uint64) (models.Record, error) {
	n, err := f.resolveInode(path, ino)
	if err != nil {
		return models.Record{}, err
	}
	defer n.Unpin()
	if n.File() == nil {
		return models.Record{}, tree.ErrNotRegular
	}
	n.File().Lock()
	defer n.File().Unlock()
	if err := n.File().LoadLocked(); err != nil {
		return models.Record{}, err
	}
	is := n.File().StateLocked()
	return models.Record{
		Manifest: is.Record.Manifest, Mtime: is.Record.Mtime, Waits: is.Dirty && !is.Packed(),
		Remote: is.Record.Remote,
	}, nil
}

// Attribute is the value of an extended attribute.
func (f files) Attribute(path string, ino uint64, name string) ([]byte, error) {
	n, err := f.resolveInode(path, ino)
	if err != nil {
		return nil, err
	}
	defer n.Unpin()
	for room := 64; ; room = min(8*room, maxXattr) { // hardly any file has one
		value := make([]byte, room)
		k, err := f.attribute(n, name, value)
		if err == nil {
			return value[:k], nil
		}
		if err != unix.ERANGE || room == maxXattr {
			return nil, err
		}
	}
}

// attribute is GetXattr, and knows record.ToldAttr, which programs do not see.
func (f files) attribute(n *names.Node, name string, value []byte) (int, error) {
	if name == record.ToldAttr && n.Synth() == nil {
		return n.GetXattr(name, value)
	}
	return f.GetXattr(context.Background(), n, name, value)
}

// Source is the path of the file that a view is made of; of anything else, the path itself.
func (f files) Source(path string) string {
	n, err := f.resolve(path)
	if err != nil {
		return path
	}
	defer n.Unpin()
	if w := virtual.ViewOf(n); w != nil {
		return w.Source().Path()
	}
	return path
}
