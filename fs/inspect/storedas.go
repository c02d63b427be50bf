package inspect

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/fs/derived"
)

// maxStoredAs bounds the tensors of which it is told how they are stored: each takes a look at a record.
const maxStoredAs = 1 << 15

// storedAs says of arrays how they are stored, where that is with the help of other tensors. One in pieces is
// as its first piece is.
func (ins *Inspector) storedAs(ctx context.Context, arrays []array, out []control.Tensor) error {
	type of struct {
		tensors []int // of the file
		told    []int // in out
	}
	files := map[*file]*of{}
	var order []*file
	for i := range arrays {
		if arrays[i].zarr != nil || len(arrays[i].pieces) == 0 {
			continue
		}
		p := &arrays[i].pieces[0]
		if p.f.doc == nil || p.i >= len(p.f.doc.Tensors) {
			continue
		}
		if files[p.f] == nil {
			files[p.f] = &of{}
			order = append(order, p.f)
		}
		files[p.f].tensors, files[p.f].told = append(files[p.f].tensors, p.i), append(files[p.f].told, i)
	}
	others := ins.packedFiles(ctx)
	for _, f := range order {
		packed := &derived.File{Path: f.path, Manifest: f.whole, Doc: f.doc}
		ways, err := derived.Ways(ins.store, packed, files[f].tensors)
		if err != nil {
			return err
		}
		derived.Name(ins.store, packed, ways, others)
		for k, w := range ways {
			if w != nil {
				out[files[f].told[k]].StoredAs = w.Describe()
			}
		}
	}
	return ctx.Err()
}

// packedFiles are all packed files, the latest first. They are looked for when they are asked for.
func (ins *Inspector) packedFiles(ctx context.Context) iter.Seq[*derived.File] {
	type at struct {
		path     string
		manifest cas.Hash
		mtime    int64
	}
	var all []at
	asked := false
	return func(yield func(*derived.File) bool) {
		if !asked {
			asked = true
			// Who asks is told less where something fails, as where the walk ends early.
			_ = ins.files.Walk(ctx, "", func(path string, n File) error {
				h, err := n.Manifest()
				if err != nil || h.IsZero() {
					return nil
				}
				if info, err := n.Info(); err == nil {
					all = append(all, at{path, h, info.Mtime})
				}
				return nil
			})
			slices.SortStableFunc(all, func(a, b at) int {
				return cmp.Or(cmp.Compare(b.mtime, a.mtime), cmp.Compare(a.path, b.path))
			})
		}
		for _, f := range all {
			if ctx.Err() != nil || !yield(&derived.File{Path: f.path, Manifest: f.manifest}) {
				return
			}
		}
	}
}

// Reproduced says from which others a packed file follows; nil: from none. others, unless nil, are the files
// that count, in the order in which they are preferred.
func (ins *Inspector) Reproduced(ctx context.Context, f *derived.File,
	others iter.Seq[*derived.File]) (*control.Reproduction, error) {
	if others == nil {
		others = ins.packedFiles(ctx)
	}
	r, enough, err := ins.reproduced(ctx, f, others)
	if !enough {
		r = nil
	}
	return r, err
}

// reproduced is Reproduced; enough is false where less follows than it takes to say so.
func (ins *Inspector) reproduced(ctx context.Context, f *derived.File, others iter.Seq[*derived.File]) (
	r *control.Reproduction, enough bool, err error) {
	doc, err := ins.store.Manifest(f.Manifest)
	if err != nil {
		return nil, false, err
	}
	f.Doc = doc
	all := make([]int, min(len(doc.Tensors), maxStoredAs))
	for i := range all {
		all[i] = i
	}
	if len(all) < len(doc.Tensors) {
		return nil, false, nil
	}
	ways, err := derived.Ways(ins.store, f, all)
	if err != nil || !slices.ContainsFunc(ways, (*derived.Way).Follows) {
		return nil, false, err
	}
	r, enough = derived.Reproduced(ins.store, f, ways, others)
	return r, enough, ctx.Err()
}

// ReproducedBelow tells which of the packed files at or below a path, of the first few with tensors, follow
// from others, and of the others, how much of them does at most.
func (ins *Inspector) ReproducedBelow(ctx context.Context, p string,
	most int) (all, others []*control.Reproduction, err error) {
	var files []*derived.File
	err = ins.files.Walk(ctx, p, func(path string, n File) error {
		h, err := n.Manifest()
		if err != nil || h.IsZero() || len(files) == most {
			return nil
		}
		if m, err := ins.store.Manifest(h); err == nil && len(m.Tensors) > 0 {
			files = append(files, &derived.File{Path: path, Manifest: h})
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(files, func(a, b *derived.File) int { return cmp.Compare(a.Path, b.Path) })
	packed := ins.packedFiles(ctx)
	for _, f := range files {
		r, enough, err := ins.reproduced(ctx, f, packed)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case err != nil:
		case enough:
			all = append(all, r)
		default:
			others = append(others, cmp.Or(r, &control.Reproduction{Path: f.Path}))
		}
	}
	return all, others, nil
}
