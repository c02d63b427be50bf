package inspect

import (
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/tree"
	"ckptfs/fs/view"
)

// besides begins the names of what savers put beside a model: the state of a training.
var besides = []string{"optimizer", "optim", "scheduler", "scaler", "rng_state", "random_states",
	"training_args"}

// modelNames are the names that savers give to models, where a folder has several checkpoints.
var modelNames = []string{"model.safetensors", "adapter_model.safetensors", "pytorch_model.bin",
	"adapter_model.bin"}

// model is at, and of a folder without sets the checkpoint that is the model: the only one, besides the state
// of a training; or the only safetensors file; or the one that is called so. tree.ErrNotRegular: none is.
func (r *reach) model(ctx context.Context, p string) (*set, error) {
	c, err := r.at(ctx, p)
	if err != tree.ErrNotRegular {
		return c, err
	}
	entries, err := r.ins.files.List(p)
	if err != nil {
		return nil, err
	}
	var all, safetensors []string
	for _, e := range entries {
		state := slices.ContainsFunc(besides, func(s string) bool { return strings.HasPrefix(e.Name, s) })
		if e.Mode != unix.S_IFREG || state {
			continue
		}
		_, isSource := view.Stem(e.Name)
		if path.Ext(e.Name) == view.Suffix {
			safetensors = append(safetensors, e.Name)
		} else if !isSource {
			continue
		}
		all = append(all, e.Name)
	}
	name := ""
	switch {
	case len(all) == 1:
		name = all[0]
	case len(safetensors) == 1:
		name = safetensors[0]
	default:
		for _, known := range modelNames {
			if name == "" && slices.Contains(all, known) {
				name = known
			}
		}
	}
	if name == "" {
		return nil, tree.ErrNotRegular
	}
	return r.at(ctx, path.Join(p, name))
}
