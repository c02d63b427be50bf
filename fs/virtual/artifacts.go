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
	l, err := n.File().LayoutLocked()
	gen := f.StateLocked().Gen
	if err == nil && !stillLocked(f) {
		err = unix.ENOENT // written just now
	}
	f.Unlock()
	var plan *view.View
	if err == nil {
		plan, err = view.Safetensors(l.Regions, l.Tensors)
	}
	if err != nil {
		n.Unpin()
		if errors.Is(err, view.ErrNoView) {
			err = unix.ENOENT
		}
		return entry{}, err
	}
	w := &View{v: v, src: n, gen: gen, size: plan.Size(), end: math.MaxInt64, plan: plan}
	return entry{key: fileKey{n, gen}, src: n, view: w}, nil
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
