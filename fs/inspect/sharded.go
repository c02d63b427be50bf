package inspect

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// MaxShards bounds the files of a set.
const MaxShards = 1 << 12

// ReadIndex reads the index of a set: the file of each tensor, and the files, ascending. None: it is no such
// index.
func (ins *Inspector) ReadIndex(p string) (places map[string]string, files []string, err error) {
	b, err := ins.files.ReadSmall(p, safetensors.MaxIndex)
	if err != nil {
		return nil, nil, err
	}
	if places, err = safetensors.ParseIndex(b); err != nil {
		return nil, nil, nil
	}
	files = slices.Compact(slices.Sorted(maps.Values(places)))
	if len(files) > MaxShards {
		return nil, nil, nil
	}
	return places, files, nil
}

// sharded is the tensors of a set of files by its index. nil: it is no such index.
func (r *reach) sharded(ctx context.Context, p string) (*set, error) {
	places, files, err := r.ins.ReadIndex(p)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	index, err := r.file(p)
	if err != nil {
		return nil, err
	}
	name, _ := safetensors.IndexedFile(p)
	out := &set{path: p, name: name, format: strings.TrimPrefix(path.Ext(name), ".") + "-index",
		files: []*file{index}}
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := r.file(path.Join(path.Dir(p), file))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out.files = append(out.files, f)
		for _, a := range arraysOf(f) {
			if places[a.Name] == file {
				out.arrays = append(out.arrays, a)
				delete(places, a.Name)
			}
		}
	}
	if len(places) > 0 {
		return nil, fmt.Errorf("%d tensors of the index are not in its files: %w", len(places), formats.ErrNotFormat)
	}
	return out, nil
}
