package volume

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/safetensors"
)

// maxShards bounds the files of a set.
const maxShards = 1 << 12

// indexed are the files that an index may be of, whose own name has indexSuffix behind theirs.
var indexed = []string{".safetensors", ".bin", ".pt", ".pth"}

const indexSuffix = ".index.json"

func isIndex(p string) bool {
	stem, ok := strings.CutSuffix(p, indexSuffix)
	return ok && slices.Contains(indexed, path.Ext(stem))
}

// sharded is the tensors of a set of files by its index. nil: it is no such index.
func (r *reach) sharded(ctx context.Context, p string) (*collection, error) {
	b, err := r.v.readSmall(p, safetensors.MaxIndex)
	if err != nil {
		return nil, err
	}
	places, err := safetensors.ParseIndex(b)
	if err != nil || len(places) == 0 {
		return nil, nil
	}
	var files []string
	for _, file := range places {
		files = append(files, file)
	}
	slices.Sort(files)
	files = slices.Compact(files)
	if len(files) > maxShards {
		return nil, nil
	}
	index, err := r.file(p)
	if err != nil {
		return nil, err
	}
	stem := strings.TrimSuffix(path.Base(p), indexSuffix)
	out := &collection{path: p, name: stem, format: strings.TrimPrefix(path.Ext(stem), ".") + "-index", files: []*comparand{index}}
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
