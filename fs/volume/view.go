package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// viewNode is a file that is made of another's bytes, such as the safetensors file beside a checkpoint. It belongs to one
// generation of its source's bytes: when those change, the name leads to a new node.
type viewNode struct {
	v    *Volume
	src  *names.Node
	at   names.Alias // the view's own name, of one beside its source; that may have others
	gen  uint64
	size int64
	npy  *formats.Tensor // of a .npy: its tensor; nil otherwise
	end  int64           // nothing of the source lies behind it that is wanted

	mu   sync.Mutex
	plan *view.View // made at the first open
}

// made is the view that a synthetic node is.
func (w *viewNode) made() *viewNode { return w }

// asView is the view that a node is, or nil.
func asView(n *names.Node) *viewNode {
	if s, ok := n.Synth().(interface{ made() *viewNode }); ok {
		return s.made()
	}
	return nil
}

// format is a view's.
func (w *viewNode) format() string {
	if w.npy != nil {
		return "npy"
	}
	return safetensors.Name
}

func (v *Volume) viewsHere(dir *names.Node) bool {
	if v.noViews {
		return false
	}
	return dir.Below(steps.Dir)
}

// lookupView finds the view that dir/name is, with one reference more. ENOENT when it is none.
func (v *Volume) lookupView(dir *names.Node, name string) (*names.Node, error) {
	stem, ok := strings.CutSuffix(name, view.Suffix)
	if !ok || stem == "" || !v.viewsHere(dir) {
		return nil, unix.ENOENT
	}
	for _, ext := range view.Sources {
		src, _, err := v.names.Child(dir, stem+ext)
		if err != nil {
			continue
		}
		n := v.viewOf(src, names.Alias{Dir: dir, Name: name})
		src.Unpin()
		if n != nil {
			return n, nil
		}
	}
	return nil, unix.ENOENT
}

// isView reports whether dir/name is a view's name.
func (v *Volume) isView(dir *names.Node, name string) bool {
	n, err := v.lookupView(dir, name)
	if err == nil {
		n.Unpin()
	}
	return err == nil
}

// viewsIn lists the views in dir, given its real names.
func (v *Volume) viewsIn(dir *names.Node, real []tree.DirEntry) []tree.DirEntry {
	if !v.viewsHere(dir) {
		return nil
	}
	taken := map[string]bool{}
	for _, e := range real {
		if strings.HasSuffix(e.Name, view.Suffix) {
			taken[e.Name] = true
		}
	}
	var out []tree.DirEntry
	for _, ext := range view.Sources {
		for _, e := range real {
			stem, ok := strings.CutSuffix(e.Name, ext)
			if !ok || stem == "" || e.Mode != unix.S_IFREG || taken[stem+view.Suffix] {
				continue
			}
			src, _, err := v.names.Child(dir, e.Name)
			if err != nil {
				continue
			}
			name := stem + view.Suffix
			if n := v.viewOf(src, names.Alias{Dir: dir, Name: name}); n != nil {
				taken[name] = true
				out = append(out, tree.DirEntry{Name: name, Ino: n.Ino(), Mode: unix.S_IFREG, View: true})
				n.Unpin()
			}
			src.Unpin()
		}
	}
	return out
}

// viewOf returns the view of src by the name at, with one reference more, or nil if it has none: it holds no tensors, somebody writes
// it, or may by a mapping, or the view was unlinked.
func (v *Volume) viewOf(src *names.Node, at names.Alias) *names.Node {
	f := src.File()
	if f == nil || v.hidden.has(at) {
		return nil
	}
	f.Lock()
	defer f.Unlock()
	if f.LoadLocked() != nil {
		return nil
	}
	is := f.StateLocked()
	if is.Damage != nil || is.Writers > 0 || is.Record.ViewHidden || f.MappedLocked() {
		return nil
	}
	size := f.ViewSizeLocked()
	if size == 0 {
		return nil
	}
	src.Pin()
	return v.names.Synthesise(at.Dir, at.Name, src.Ino()|names.ViewIno, unix.S_IFREG,
		&viewNode{v: v, src: src, at: at, gen: is.Gen, size: size, end: math.MaxInt64})
}

// Key tells one generation of a source from another.
func (w *viewNode) Key() any { return fileKey{w.src, w.gen} }

// Traits are those of a view beside its source.
func (w *viewNode) Traits() names.Traits { return names.Traits{View: true} }

// Stat describes a view: its source's owner, mode and times.
func (w *viewNode) Stat() (tree.Attr, error) { return w.v.Stat(w.src) }

// Size is its own.
func (w *viewNode) Size() int64 { return w.size }

// Setattr changes a view's attributes: its source's, but for the size. What is cut is a file: ESTALE makes the kernel look
// the name up again.
func (w *viewNode) Setattr(s *tree.SetAttr) error {
	v := w.v
	switch {
	case v.readOnly:
		return unix.EROFS
	case s.Size != nil:
		if err := v.materialise(w, *s.Size == 0); err != nil {
			return err
		}
		return unix.ESTALE
	case s.KillSUID:
		return nil
	}
	if _, err := v.Setattr(w.src, s); err != nil {
		return err
	}
	v.content.Kernel.InvalidateData(w.src.ID(), -1, 0) // it knows of the view only
	return nil
}

// Open opens a view. For writing, it becomes a real file first, and the caller looks the name up again: ESTALE
// makes the kernel do that by itself.
func (w *viewNode) Open(flags uint32) (names.Opened, content.Mode, error) {
	if flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0 {
		if err := w.v.materialise(w, flags&unix.O_TRUNC != 0); err != nil {
			return nil, 0, err
		}
		return nil, 0, unix.ESTALE
	}
	return w.open()
}

