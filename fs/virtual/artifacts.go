package virtual

import (
	"context"
	"errors"
	"math"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/formats/canonical"
	"ckptfs/fs/artifacts"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// artifactDir is .ckptfs/artifacts:
//
//	.ckptfs/artifacts/ID.safetensors     the tensors of an id, by name, row-major; equal ids have equal bytes
//
// There is one for each known id of a file that is still there, that the caller may read where it lies, and
// whose tensors safetensors can express. Its permissions are that file's.
type artifactDir struct{}

func (artifactDir) lookup(ctx context.Context, v *Virtual, c *tree.Asker, name string) (entry, error) {
	stem, _ := strings.CutSuffix(name, view.Suffix)
	id, err := canonical.ParseID(stem)
	if err != nil || len(stem) == len(name) {
		return entry{}, unix.ENOENT
	}
	node := func(f artifacts.File) *names.Node { // f has a reference to it
		return v.o.Names.Get(content.NodeID(f.Key()))
	}
	var found artifacts.File
	if v.visible(c, toOwner, nil) {
		found, err = v.o.Artifacts.Find(ctx, id)
	} else {
		found, err = v.o.Artifacts.FindFor(id, func(f artifacts.File) bool {
			return v.visible(c, byPath, node(f))
		})
	}
	if err != nil {
		return entry{}, err
	}
	n := node(found)
	w, err := v.tensorView(n, func(f *content.File) bool {
		is := f.StateLocked()
		return v.o.Artifacts.Has(uint64(n.ID()), is.Gen, is.Record.Manifest, id)
	})
	w.sight = byPath
	return w, err
}

// tensorView is a safetensors file of the tensors of n. It takes n's reference. ENOENT when n has changed:
// stillLocked, which is called with File.mu held, reports whether it has not.
func (v *Virtual) tensorView(n *names.Node, stillLocked func(f *content.File) bool) (entry, error) {
	f := n.File()
	f.Lock()
	err := f.LoadLocked()
	key := fileKey{n, f.StateLocked().Gen}
	if err == nil && !stillLocked(f) {
		err = unix.ENOENT // written just now
	}
	size := int64(0)
	if err == nil {
		size, err = v.sizeLocked(key)
	}
	f.Unlock()
	if err == nil && size == 0 {
		err = unix.ENOENT
	}
	if err != nil {
		n.Unpin()
		return entry{}, err
	}
	w := &View{v: v, src: n, gen: key.gen, size: size, end: math.MaxInt64}
	return entry{key: key, src: n, view: w}, nil
}

// sizeLocked is the size of a safetensors file of the tensors of a file; 0 when there can be none. The file's
// File.mu is held.
func (v *Virtual) sizeLocked(key fileKey) (int64, error) {
	if x := v.tensors.find(sizeKey(key)); x != nil {
		return x.size, nil
	}
	l, err := key.src.File().LayoutLocked()
	if err != nil {
		return 0, err
	}
	x := &found{key: sizeKey(key), bytes: 256}
	switch plan, err := view.Safetensors(l.Regions, l.Tensors); {
	case err == nil:
		x.size = plan.Size()
	case !errors.Is(err, view.ErrNoView):
		return 0, err
	}
	v.tensors.keep(x)
	return x.size, nil
}

// list lists the ids for the daemon's user. An id discloses what a file holds, and to look for each whether
// the caller may read one of its files would take long.
func (artifactDir) list(v *Virtual, c *tree.Asker) ([]tree.DirEntry, error) {
	if !v.visible(c, toOwner, nil) {
		return nil, unix.EACCES
	}
	var out []tree.DirEntry
	last := ""
	err := v.o.Artifacts.Each(func(id canonical.ID) error {
		if name := id.String() + view.Suffix; name != last {
			out = append(out, tree.DirEntry{Name: name, Mode: unix.S_IFREG})
			last = name
		}
		return nil
	})
	return out, err
}
