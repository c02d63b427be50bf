package inspect

import (
	"context"
	"strings"

	"ckptfs/fs/control"
)

// Outline tells the tensors of a file or a set that have a prefix; or where they are too many, one level of
// their names. Owners are not known here.
func (ins *Inspector) Outline(ctx context.Context, o control.OutlineOptions) (*control.Outline, error) {
	out := &control.Outline{Listed: []control.Owned{}, Level: []control.Level{}, Models: []control.Model{}}
	common := "" // how all names that have the prefix begin
	only := func(a *array) bool {
		if o.Exact && out.Below > 0 {
			return false
		}
		out.Count, out.TensorBytes = out.Count+1, out.TensorBytes+max(a.NumBytes(), 0)
		if !strings.HasPrefix(a.Name, o.Prefix) || o.Exact && len(a.Name) != len(o.Prefix) {
			return false
		}
		if out.Below++; out.Below == 1 {
			common = a.Name
		}
		common = common[:alike(common, a.Name)]
		return true
	}
	places := map[string]int{}
	f, err := ins.those(ctx, o.Path, control.InspectOptions{}, only, func(some []control.Tensor) error {
		for i := range some {
			t := control.Owned{Tensor: some[i], Owner: -1}
			if out.Below <= o.Most {
				out.Listed = append(out.Listed, t)
			} else {
				level(out, places, t, o, strings.LastIndexAny(common, "./")+1)
			}
		}
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	f.Tensors = []control.Tensor{}
	out.File = f
	return out, nil
}

// alike is how many bytes two names have in common at their beginning.
func alike(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// level counts a tensor at the level of names; places has where they are. Parts of names that all have, up to
// from, are no level of their own.
func level(out *control.Outline, places map[string]int, t control.Owned, o control.OutlineOptions, from int) {
	from = max(from, len(o.Prefix))
	end := strings.IndexAny(t.Name[from:], "./")
	leaf := end < 0 || from+end+1 == len(t.Name)
	name := t.Name[len(o.Prefix):]
	if !leaf {
		name = t.Name[len(o.Prefix) : from+end+1]
	}
	k, ok := places[name]
	if !ok {
		if out.More = len(out.Level) >= o.Names; out.More {
			return
		}
		k = len(out.Level)
		places[name], out.Level = k, append(out.Level, control.Level{Name: name})
	}
	l := &out.Level[k]
	l.Tensors, l.Bytes = l.Tensors+1, l.Bytes+t.Bytes
	if max(t.Shared, len(t.SharedWith)) > 0 {
		l.Shared++
	}
	if leaf && l.Tensor == nil {
		l.Tensor = &t
	}
}
