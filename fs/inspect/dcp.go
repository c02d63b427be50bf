package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"ckptfs/formats"
	"ckptfs/formats/dcp"
)

// isDCP reports whether a file may be one that a .metadata names the tensors of.
func isDCP(p string) bool { return strings.HasSuffix(p, dcp.Suffix) }

// dcp is the tensors of a folder that torch.distributed.checkpoint wrote. Those that ranks wrote in parts are
// one where the parts tile it.
func (r *reach) dcp(ctx context.Context, dir string) (*set, error) {
	items, meta, err := r.dcpItems(dir)
	if err != nil || items == nil {
		return nil, err
	}
	out := &set{path: dir, format: "dcp", files: []*file{meta}}
	for _, file := range slices.Sorted(maps.Keys(items)) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := r.file(path.Join(dir, file))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out.files = append(out.files, f)
	}
	out.arrays, out.objects, err = dcpArrays(out.files[1:], items)
	return out, err
}

// dcpFile is what one of its files has, by the names in the .metadata beside it. nil: it is not named there.
func (r *reach) dcpFile(f *file) *set {
	if !isDCP(f.path) {
		return nil
	}
	items, _, err := r.dcpItems(path.Dir(f.path))
	base := path.Base(f.path)
	if err != nil || items[base] == nil {
		return nil
	}
	out := &set{path: f.path, format: "dcp", files: []*file{f}}
	if out.arrays, out.objects, err = dcpArrays(out.files, items); err != nil {
		return nil
	}
	return out
}

func (r *reach) dcpItems(dir string) (map[string][]dcp.Item, *file, error) {
	p := path.Join(dir, dcp.Metadata)
	b, err := r.ins.files.ReadSmall(p, dcp.MaxMetadata)
	if err != nil {
		return nil, nil, err
	}
	items, err := dcp.Parse(b)
	if errors.Is(err, formats.ErrNotFormat) { // something else by that name
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	meta, err := r.file(p)
	return items, meta, err
}

// dcpArrays calls the tensors of files by the names of the items that they lie in.
func dcpArrays(files []*file, items map[string][]dcp.Item) (out []array, objects []sealed, err error) {
	var names []string // in the order in which they are met
	whole := map[string]formats.Tensor{}
	pieces := map[string][]piece{}
	for _, f := range files {
		base := path.Base(f.path)
		in := items[base]
		met := make([]bool, len(in))
		for i := range f.layout.Tensors {
			t := &f.layout.Tensors[i]
			k, inner, ok := itemOf(f.layout, t, in)
			if !ok {
				return nil, nil, fmt.Errorf("%s: tensor %s is not where the metadata says: %w", base, t.Name, formats.ErrNotFormat)
			}
			x := &in[k]
			if !x.Tensor() {
				out = append(out, one(f, i, strings.TrimSuffix(x.Name+"."+inner, ".")))
				continue
			}
			if inner != "" || met[k] || !slices.Equal(t.Shape, x.Size) {
				return nil, nil, fmt.Errorf("%s: %s has shape %v: %w", base, x.Name, t.Shape, formats.ErrNotFormat)
			}
			met[k] = true
			if pieces[x.Name] == nil {
				names = append(names, x.Name)
				whole[x.Name] = formats.Tensor{Name: x.Name, DType: t.DType, Shape: x.Shape}
			}
			pieces[x.Name] = append(pieces[x.Name], piece{f, i, x.Origin})
		}
		for k := range in {
			if in[k].Tensor() && !met[k] {
				return nil, nil, fmt.Errorf("%s: no tensor where %s is: %w", base, in[k].Name, formats.ErrNotFormat)
			}
			if !in[k].Tensor() {
				objects = append(objects, sealed{key: in[k].Name, f: f, off: in[k].Off, n: in[k].Len})
			}
		}
	}
	for _, name := range names {
		all := pieces[name]
		if t := all[0].tensor(); len(all) == 1 && slices.Equal(t.Shape, whole[name].Shape) {
			out = append(out, one(all[0].f, all[0].i, name))
			continue
		}
		if a, ok := tile(whole[name], all); ok {
			out = append(out, a)
			continue
		}
		for _, p := range all {
			out = append(out, one(p.f, p.i, formats.PieceName(name, p.origin, p.tensor().Shape)))
		}
	}
	return out, objects, nil
}

// itemOf finds the item that a tensor is, or lies in: by its number, and by where its bytes are. inner is
// what it is called there.
func itemOf(l *formats.Layout, t *formats.Tensor, items []dcp.Item) (k int, inner string, ok bool) {
	if l.Format == "distcp" {
		number, rest, _ := strings.Cut(t.Name, ".")
		var err error
		if k, err = strconv.Atoi(number); err != nil {
			return 0, "", false
		}
		inner = rest
	} else if inner = t.Name; len(items) != 1 { // a file of one zip is torch's own
		return 0, "", false
	}
	if k < 0 || k >= len(items) {
		return 0, "", false
	}
	if t.Region >= 0 {
		r := l.Regions[t.Region]
		if x := &items[k]; r.Off < x.Off || r.Off+r.Len > x.Off+x.Len {
			return 0, "", false
		}
	}
	return k, inner, true
}
