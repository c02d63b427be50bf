package virtual

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"weak"

	"golang.org/x/sys/unix"

	"ckptfs/cas/locks"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/steps"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// View is a file that is made of another's bytes, such as the safetensors file beside a checkpoint. It
// belongs to one generation of its source's bytes: when those change, the name leads to a new node.
type View struct {
	v    *Virtual
	src  *names.Node
	at   names.Alias // the view's own name, if it is beside its source, which may have other names
	gen  uint64      // of the source's bytes
	size int64
	npy  *formats.Tensor // of a .npy: its tensor; nil otherwise
	end  int64           // the view needs no bytes of the source from here on

	mu     locks.Mutex[viewLock]
	tensor *view.View              // of a .npy: its plan, which is small
	plan   weak.Pointer[view.View] // of any other: what Virtual.tensors keeps of it
	asked  time.Time               // when that was told that it is in use
	uses   int                     // that are not Done
}

// viewed is the view that a synthetic node is.
func (w *View) viewed() *View { return w }

// ViewOf is the view that a node is, or nil.
func ViewOf(n *names.Node) *View {
	if s, ok := n.Synth().(interface{ viewed() *View }); ok {
		return s.viewed()
	}
	return nil
}

// Source is the node of the file that the view is made of.
func (w *View) Source() *names.Node { return w.src }

// Tensor is the only tensor of a view that has one, as a .npy; else nil.
func (w *View) Tensor() *formats.Tensor { return w.npy }

// Format is what the view's bytes are: safetensors or npy.
func (w *View) Format() string {
	if w.npy != nil {
		return "npy"
	}
	return safetensors.Name
}

// viewsHere reports whether views appear in a directory.
func (v *Virtual) viewsHere(dir *names.Node) bool {
	return !v.o.Off && dir.Below(steps.Dir)
}

// LookupView finds the view that dir/name is, with one reference more. ENOENT when it is none that the caller
// may see.
func (v *Virtual) LookupView(c *tree.Asker, dir *names.Node, name string) (*names.Node, error) {
	stem, ok := strings.CutSuffix(name, view.Suffix)
	if !ok || stem == "" || !v.viewsHere(dir) {
		return nil, unix.ENOENT
	}
	for i, ext := range view.Sources {
		if !dir.MayHold(1 << i) {
			continue // a folder that was made just now is told of its names: a look at the disk takes long
		}
		src, _, err := v.o.Names.Child(dir, stem+ext)
		if err != nil {
			continue
		}
		if src.File() != nil {
			content.Reach(src.File())
		}
		n := v.viewFor(c, src, names.Alias{Dir: dir, Name: name})
		src.Unpin()
		if n != nil {
			return n, nil
		}
	}
	return nil, unix.ENOENT
}

// IsView reports whether dir/name is a view's name.
func (v *Virtual) IsView(dir *names.Node, name string) bool {
	n, err := v.LookupView(&tree.Asker{}, dir, name)
	if err == nil {
		n.Unpin()
	}
	return err == nil
}

// Views lists the views in dir that a caller may see, given its real names.
func (v *Virtual) Views(c *tree.Asker, dir *names.Node, real []tree.DirEntry) []tree.DirEntry {
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
			src, _, err := v.o.Names.Child(dir, e.Name)
			if err != nil {
				continue
			}
			name := stem + view.Suffix
			if n := v.viewFor(c, src, names.Alias{Dir: dir, Name: name}); n != nil {
				taken[name] = true
				out = append(out, tree.DirEntry{Name: name, Ino: n.Ino(), Mode: unix.S_IFREG, View: true})
				n.Unpin()
			}
			src.Unpin()
		}
	}
	return out
}

// viewFor is viewOf for a caller.
func (v *Virtual) viewFor(c *tree.Asker, src *names.Node, at names.Alias) *names.Node {
	if src.File() == nil || !v.visible(c, inPlace, src) {
		return nil
	}
	content.Closed(src.File())
	return v.viewOf(src, at)
}

// viewOf returns the view of src by the name at, with one reference more. It is nil if src holds no tensors,
// while a program writes it or may by a mapping, and if the view was unlinked.
func (v *Virtual) viewOf(src *names.Node, at names.Alias) *names.Node {
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
	return v.beside(at, names.Origin{Src: src, Gen: is.Gen, Size: size})
}

// Key is the identity of the view: one generation of its source's bytes.
func (w *View) Key() any { return fileKey{w.src, w.gen} }

