package virtual

import (
	"context"
	"errors"
	"math"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/formats/canonical"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// artifactDir is .ckptfs/artifacts:
//
//	.ckptfs/artifacts/ID.safetensors     the tensors of an id, by name, row-major; equal ids have equal bytes
//
// There is one for each known id of a file that is still there and whose tensors safetensors can express. It
// may be read by the users who may read that file where it lies, its folders included.
type artifactDir struct{}

func (artifactDir) lookup(v *Virtual, name string) (entry, error) {
	stem, _ := strings.CutSuffix(name, view.Suffix)
	id, err := canonical.ParseID(stem)
	if err != nil || len(stem) == len(name) {
		return entry{}, unix.ENOENT
	}
	found, err := v.o.Artifacts.Find(context.Background(), id)
	if err != nil {
		return entry{}, err
	}
	n := v.o.Names.Get(content.NodeID(found.Key())) // found has a reference to it
	w, err := v.tensorView(n, func(f *content.File) bool {
		is := f.StateLocked()
		return v.o.Artifacts.Has(uint64(n.ID()), is.Gen, is.Record.Manifest, id)
	})
	w.stat = func(v *Virtual) (tree.Attr, error) { return statReachable(n) }
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

// statArtifacts lets only the owner of the mount's root list the ids. An id discloses what a file holds, and
// other users may not be allowed to read that file.
func statArtifacts(v *Virtual) (tree.Attr, error) {
	a, err := v.o.Names.Root().Attr()
	a.Mode = unix.S_IFDIR | 0o511
	return a, err
}

func (artifactDir) list(v *Virtual) ([]tree.DirEntry, error) {
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

// statReachable describes a file for a name outside of its folder. A user may read it there if the modes of
// the file and of all folders above it allow that.
func statReachable(n *names.Node) (tree.Attr, error) {
	a, err := n.Attr()
	if err != nil {
		return a, err
	}
	mode := a.Mode & 0o444
	for _, dir := range n.Folders() {
		d, err := dir.Attr()
		dir.Unpin()
		if err != nil {
			mode = 0
			continue
		}
		all := d.Mode&0o011 == 0o011
		if !all {
			mode &^= 0o004
		}
		if !all && (d.GID != a.GID || d.Mode&0o010 == 0) {
			mode &^= 0o040
		}
		if !all && d.UID != a.UID {
			mode &^= 0o400
		}
	}
	a.Mode = unix.S_IFREG | mode
	return a, nil
}
