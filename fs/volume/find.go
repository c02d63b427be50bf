package volume

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
func (v *Volume) Find(ctx context.Context, o control.FindOptions) (*control.Found, error) {
	hash := strings.ToLower(o.Hash)
	if o.Path != "" {
		var err error
		if hash, err = v.contentOf(o.Path, o.Tensor); err != nil {
			return nil, err
		}
	} else if len(hash) < 8 || len(hash) > 64 || strings.Trim(hash, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("hash %q: 8 to 64 hexadecimal digits are needed: %w", o.Hash, unix.EINVAL)
	}
	out := &control.Found{Hash: hash, Tensors: []control.TensorRef{}}
	err := v.walk(ctx, "", func(p string, n *Node) error {
		n.file.mu.Lock()
		err := v.load(n)
		packed := n.file.rec.Packed()
		n.file.mu.Unlock()
		if err != nil || !packed {
			return nil
		}
		f, err := v.comparandOf(p, n)
		if err != nil {
			return nil // damaged or gone, and not what was asked about
		}
		for i, d := range f.digests {
			if !d.IsZero() && strings.HasPrefix(d.String(), hash) {
				r := refOf(f, i)
				r.Hash = d.String()
				out.Tensors = append(out.Tensors, r)
			}
		}
		return nil
	})
	slices.SortStableFunc(out.Tensors, func(a, b control.TensorRef) int { return cmp.Compare(a.File, b.File) })
	return out, err
}

// contentOf is the hash of a tensor's content.
func (v *Volume) contentOf(p, tensor string) (string, error) {
	n, err := v.resolve(p)
	if err != nil {
		return "", &fs.PathError{Op: "find", Path: p, Err: err}
	}
	defer v.unref(n, 1)
	f, err := v.comparandOf(p, n)
	if err != nil {
		return "", &fs.PathError{Op: "find", Path: p, Err: err}
	}
	for i := range f.layout.Tensors {
		if f.layout.Tensors[i].Name != tensor {
			continue
		}
		switch {
		case f.digests == nil:
			err = fmt.Errorf("it is not packed yet, and its tensors have no hashes; `ckptfs sync` packs: %w", unix.EAGAIN)
		case f.digests[i].IsZero():
			err = fmt.Errorf("tensor %s has no hash of its own: it is empty, or larger than an object: %w", tensor, unix.ENODATA)
		default:
			return f.digests[i].String(), nil
		}
		return "", &fs.PathError{Op: "find", Path: p, Err: err}
	}
	return "", &fs.PathError{Op: "find", Path: p, Err: fmt.Errorf("no tensor %q in it: %w", tensor, unix.ENOENT)}
}