// Traits are those of a view beside its source.
func (w *View) Traits() names.Traits { return names.Traits{View: true} }

// Origin is one generation of its source's bytes.
func (w *View) Origin() names.Origin { return names.Origin{Src: w.src, Gen: w.gen, Size: w.size} }

// Stat describes a view: its source's owner, mode and times.
func (w *View) Stat() (tree.Attr, error) { return w.src.Attr() }

// Size is the view's size in bytes.
func (w *View) Size() int64 { return w.size }

// Setattr changes a view's attributes, which are its source's but for the size. To truncate a view makes a
// real file of it. Then ESTALE makes the kernel look the name up again.
func (w *View) Setattr(s *tree.SetAttr) error {
	v := w.v
	switch {
	case v.o.ReadOnly:
		return unix.EROFS
	case s.Size != nil:
		var c tree.Caller
		if s.By != nil {
			c = *s.By
		}
		if err := v.materialise(c, w, *s.Size == 0); err != nil {
			return err
		}
		return unix.ESTALE
	case s.KillSUID:
		return nil
	}
	if _, err := w.src.SetAttr(s); err != nil {
		return err
	}
	v.o.Files.Kernel().InvalidateData(w.src.ID(), -1, 0) // the kernel knows of the view only
	return nil
}

// Open opens a view. To write, it makes a real file of the view first. Then ESTALE makes the kernel look the
// name up again.
func (w *View) Open(_ context.Context, c tree.Caller, flags uint32) (names.Opened, content.Mode, error) {
	if flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0 {
		if err := w.v.materialise(c, w, flags&unix.O_TRUNC != 0); err != nil {
			return nil, 0, err
		}
		return nil, 0, unix.ESTALE
	}
	return w.open()
}

// open opens a view for reading.
func (w *View) open() (names.Opened, content.Mode, error) {
	if err := w.Use(); err != nil {
		return nil, 0, err
	}
	return openView{w: w}, content.Cached, nil
}

// Gone drops the reference to the source.
func (w *View) Gone() {
	w.v.tensors.forget(w)
	w.src.Unpin()
}

// A view is no directory and no link.

func (w *View) Readlink(tree.Caller) (string, error) { return "", unix.EINVAL }
func (w *View) Lookup(context.Context, tree.Caller, *names.Node, string) (*names.Node, error) {
	return nil, unix.ENOTDIR
}
func (w *View) List(tree.Caller) ([]tree.DirEntry, error)       { return nil, unix.ENOTDIR }
func (w *View) Create(*names.Node, string) (*names.Node, error) { return nil, unix.ENOTDIR }
func (w *View) Remove(string) error                             { return unix.ENOTDIR }

// openView is an open view.
type openView struct {
	unwritten
	w *View
}

// unwritten is the half of an Opened that is only read.
type unwritten struct{}

func (unwritten) Write([]byte, int64) (int, error) { return 0, unix.EBADF }
func (unwritten) Flush(context.Context) error      { return nil }

// Use makes the view readable until Done. ESTALE when its source has other bytes by now.
func (w *View) Use() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.src.File()
	f.Lock()
	defer f.Unlock()
	if f.StateLocked().Gen != w.gen {
		return unix.ESTALE
	}
	if err := f.UseLocked(); err != nil {
		return f.OpenFailed(err)
	}
	if _, err := w.planLocked(); err != nil {
		f.DoneLocked()
		return err
	}
	w.uses++
	return nil
}

// planLocked is the view's plan. A plan of many tensors takes much memory, so a bounded number of them is
// kept, and one that was dropped is made again. View.mu and the source's File.mu are held, and the source is
// of the view's generation.
func (w *View) planLocked() (*view.View, error) {
	w.mu.AssertHeld()
	if w.tensor != nil {
		return w.tensor, nil
	}
	if plan := w.plan.Value(); plan != nil {
		return plan, nil
	}
	l, err := w.src.File().LayoutLocked()
	if err != nil {
		return nil, err
	}
	plan, err := view.Safetensors(l.Regions, l.Tensors)
	if err == nil && plan.Size() != w.size {
		err = fmt.Errorf("the view's size is not what the record says: %w", unix.EIO)
	}
	if err != nil {
		return nil, err
	}
	w.plan = weak.Make(plan)
	w.v.tensors.forget(w)
	w.v.tensors.keep(&found{key: w, bytes: plan.Memory(), plan: plan})
	return plan, nil
}

