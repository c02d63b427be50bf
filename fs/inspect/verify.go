package inspect

import (
	"context"
	"io/fs"

	"ckptfs/fs/control"
	"ckptfs/fs/derived"
	"ckptfs/fs/verify"
)

// Verify tells which share of the tensors of the files at or below a follows from those of the packed files
// at or below b. progress may be nil.
func (ins *Inspector) Verify(ctx context.Context, a, b string,
	progress func(control.Progress)) (*control.Verified, error) {
	out := &control.Verified{A: a, B: b, Others: []control.TensorRef{}}
	r := newReach(ins)
	defer r.close()
	var of []*file
	var total, done int64
	err := ins.files.Walk(ctx, a, func(p string, n File) error {
		f, err := r.look(p, n)
		if err == nil && len(f.layout.Tensors) > 0 {
			of, total = append(of, f), total+f.size
		}
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "verify", Path: a, Err: err}
	}
	if len(of) == 0 {
		return nil, &fs.PathError{Op: "verify", Path: a, Err: control.NoData("no tensors are there")}
	}
	var from []*derived.File
	err = ins.files.Walk(ctx, b, func(p string, n File) error {
		f, err := r.look(p, n)
		if err != nil || f.doc == nil || len(f.layout.Tensors) == 0 {
			return err
		}
		for _, x := range of {
			if x.node == f.node { // that it follows from itself says nothing
				return nil
			}
		}
		from = append(from, &derived.File{Path: p, Manifest: f.whole, Doc: f.doc})
		return nil
	})
	if err != nil {
		return nil, &fs.PathError{Op: "verify", Path: b, Err: err}
	}
	if len(from) == 0 {
		return nil, &fs.PathError{Op: "verify", Path: b, Err: control.NoData(
			"no packed file with tensors is there, but what is to be verified: `ckptfs sync` packs the others")}
	}
	v := verify.New(ins.store, from)
	for _, f := range of {
		err := func() error {
			src, end, err := f.open()
			if err != nil {
				return err
			}
			defer end()
			x := &verify.File{Path: f.path, Layout: f.layout, Digests: f.digests, Reader: src}
			return v.Add(ctx, x, out, func(n int64) {
				if done += n; progress != nil {
					progress(control.Progress{DoneBytes: done, TotalBytes: total, Current: f.path})
				}
			})
		}()
		if err != nil {
			return nil, &fs.PathError{Op: "verify", Path: f.path, Err: err}
		}
	}
	verify.End(out)
	return out, nil
}
