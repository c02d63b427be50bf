package volume

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
)

// maxShards bounds the files of a set.
const maxShards = 1 << 12

// showSharded lists the tensors of a set of safetensors files by its index, file by file. false: it is no such index.
func (v *Volume) showSharded(ctx context.Context, p string, out *control.File) (bool, error) {
	if !strings.HasSuffix(p, safetensors.IndexSuffix) {
		return false, nil
	}
	b, err := v.readSmall(p, safetensors.MaxIndex)
	if err != nil {
		return false, err
	}
	places, err := safetensors.ParseIndex(b)
	if err != nil {
		return false, nil
	}
	var files []string
	for _, file := range places {
		files = append(files, file)
	}
	slices.Sort(files)
	files = slices.Compact(files)
	if len(files) > maxShards {
		return false, nil
	}
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return true, err
		}
		if err := v.showShard(path.Join(path.Dir(p), file), file, places, out); err != nil {
			return true, fmt.Errorf("%s: %w", file, err)
		}
	}
	if len(places) > 0 {
		return true, fmt.Errorf("%d tensors of the index are not in its files: %w", len(places), formats.ErrNotFormat)
	}
	out.Format, out.State = "safetensors-index", ""
	return true, nil
}

// showShard adds the tensors that places has in a file, and takes them out of it.
func (v *Volume) showShard(p, file string, places map[string]string, out *control.File) error {
	n, err := v.resolve(p)
	if err != nil {
		return err
	}
	defer v.unref(n, 1)
	if n.file == nil {
		return errNotRegular
	}
	a, err := v.Stat(n)
	if err != nil {
		return err
	}
	layout, m, err := v.layoutOf(n, &control.File{})
	if err != nil {
		return err
	}
	var digests []cas.Hash
	if m != nil {
		digests = tensorDigests(m)
	}
	for i := range layout.Tensors {
		if name := layout.Tensors[i].Name; places[name] == file {
			out.Tensors = append(out.Tensors, tensorOf(layout, i, digests))
			delete(places, name)
		}
	}
	out.Size += a.Size
	return nil
}