// planNow is planLocked of a view in use; errViewOvertaken when its source has other bytes by now.
func (w *View) planNow() (*view.View, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tensor != nil {
		return w.tensor, nil
	}
	if plan := w.plan.Value(); plan != nil {
		const often = time.Second
		if now := time.Now(); now.Sub(w.asked) > often {
			w.asked = now
			w.v.tensors.find(w)
		}
		return plan, nil
	}
	f := w.src.File()
	f.Lock()
	defer f.Unlock()
	if f.StateLocked().Gen != w.gen {
		return nil, errViewOvertaken
	}
	return w.planLocked()
}

// Done ends one Use. The last one frees the memory that reads left behind.
func (w *View) Done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.src.File()
	f.Lock()
	defer f.Unlock()
	f.DoneLocked()
	if w.uses--; w.uses == 0 {
		if w.tensor != nil {
			w.tensor.Drop()
		} else if plan := w.plan.Value(); plan != nil {
			plan.Drop()
		}
	}
}

// Close ends the use of the source.
func (o openView) Close() { o.w.Done() }

// Read reads a view; ESTALE when what was read may be of newer bytes than the view.
func (o openView) Read(p []byte, off int64) (int, error) {
	w := o.w
	k, err := w.ReadAt(p, off)
	if err == errViewOvertaken {
		w.v.o.Report(slog.LevelWarn, "a view was read whose source has changed", "path", w.src.Path())
		return 0, unix.ESTALE
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, w.src.File().ReadFailed(off, err)
	}
	w.v.o.Files.Count.Views.Add(k)
	return k, nil
}

var errViewOvertaken = fmt.Errorf("the view's source has changed: %w", unix.ESTALE)

// ReadAt reads a view that is in use; errViewOvertaken when what was read may be of newer bytes than the
// view.
func (w *View) ReadAt(p []byte, off int64) (int, error) {
	plan, err := w.planNow()
	if err != nil {
		return 0, err
	}
	k, err := plan.ReadAt(w.src.File().UpTo(w.end), p, off)
	w.src.File().Lock()
	defer w.src.File().Unlock()
	if w.src.File().StateLocked().Gen != w.gen { // noted before a writer gets the file
		return 0, errViewOvertaken
	}
	return k, err
}

// materialise makes a real file of a view, which takes the view's name. It gets the name when it is whole: a
// kill or a power cut must not leave a part of a file there. EACCES when the caller may not do that.
func (v *Virtual) materialise(c tree.Caller, w *View, empty bool) error {
	if v.o.ReadOnly {
		return unix.EROFS
	}
	at := w.at
	st, err := w.src.Attr()
	if err != nil {
		return err
	}
	if !mayReplace(c, at.Dir, st.UID) {
		return unix.EACCES
	}
	by := tree.Caller{UID: st.UID, GID: st.GID}
	made, err := v.o.Names.MakeUnnamed(at.Dir, st.Mode, unix.O_WRONLY, by)
	named := err == unix.EOPNOTSUPP
	if named { // the host makes none without a name
		made, err = v.o.Names.MakeFile(at.Dir, at.Name, st.Mode, unix.O_WRONLY, by)
	}
	if err == unix.EEXIST {
		return nil // another handle was faster
	}
	if err != nil {
		return err
	}
	h, err := made.Open(unix.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer made.Node.Unpin()
	defer h.Release()
	if !empty {
		if err = v.copyView(w, made.Node); err == nil {
			err = made.Node.File().Sync()
		}
		if err == nil {
			err = v.o.Files.Step("view: name")
		}
	}
	switch {
	case named && err != nil:
		v.o.Remove(at.Dir, at.Name)
	case !named && err == nil:
		if _, err = v.o.Names.Link(made.Node, at.Dir, at.Name); err == nil {
			made.Node.Unpin() // it was not looked up
		} else if err == unix.EEXIST {
			err = nil
		}
	}
	return err
}

// mayReplace reports whether a caller may make a name in a folder, in the place of one that an owner has.
func mayReplace(c tree.Caller, dir *names.Node, owner uint32) bool {
	a, err := dir.Attr()
	by := tree.Asker{Caller: c}
	sticky := a.Mode&unix.S_ISVTX != 0 && c.UID != 0 && c.UID != a.UID && c.UID != owner
	return err == nil && !sticky && by.Passes(tree.GuardOf(&a, tree.MayWrite|tree.MayEnter))
}

func (v *Virtual) copyView(w *View, dst *names.Node) error {
	if err := w.Use(); err != nil {
		return err
	}
	defer w.Done()
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
