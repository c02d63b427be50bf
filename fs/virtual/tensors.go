package virtual

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// tensorTree is a directory of the tree as it is shown below .ckptfs/tensors. It has the same directories and
// symbolic links. Each regular file, and each view, is a directory there, with a file TENSOR.npy for each of
// its tensors.
//
//	.ckptfs/tensors/runs/a/7/model.pt/layer1.weight.npy
//
// NumPy maps these files (np.load(path, mmap_mode="r")). Package npy specifies how types are written that
// NumPy lacks. A read fetches only the bytes of that tensor, also if the file is evicted. A file has no
// tensors if no parser knows it, while a program writes it, and while one may write it by a mapping.
//
// A tensor's name is the one that `ckptfs show` prints. '/', '%', 0x7f, bytes below 0x20 and bytes that are
// no UTF-8 are escaped as %XX, upper-case. A name that is longer than 255 bytes then, with its suffix, is
// cut: its first 200 bytes or fewer, "%~", the first 8 bytes of the SHA-256 of the tensor's name in
// hexadecimal, and the suffix.
//
// Permissions are the tree's, without those to write. A user who may read a file may enter its directory.
type tensorTree struct{ src *names.Node }

func (d tensorTree) lookup(_ context.Context, v *Virtual, c *tree.Asker, name string) (entry, error) {
	src, _, err := v.o.Names.Child(d.src, name)
	if err == unix.ENOENT {
		var w *names.Node
		if w, err = v.LookupView(c, d.src, name); err == nil {
			src = ViewOf(w).src
			src.Pin()
			w.Unpin()
		}
	}
	if err != nil {
		return entry{}, err
	}
	return tensorEntry(src)
}

// tensorEntry is what a name of the tree that leads to src is in a tensorTree. It takes src's reference.
func tensorEntry(src *names.Node) (entry, error) {
	out := entry{key: src, src: src}
	switch src.Type() {
	case unix.S_IFDIR:
		out.dir = tensorTree{src}
	case unix.S_IFREG:
		out.dir = tensorsOf{src}
	case unix.S_IFLNK:
		out.link = func(*Virtual, *tree.Asker) (string, error) { return src.Readlink() }
	default:
		src.Unpin()
		return entry{}, unix.ENOENT
	}
	return out, nil
}

func (d tensorTree) list(v *Virtual, _ *tree.Asker) ([]tree.DirEntry, error) {
	real, err := d.src.ListQuietly()
	if err != nil {
		return nil, err
	}
	var out []tree.DirEntry
	for _, e := range real {
		switch {
		case e.Name == "." || e.Name == "..":
			continue
		case e.Mode == unix.S_IFREG:
			e.Mode = unix.S_IFDIR
		case e.Mode != unix.S_IFDIR && e.Mode != unix.S_IFLNK:
			continue
		}
		out = append(out, tree.DirEntry{Name: e.Name, Mode: e.Mode})
	}
	return out, nil
}

// tensorsOf is the tensors of a file.
type tensorsOf struct{ src *names.Node }

// fileKey is the identity of a file that is made of another's bytes: one generation of these.
type fileKey struct {
	src *names.Node
	gen uint64
}

func (d tensorsOf) lookup(_ context.Context, v *Virtual, c *tree.Asker, name string) (entry, error) {
	if !v.visible(c, inPlace, d.src) {
		return entry{}, unix.ENOENT
	}
	x, err := v.tensorsNamed(d.src, name)
	if err != nil {
		return entry{}, err
	}
	i := x.find(name)
	if i < 0 {
		return entry{}, unix.ENOENT
	}
	t := &x.layout.Tensors[i]
	end := int64(0)
	if t.Region >= 0 {
		end = x.layout.Regions[t.Region].Off + x.layout.Regions[t.Region].Len
	}
	plan, err := view.Npy(x.layout.Regions, t)
	if err != nil {
		return entry{}, unix.ENOENT
	}
	d.src.Pin()
	own := *t // a node may be known for long: it is not to hold all of the index
	own.Name, own.Shape, own.Stride = strings.Clone(t.Name), slices.Clone(t.Shape), slices.Clone(t.Stride)
	t = &own
	return entry{
		key: fileKey{d.src, x.gen}, src: d.src, sight: inPlace,
		view: &View{v: v, src: d.src, gen: x.gen, size: plan.Size(), end: end, npy: t, tensor: plan},
	}, nil
}

func (d tensorsOf) list(v *Virtual, c *tree.Asker) ([]tree.DirEntry, error) {
	if !v.visible(c, inPlace, d.src) {
		return nil, unix.EACCES
	}
	x, err := v.tensorsOf(d.src)
	if err != nil {
		return nil, err
	}
	out := make([]tree.DirEntry, 0, len(x.layout.Tensors))
	for i := range x.layout.Tensors {
		if name := view.TensorFile(x.layout.Tensors[i].Name); x.find(name) == i {
			out = append(out, tree.DirEntry{Name: name, Mode: unix.S_IFREG})
		}
	}
	return out, nil
}
