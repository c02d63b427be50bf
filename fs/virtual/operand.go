package virtual

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/plans"
	"ckptfs/fs/tree"
)

// operand is a file that another is computed of: one generation of its bytes.
type operand struct {
	n    *names.Node // with a reference; of a view, its source
	view *View       // that the file is; nil: it is a file of the tree
	gen  uint64
	size int64
	path string // for people
	as   string // the name in a folder that it was looked for by, where that matters
}

// errNoFile: nothing there is a file, or a view of one. The error that wraps it says why.
var errNoFile = fmt.Errorf("%w: there is no such file", plans.ErrNone)

// operandAt is the file, or the view, that dir/name is now; errNoFile where there is none, or c may not see
// it. A file that a program writes, or may by a mapping, is none. That is told to who may see it alone.
func (v *Virtual) operandAt(c *tree.Asker, s sight, dir *names.Node, name string) (*operand, error) {
	n, _, err := v.o.Names.Child(dir, name)
	if err == unix.ENOENT {
		w, err := v.LookupView(c, dir, name)
		if err != nil {
			return nil, errNoFile
		}
		defer w.Unpin()
		was := ViewOf(w)
		if !v.visible(c, s, was.src) {
			return nil, errNoFile
		}
		was.src.Pin()
		own := &View{v: v, src: was.src, gen: was.gen, size: was.size, end: math.MaxInt64}
		return &operand{was.src, own, was.gen, was.size, dir.Path() + "/" + name, ""}, nil
	}
	if err != nil {
		return nil, err
	}
	if !v.visible(c, s, n) {
		n.Unpin()
		return nil, errNoFile
	}
	o, err := v.operandOf(n)
	if err != nil {
		n.Unpin()
	}
	return o, err
}

// operandsBy are those that find finds by these names: all of them, or none.
func operandsBy(names []string, find func(name string) (*operand, error)) (of []*operand, err error) {
	for _, name := range names {
		o, err := find(name)
		if err != nil {
			for _, o := range of {
				o.drop()
			}
			return nil, fmt.Errorf("%w (%s)", err, name)
		}
		of = append(of, o)
	}
	return of, nil
}

// operandOf is the file that a node is. If there is no error it takes the node's reference.
func (v *Virtual) operandOf(n *names.Node) (*operand, error) {
	f := n.File()
	if f == nil {
		return nil, errNoFile
	}
	content.Closed(f)
	content.Reach(f)
	gen, err := settled(n)
	if err != nil {
		return nil, err
	}
	a, err := n.Attr()
	if err != nil {
		return nil, err
	}
	o := &operand{n, nil, gen, a.Size, n.Path(), ""}
	if !o.current() {
		return nil, fmt.Errorf("%w: a program writes %s", plans.ErrNone, o.path)
	}
	return o, nil
}

// settled is the generation of the bytes of a file that nobody writes.
func settled(n *names.Node) (uint64, error) {
	f := n.File()
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		return 0, f.OpenFailed(err)
	}
	is := f.StateLocked()
	if is.Damage != nil {
		return 0, f.OpenFailed(is.Damage)
	}
	if is.Writers > 0 || f.MappedLocked() {
		return 0, fmt.Errorf("%w: a program writes %s", plans.ErrNone, n.Path())
	}
	return is.Gen, nil
}

// name is the name of the file in its folder.
func (o *operand) name() string {
	if o.as != "" {
		return o.as
	}
	return path.Base(o.path)
}

// operandIn is operandLinked of a name in a folder, if c may see it by its path.
func (v *Virtual) operandIn(c *tree.Asker, dir *names.Node, name string) (*operand, error) {
	return v.operandLinked(c, byPath, dir, name)
}

// drop gives the reference back.
func (o *operand) drop() {
	if o.view != nil {
		o.view.v.tensors.forget(o.view)
	}
	o.n.Unpin()
}

// use makes the file readable until done. ESTALE when it has other bytes by now.
func (o *operand) use() error {
	if o.view != nil {
		return o.view.Use()
	}
	f := o.n.File()
	f.Lock()
	defer f.Unlock()
	if f.StateLocked().Gen != o.gen {
		return unix.ESTALE
	}
	if err := f.UseLocked(); err != nil {
		return f.OpenFailed(err)
	}
	return nil
}

func (o *operand) done() {
	if o.view != nil {
		o.view.Done()
		return
	}
	f := o.n.File()
	f.Lock()
	defer f.Unlock()
	f.DoneLocked()
}

// current reports whether the file has the bytes of its generation.
func (o *operand) current() bool {
	f := o.n.File()
	f.Lock()
	defer f.Unlock()
	return f.StateLocked().Gen == o.gen
}

// ReadAt reads the file while it is in use. The error is the caller's to see: EIO of what cannot be read, and
// ESTALE of what may be newer bytes than the operand's. What a read returned is the operand's only if it is
// still current.
func (o *operand) ReadAt(p []byte, off int64) (n int, err error) {
	if o.view != nil {
		if n, err = o.view.ReadAt(p, off); err == errViewOvertaken {
			return 0, unix.ESTALE
		}
	} else {
		n, err = o.n.File().UpTo(o.size).ReadAt(p, off)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if !o.current() {
			return 0, unix.ESTALE
		}
		return n, o.n.File().ReadFailed(off, err)
	}
	return n, err
}

// all is the file's bytes, of which there are at most so many.
func (o *operand) all(most int64) ([]byte, error) {
	if o.size > most {
		return nil, fmt.Errorf("%w: %s has %d bytes", plans.ErrNone, o.path, o.size)
	}
	if err := o.use(); err != nil {
		return nil, err
	}
	defer o.done()
	p := make([]byte, o.size)
	n, err := o.ReadAt(p, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if !o.current() || int64(n) < o.size {
		return nil, unix.ESTALE
	}
	return p, nil
}