// open opens a view for reading.
func (w *viewNode) open() (names.Opened, content.Mode, error) {
	if err := w.v.useView(w); err != nil {
		return nil, 0, err
	}
	return openView{w: w}, content.Cached, nil
}

// Gone takes the source's reference back.
func (w *viewNode) Gone() { w.src.Unpin() }

// A view is no directory and no link.

func (w *viewNode) Readlink() (string, error)                       { return "", unix.EINVAL }
func (w *viewNode) Lookup(*names.Node, string) (*names.Node, error) { return nil, unix.ENOTDIR }
func (w *viewNode) List() ([]tree.DirEntry, error)                  { return nil, unix.ENOTDIR }
func (w *viewNode) Create(*names.Node, string) (*names.Node, error) { return nil, unix.ENOTDIR }
func (w *viewNode) Remove(string) error                             { return unix.ENOTDIR }

// openView is an open view.
type openView struct {
	unwritten
	w *viewNode
}

// unwritten is the half of an Opened that is only read.
type unwritten struct{}

func (unwritten) Write([]byte, int64) (int, error) { return 0, unix.EBADF }
func (unwritten) Flush(context.Context) error      { return nil }

// useView makes a view readable; closeView ends it.
func (v *Volume) useView(w *viewNode) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.src.File()
	f.Lock()
	defer f.Unlock()
	if f.StateLocked().Gen != w.gen {
		return unix.ESTALE
	}
	if err := w.src.File().OpenSourceLocked(); err != nil {
		return w.src.File().OpenFailed(err)
	}
	f.UseLocked(1)
	if w.plan == nil {
		plan, err := v.planView(w.src)
		if err == nil && plan.Size() != w.size {
			err = fmt.Errorf("the view's size is not what the record says: %w", unix.EIO)
		}
		if err != nil {
			f.UseLocked(-1)
			w.src.File().CloseSourcesLocked()
			return err
		}
		w.plan = plan
	}
	return nil
}

// planView plans the view of an open source. f.mu is held.
func (v *Volume) planView(n *names.Node) (*view.View, error) {
	l, err := n.File().LayoutLocked()
	if err != nil {
		return nil, err
	}
	return view.Safetensors(l.Regions, l.Tensors)
}

func (v *Volume) closeView(w *viewNode) {
	f := w.src.File()
	f.Lock()
	defer f.Unlock()
	left := f.UseLocked(-1)
	f.CloseSourcesLocked()
	if left == 0 {
		w.plan.Drop()
	}
}

// Close ends the use of the source.
func (o openView) Close() { o.w.v.closeView(o.w) }

// Read reads a view; ESTALE when what was read may be of newer bytes than the view.
func (o openView) Read(p []byte, off int64) (int, error) {
	w := o.w
	k, err := w.ReadAt(p, off)
	if err == errViewOvertaken {
		w.v.report(slog.LevelWarn, "a view was read whose source has changed", "path", w.src.Path())
		return 0, unix.ESTALE
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, w.src.File().ReadFailed(off, err)
	}
	w.v.content.Count.Views.Add(k)
	return k, nil
}

var errViewOvertaken = fmt.Errorf("the view's source has changed: %w", unix.ESTALE)

// ReadAt reads a view that is in use; errViewOvertaken when what was read may be of newer bytes than the view.
func (w *viewNode) ReadAt(p []byte, off int64) (int, error) {
	k, err := w.plan.ReadAt(w.src.File().UpTo(w.end), p, off)
	w.src.File().Lock()
	defer w.src.File().Unlock()
	if w.src.File().StateLocked().Gen != w.gen { // noted before a writer gets the file
		return 0, errViewOvertaken
	}
	return k, err
}

// materialise makes a real file of a view, in its place. It gets the name when it is whole: a kill or a power cut must not
// leave a part of it where the view was.
func (v *Volume) materialise(w *viewNode, empty bool) error {
	if v.readOnly {
		return unix.EROFS
	}
	at := w.at
	st, err := v.Stat(w.src)
	if err != nil {
		return err
	}
	by := tree.Caller{UID: st.UID, GID: st.GID}
	node, _, h, err := v.Tmpfile(at.Dir, st.Mode, unix.O_WRONLY, by)
	named := err == unix.EOPNOTSUPP
	if named { // the host makes none without a name
		node, _, h, err = v.Create(at.Dir, at.Name, st.Mode, unix.O_WRONLY, by)
	}
	if err == unix.EEXIST {
		return nil // somebody was faster
	}
	if err != nil {
		return err
	}
	defer node.Unpin()
	defer v.Release(h)
	if !empty {
		if err = v.copyView(w, node); err == nil {
			err = node.File().Sync()
		}
		if err == nil {
			err = v.content.Step("view: name")
		}
	}
	switch {
	case named && err != nil:
		v.Unlink(at.Dir, at.Name)
	case !named && err == nil:
		if _, err = v.Link(node, at.Dir, at.Name); err == nil {
			node.Unpin() // nobody looked it up
		} else if err == unix.EEXIST {
			err = nil
		}
	}
	return err
}

func (v *Volume) copyView(w *viewNode, dst *names.Node) error {
	if err := v.useView(w); err != nil {
		return err
	}
	defer v.closeView(w)
	dst.File().Lock()
	to, done, err := dst.File().WritableLocked()
	dst.File().Unlock()
	if err != nil {
		return err
	}
	defer done()
	src := io.NewSectionReader(w, 0, w.size)
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{src}, make([]byte, 1<<20))
	return err
}
