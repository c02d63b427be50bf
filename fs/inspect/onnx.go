package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/onnx"
	"ckptfs/fs/tree"
)

// isONNX reports whether a file of this name may be a model with its data in other files.
func isONNX(p string) bool { return path.Ext(p) == onnx.Ending }

// external is the tensors of an ONNX model, those in other files too, whatever these are called. nil: all are
// in it. Of files that are not there it says so.
func (r *reach) external(f *file) (*set, error) {
	if f.layout.Format != onnx.Name || !f.layout.Partial || !isONNX(f.path) {
		return nil, nil
	}
	src, size, done, err := f.node.Open()
	if err != nil {
		return nil, err
	}
	x, err := onnx.ReadExternal(io.NewSectionReader(src, 0, size), size)
	done()
	if errors.Is(err, formats.ErrNotFormat) { // written meanwhile
		return nil, nil
	}
	if err != nil || len(x.Files()) == 0 {
		return nil, err
	}
	c := plainly(f)
	c.one, c.files = nil, []*file{f}
	c.notes = slices.DeleteFunc(r.ins.notes(f.node, f.layout), func(s string) bool {
		return strings.Contains(s, onnx.Elsewhere)
	})
	for i, file := range x.Files() {
		if i == MaxShards {
			c.notes = append(c.notes, notListed("tensors in further files", len(x.Files())-i))
			break
		}
		data, g, err := r.externalFile(f, x, file)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, formats.ErrNotFormat), err == unix.EINVAL,
			err == tree.ErrNotRegular, err == unix.ENOTDIR:
			c.notes = append(c.notes, notListed(fmt.Sprintf("tensors in %q: %v", file, err), x.Count(file)))
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		c.files = append(c.files, data)
		c.arrays = append(c.arrays, arraysOf(g)...)
		if left := x.Count(file) - len(g.layout.Tensors); left > 0 {
			c.notes = append(c.notes, notListed(fmt.Sprintf("tensors in %q are of types that are not known, or have the name of another", file), left))
		}
	}
	c.notes = append(c.notes, "no view: its tensors lie in several files")
	return c, nil
}

// externalFile is a file of a model's external data, and what it is as the model lays it out.
func (r *reach) externalFile(model *file, x *onnx.External, name string) (f, g *file, err error) {
	local := path.Clean(name)
	if !fs.ValidPath(local) || local == "." || strings.Contains(local, "\x00") {
		return nil, nil, unix.EINVAL
	}
	if f, err = r.file(path.Join(path.Dir(model.node.Path()), local)); err != nil {
		return nil, nil, err
	}
	g = &file{path: f.path, node: f.node, size: f.size, whole: f.whole}
	if g.layout, err = x.Layout(name, f.size); err != nil || g.whole.IsZero() {
		return f, g, err
	}
	for i := range g.layout.Tensors {
		var h cas.Hash
		if k := g.layout.Tensors[i].Region; k >= 0 {
			h = r.ins.storedAt(f, g.layout.Regions[k].Off, g.layout.Regions[k].Len)
		}
		g.digests = append(g.digests, h)
	}
	return f, g, nil
}
