package virtual

import (
	"context"
	"math"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// Again makes the node again that dir/name led to in an earlier process, with one reference more. Whoever has
// it was shown it then: it does not count whether the name still leads there, and whether the source still
// has one. A view of bytes that its source has no more is one whose reads fail with ESTALE, as they did. nil:
// it is made of nothing that lasts, or not as it was.
func (v *Virtual) Again(dir *names.Node, name string, o names.Origin) *names.Node {
	in, ok := dir.Synth().(*synthetic)
	switch {
	case dir.Synth() == nil && o.Src.File() != nil:
		o.Src.Pin()
		return v.beside(names.Alias{Dir: dir, Name: name}, o)
	case !ok || in.dir == nil:
		return nil
	}
	var w entry
	var err error
	switch in.dir.(type) {
	case tensorTree:
		o.Src.Pin()
		w, err = tensorEntry(o.Src)
	case tensorsOf:
		w, err = v.tensorAgain(name, o)
	case artifactDir:
		w = v.wholeAgain(o)
		w.sight = byPath
	case queryRoot:
		w = v.wholeAgain(o)
		w.sight, w.stat = toOwner, owners(unix.S_IFREG|0o400)
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	return v.node(dir, name, w)
}

// beside is the node of a view beside its source. It takes the source's reference.
func (v *Virtual) beside(at names.Alias, o names.Origin) *names.Node {
	return v.o.Names.Synthesise(at.Dir, at.Name, o.Src.Ino()|names.ViewIno, unix.S_IFREG,
		&View{v: v, src: o.Src, at: at, gen: o.Gen, size: o.Size, end: math.MaxInt64})
}

// wholeAgain is a file of all the tensors of a file.
func (v *Virtual) wholeAgain(o names.Origin) entry {
	o.Src.Pin()
	w := &View{v: v, src: o.Src, gen: o.Gen, size: o.Size, end: math.MaxInt64}
	return entry{key: fileKey{o.Src, o.Gen}, src: o.Src, view: w}
}

// tensorAgain is the file of one tensor.
func (v *Virtual) tensorAgain(name string, o names.Origin) (entry, error) {
	w, err := tensorsOf{o.Src}.lookup(context.Background(), v, &tree.Asker{}, name)
	if err == nil && w.view.gen == o.Gen {
		return w, nil
	}
	if err == nil {
		w.src.Unpin()
	}
	f := o.Src.File()
	f.Lock()
	now := f.StateLocked().Gen
	f.Unlock()
	if now <= o.Gen {
		return entry{}, unix.ESTALE // it cannot be read, or looked at
	}
	w = v.wholeAgain(o)
	w.sight, w.view.tensor = inPlace, &view.View{} // it will not be read
	return w, nil
}
