package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
)

// Find lists the tensors of the store whose content has a hash that begins so, or that of a tensor of a file.
func (ins *Inspector) Find(ctx context.Context, o control.FindOptions) (*control.Found, error) {
	hash := strings.ToLower(o.Hash)
	if o.Path != "" {
		var err error
		if hash, err = ins.contentOf(ctx, o.Path, o.Tensor); err != nil {
			return nil, err
		}
	} else if len(hash) < 8 || len(hash) > 64 || strings.Trim(hash, "0123456789abcdef") != "" {
		return nil, control.Invalid("hash %q: 8 to 64 hexadecimal digits are needed", o.Hash)
	}
	out := &control.Found{Hash: hash, Tensors: []control.TensorRef{}}
	err := ins.files.Walk(ctx, "", func(p string, n File) error {
		if h, err := n.Manifest(); err != nil || h.IsZero() {
			return nil
		}
		f, err := ins.fileOf(p, n)
		if err != nil {
			return nil // damaged or gone, and not what was asked about
		}
		for i, d := range f.digests {
			if !d.IsZero() && strings.HasPrefix(d.String(), hash) {
				r := refOf(f.path, &f.layout.Tensors[i])
				r.Hash = d.String()
				out.Tensors = append(out.Tensors, r)
			}
		}
		return nil
	})
	slices.SortStableFunc(out.Tensors, func(a, b control.TensorRef) int {
		return cmp.Compare(a.File, b.File)
	})
	return out, err
}

// contentOf is the hash of a tensor's content.
func (ins *Inspector) contentOf(ctx context.Context, p, tensor string) (string, error) {
	r := newReach(ins)
	defer r.close()
	fail := func(err error) (string, error) { return "", &fs.PathError{Op: "find", Path: p, Err: err} }
	c, err := r.at(ctx, p)
	if err != nil {
		return fail(err)
	}
	a := c.find(tensor)
	switch {
	case a == nil:
		return fail(control.NotFound("no tensor %q in it", tensor))
	case len(a.pieces) != 1:
		return fail(control.NoData("tensor %s has no hash of its own: it is stored in pieces", tensor))
	case a.pieces[0].f.digests == nil:
		return fail(fmt.Errorf("it is not packed yet, and its tensors have no hashes; `ckptfs sync` packs: %w", unix.EAGAIN))
	case a.digest().IsZero():
		return fail(control.NoData("tensor %s has no hash of its own: it is empty, larger than an object, or in a file that is stored by its content", tensor))
	}
	return a.digest().String(), nil
}

// Held is the file that a tensor of a set lies in, and what it is called there.
type Held struct{ File, Tensor string }

// Holders are those of tensors of a set; of a file it is the file.
func (ins *Inspector) Holders(ctx context.Context, p string, tensors []string) []Held {
	out := make([]Held, len(tensors))
	for i, name := range tensors {
		out[i] = Held{p, name}
	}
	r := newReach(ins)
	defer r.close()
	c, err := r.at(ctx, p)
	if err != nil || c.one != nil {
		return out
	}
	at := make(map[string]int, len(c.arrays))
	for i := range c.arrays {
		if _, ok := at[c.arrays[i].Name]; !ok {
			at[c.arrays[i].Name] = i
		}
	}
	for i, name := range tensors {
		if k, ok := at[name]; ok && len(c.arrays[k].pieces) == 1 {
			one := &c.arrays[k].pieces[0]
			out[i] = Held{one.f.node.Path(), one.tensor().Name}
		}
	}
	return out
}
