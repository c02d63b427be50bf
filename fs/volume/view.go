package volume

import (
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
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// viewIno marks the inode numbers of views. The source's number is below it on every filesystem in use.
const viewIno = 1 << 62

// viewNode is the safetensors file beside a checkpoint. It belongs to one generation of its source's bytes: when those
// change, the name leads to a new node.
type viewNode struct {
	src  *Node
	at   alias // the view's own name; the source may have others
	gen  uint64
	size int64
	npy  *formats.Tensor // of a .npy: its tensor; nil otherwise
	end  int64           // nothing of the source lies behind it that is wanted

	mu   sync.Mutex
	plan *view.View // made at the first open
}

// format is a view's.
func (w *viewNode) format() string {
	if w.npy != nil {
		return "npy"
	}
	return safetensors.Name
}

// underRuns reports whether dir is below runs/, where views appear. v.ns is held.
func (n *Node) underRuns() bool {
	for len(n.names) > 0 && n.names[0].dir != nil {
		a := n.names[0]
		if len(a.dir.names) == 0 || a.dir.names[0].dir == nil {
			return a.name == "runs"
		}
		n = a.dir
	}
	return false
}

func (v *Volume) viewsHere(dir *Node) bool {
	if v.noViews {
		return false
	}
	v.names.ns.RLock()
	defer v.names.ns.RUnlock()
	return dir.underRuns()
}

// lookupView finds the view that dir/name is, with one reference more. ENOENT when it is none.
func (v *Volume) lookupView(dir *Node, name string) (*Node, tree.Attr, error) {
	stem, ok := strings.CutSuffix(name, view.Suffix)
	if !ok || stem == "" || !v.viewsHere(dir) {
		return nil, tree.Attr{}, unix.ENOENT
	}
	for _, ext := range view.Sources {
		src, _, err := v.names.child(dir, stem+ext)
		if err != nil {
			continue
		}
		n := v.viewOf(src, alias{dir, name})
		src.unref(1)
		if n == nil {
			continue
		}
		a, err := v.statView(n)
		if err != nil {
			n.unref(1)
			return nil, tree.Attr{}, err
		}
		return n, a, nil
	}
	return nil, tree.Attr{}, unix.ENOENT
}

// isView reports whether dir/name is a view's name.
func (v *Volume) isView(dir *Node, name string) bool {
	n, _, err := v.lookupView(dir, name)
	if err == nil {
		n.unref(1)
	}
	return err == nil
}

// viewsIn lists the views in dir, given its real names.
func (v *Volume) viewsIn(dir *Node, real []DirEntry) []DirEntry {
	if !v.viewsHere(dir) {
		return nil
	}
	taken := map[string]bool{}
	for _, e := range real {
		if strings.HasSuffix(e.Name, view.Suffix) {
			taken[e.Name] = true
		}
	}
	var out []DirEntry
	for _, ext := range view.Sources {
		for _, e := range real {
			stem, ok := strings.CutSuffix(e.Name, ext)
			if !ok || stem == "" || e.Mode != unix.S_IFREG || taken[stem+view.Suffix] {
				continue
			}
			src, _, err := v.names.child(dir, e.Name)
			if err != nil {
				continue
			}
			name := stem + view.Suffix
			if n := v.viewOf(src, alias{dir, name}); n != nil {
				taken[name] = true
				out = append(out, DirEntry{Name: name, Ino: n.ino, Mode: unix.S_IFREG, View: true})
				n.unref(1)
			}
			src.unref(1)
		}
	}
	return out
}

// viewOf returns the view of src by the name at, with one reference more, or nil if it has none: it holds no tensors, somebody writes
// it, or may by a mapping, or the view was unlinked.
func (v *Volume) viewOf(src *Node, at alias) *Node {
	f := src.file
	if f == nil || v.hidden.has(at) {
		return nil
	}
	f.Lock()
	defer f.Unlock()
	if src.file.LoadLocked() != nil || f.DamageLocked() != nil || f.WritersLocked() > 0 || f.RecordLocked().ViewHidden || src.file.MappedLocked() {
		return nil
	}
	size := f.ViewSizeLocked()
	if size == 0 {
		return nil
	}
	t := v.names.tab
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := src.viewNode; n != nil && n.view.gen == f.GenLocked() && n.view.at == at {
		n.refs++
		return n
	}
	n := &Node{ns: v.names, id: t.newID(), ino: src.ino | viewIno, mode: unix.S_IFREG, keep: -1, refs: 1, dirfd: cachedFd{fd: -1}}
	n.view = &viewNode{src: src, at: at, gen: f.GenLocked(), size: size, end: math.MaxInt64}
	src.refs++
	at.dir.refs++
	src.viewNode = n
	t.byID[n.id] = n
	return n
}

// statView describes a view: its source's owner, mode and times, and its own size.
func (v *Volume) statView(n *Node) (tree.Attr, error) {
	a, err := v.Stat(n.view.src)
	if err != nil {
		return a, err
	}
	a.Ino, a.Size, a.Nlink = n.ino, n.view.size, 1
	a.Blocks = (a.Size + 511) / 512
	a.Settled = false
	return a, nil
}

// setView changes a view's attributes: its source's, but for the size. What is cut is a file: ESTALE makes the kernel look
// the name up again.
func (v *Volume) setView(n *Node, s *tree.SetAttr) (tree.Attr, error) {
	if s.Size != nil {
		if err := v.materialise(n, *s.Size == 0); err != nil {
			return tree.Attr{}, err
		}
		return tree.Attr{}, unix.ESTALE
	}
	if s.KillSUID {
		return v.statView(n)
	}
	if _, err := v.Setattr(n.view.src, s); err != nil {
		return tree.Attr{}, err
	}
	v.content.Kernel.InvalidateData(n.view.src.id, -1, 0) // it knows of the view only
	return v.statView(n)
}

// openView opens a view. For writing, it becomes a real file first, and the caller looks the name up again: ESTALE
// makes the kernel do that by itself.
func (v *Volume) openView(n *Node, flags uint32) (*Handle, error) {
	if flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0 {
		if n.virt != nil {
			return nil, unix.EROFS
		}
		if err := v.materialise(n, flags&unix.O_TRUNC != 0); err != nil {
			return nil, err
		}
		return nil, unix.ESTALE
	}
	if err := v.useView(n); err != nil {
		return nil, err
	}
	n.Pin()
	v.content.Count.Handles.Add(1)
	return &Handle{Node: n, Mode: content.Cached, KeepCache: true}, nil
}

// useView makes a view readable; closeView ends it.
func (v *Volume) useView(n *Node) error {
	w := n.view
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.src.file
	f.Lock()
	defer f.Unlock()
	if f.GenLocked() != w.gen {
		return unix.ESTALE
	}
	if err := w.src.file.OpenSourceLocked(); err != nil {
		return w.src.file.OpenFailed(err)
	}
	f.UseLocked(1)
	if w.plan == nil {
		plan, err := v.planView(w.src)
		if err == nil && plan.Size() != w.size {
			err = fmt.Errorf("the view's size is not what the record says: %w", unix.EIO)
		}
		if err != nil {
			f.UseLocked(-1)
			w.src.file.CloseSourcesLocked()
			return err
		}
		w.plan = plan
	}
	return nil
}

// planView plans the view of an open source. f.mu is held.
func (v *Volume) planView(n *Node) (*view.View, error) {
	l, err := n.file.LayoutLocked()
	if err != nil {
		return nil, err
	}
	return view.Safetensors(l.Regions, l.Tensors)
}

func (v *Volume) closeView(n *Node) {
	f := n.view.src.file
	f.Lock()
	defer f.Unlock()
	left := f.UseLocked(-1)
	n.view.src.file.CloseSourcesLocked()
	if left == 0 {
		n.view.plan.Drop()
	}
}

func (v *Volume) releaseView(h *Handle) {
	v.closeView(h.Node)
	h.Node.unref(1)
}

func (v *Volume) readView(h *Handle, p []byte, off int64) (int, error) {
	w := h.Node.view
	k, err := w.ReadAt(p, off)
	if err == errViewOvertaken {
		v.report(slog.LevelWarn, "a view was read whose source has changed", "path", w.src.Path())
		return 0, unix.ESTALE
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, w.src.file.ReadFailed(off, err)
	}
	v.content.Count.Views.Add(k)
	return k, nil
}

var errViewOvertaken = fmt.Errorf("the view's source has changed: %w", unix.ESTALE)

// ReadAt reads a view that is in use; errViewOvertaken when what was read may be of newer bytes than the view.
func (w *viewNode) ReadAt(p []byte, off int64) (int, error) {
	k, err := w.plan.ReadAt(w.src.file.UpTo(w.end), p, off)
	w.src.file.Lock()
	defer w.src.file.Unlock()
	if w.src.file.GenLocked() != w.gen { // noted before a writer gets the file
		return 0, errViewOvertaken
	}
	return k, err
}

// materialise makes a real file of a view, in its place. It gets the name when it is whole: a kill or a power cut must not
// leave a part of it where the view was.
func (v *Volume) materialise(n *Node, empty bool) error {
	if v.readOnly {
		return unix.EROFS
	}
	at := n.view.at
	st, err := v.Stat(n.view.src)
	if err != nil {
		return err
	}
	by := tree.Caller{UID: st.UID, GID: st.GID}
	node, _, h, err := v.Tmpfile(at.dir, st.Mode, unix.O_WRONLY, by)
	named := err == unix.EOPNOTSUPP
	if named { // the host makes none without a name
		node, _, h, err = v.Create(at.dir, at.name, st.Mode, unix.O_WRONLY, by)
	}
	if err == unix.EEXIST {
		return nil // somebody was faster
	}
	if err != nil {
		return err
	}
	defer node.unref(1)
	defer v.Release(h)
	if !empty {
		if err = v.copyView(n, node); err == nil {
			err = node.file.Sync()
		}
		if err == nil {
			err = v.content.Step("view: name")
		}
	}
	switch {
	case named && err != nil:
		v.Unlink(at.dir, at.name)
	case !named && err == nil:
		if _, err = v.Link(node, at.dir, at.name); err == nil {
			node.unref(1) // nobody looked it up
		} else if err == unix.EEXIST {
			err = nil
		}
	}
	return err
}

func (v *Volume) copyView(n, dst *Node) error {
	if err := v.useView(n); err != nil {
		return err
	}
	defer v.closeView(n)
	dst.file.Lock()
	w, done, err := dst.file.WritableLocked()
	dst.file.Unlock()
	if err != nil {
		return err
	}
	defer done()
	src := io.NewSectionReader(n.view, 0, n.view.size)
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{src}, make([]byte, 1<<20))
	return err
}
