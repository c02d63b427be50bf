package inspect

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/formats/dcp"
	"ckptfs/formats/orbax"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// set is the tensors that a path leads to, wherever they lie: those of a file, of the files that an index
// names, of a folder that torch.distributed.checkpoint or Orbax wrote.
type set struct {
	path    string
	name    string // of the files of an index: what the one file would be called that has all of them
	rel     string // below what diff was asked for
	format  string
	arrays  []array  // those that are not made when they are asked for (at)
	one     *file    // the file, of a file
	files   []*file  // of a set: those that belong to it
	objects []sealed // of a set: what it has besides arrays
	notes   []string // of a set: what is to be said of it
}

// made reports whether the arrays are the tensors of a file as they are, and made when they are asked for: a
// file may have very many, and each takes some 250 bytes.
func (c *set) made() bool { return c.one != nil && !c.one.layout.Partial }

// len is how many arrays there are.
func (c *set) len() int {
	if c.made() {
		return len(c.one.layout.Tensors)
	}
	return len(c.arrays)
}

// nameOf is the name of an array.
func (c *set) nameOf(i int) string {
	if c.made() {
		return c.one.layout.Tensors[i].Name
	}
	return c.arrays[i].Name
}

// at is an array.
func (c *set) at(i int) *array {
	if c.made() {
		a := one(c.one, i, c.one.layout.Tensors[i].Name)
		return &a
	}
	return &c.arrays[i]
}

// find is the array of a name, or nil.
func (c *set) find(name string) *array {
	for i := range c.arrays {
		if c.arrays[i].Name == name {
			return &c.arrays[i]
		}
	}
	if f := c.one; f != nil { // a piece of one
		for i := range f.layout.Tensors {
			if f.layout.Tensors[i].Name == name {
				a := one(f, i, name)
				return &a
			}
		}
	}
	return nil
}

func plainly(f *file) *set {
	c := &set{path: f.path, format: f.layout.Format, one: f}
	if !c.made() {
		c.arrays = arraysOf(f)
	}
	return c
}

// setKind is a kind of sets of files. One file, known by its name, says which files belong to the set.
type setKind struct {
	named  func(p string) bool
	folder bool // the set is all of that file's folder
	read   func(r *reach, ctx context.Context, p string) (*set, error)
}

// setKinds lists all kinds.
func setKinds() []setKind {
	return []setKind{
		{safetensors.IsIndex, false, (*reach).sharded},
		{dcp.IsMetadata, true, (*reach).dcp},
		{orbax.IsMetadata, true, (*reach).orbax},
	}
}

// reach looks at files, each once, and keeps them referenced until it is closed.
type reach struct {
	ins   *Inspector
	files map[string]*file
	nodes []File // pinned
}

func newReach(ins *Inspector) *reach { return &reach{ins: ins, files: map[string]*file{}} }

func (r *reach) close() {
	for _, n := range r.nodes {
		n.Unpin()
	}
}

// file looks at the file of a path.
func (r *reach) file(p string) (*file, error) {
	if f := r.files[p]; f != nil {
		return f, nil
	}
	n, err := r.ins.files.Open(p)
	if err != nil {
		return nil, err
	}
	defer n.Unpin()
	return r.look(p, n)
}

// look is file of a node that is known.
func (r *reach) look(p string, n File) (*file, error) {
	if f := r.files[p]; f != nil {
		return f, nil
	}
	f, err := r.ins.fileOf(p, n)
	if err != nil {
		return nil, err
	}
	n.Pin()
	r.nodes = append(r.nodes, n)
	r.files[p] = f
	return f, nil
}

// at is what the path of a file or a folder leads to; tree.ErrNotRegular for a folder without sets.
func (r *reach) at(ctx context.Context, p string) (*set, error) {
	n, err := r.ins.files.Open(p)
	if err != nil {
		return nil, err
	}
	defer n.Unpin()
	info, err := n.Info()
	if err != nil {
		return nil, err
	}
	if info.Dir && !info.Virtual {
		return r.folder(ctx, p)
	}
	if c, err := r.set(ctx, p); c != nil || err != nil {
		return c, err
	}
	f, err := r.file(p)
	if err != nil {
		return nil, err
	}
	if c := r.dcpFile(f); c != nil {
		return c, nil
	}
	if c, err := r.external(f); c != nil || err != nil {
		return c, err
	}
	return plainly(f), nil
}

// set is what is named by the file of a path: an index. nil: it is none.
func (r *reach) set(ctx context.Context, p string) (*set, error) {
	for _, k := range setKinds() {
		if !k.folder && k.named(p) {
			return k.read(r, ctx, p)
		}
	}
	return nil, nil
}

// folderSet is what the folder of a file is, which says so by its name. nil: it is nothing.
func (r *reach) folderSet(ctx context.Context, p string) (*set, error) {
	for _, k := range setKinds() {
		if k.folder && k.named(p) {
			return k.read(r, ctx, path.Dir(p))
		}
	}
	return r.set(ctx, p)
}

// folder is the sets that lie in a folder, or else in those in it: of several, each name begins with what it
// is called.
func (r *reach) folder(ctx context.Context, p string) (*set, error) {
	names, err := r.ins.files.List(p)
	if err != nil {
		return nil, err
	}
	all, err := r.setsOf(ctx, p, names)
	if err != nil {
		return nil, err
	}
	prefix := func(c *set) string { return c.name + "/" }
	if len(all) == 1 {
		prefix = func(*set) string { return "" }
	}
	if len(all) == 0 {
		prefix = func(c *set) string {
			dir := c.path
			if c.name != "" {
				dir = path.Dir(dir)
			}
			return path.Base(dir) + "/"
		}
		for _, e := range names {
			if e.Mode != unix.S_IFDIR || e.Name == "." || e.Name == ".." {
				continue
			}
			below, err := r.ins.files.List(path.Join(p, e.Name))
			if err == unix.ENOENT {
				continue
			}
			if err == nil {
				var more []*set
				more, err = r.setsOf(ctx, path.Join(p, e.Name), below)
				all = append(all, more...)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.Name, err)
			}
		}
	}
	if len(all) == 0 {
		return nil, tree.ErrNotRegular
	}
	out := &set{path: p}
	var kinds []string
	for _, c := range all {
		for i := range c.len() {
			a := *c.at(i)
			a.Name = prefix(c) + a.Name
			out.arrays = append(out.arrays, a)
		}
		out.files = append(out.files, c.files...)
		out.objects = append(out.objects, c.objects...)
		out.notes = append(out.notes, c.notes...)
		if !slices.Contains(kinds, c.format) {
			kinds = append(kinds, c.format)
		}
	}
	out.format = strings.Join(kinds, ", ")
	return out, nil
}

// setsOf is the sets that files of a folder name.
func (r *reach) setsOf(ctx context.Context, p string, names []tree.DirEntry) ([]*set, error) {
	var out []*set
	for _, e := range names {
		if e.Mode != unix.S_IFREG {
			continue
		}
		c, err := r.folderSet(ctx, path.Join(p, e.Name))
		if err != nil {
			return nil, err
		}
		if c != nil {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *set) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

// below is everything at or below a folder: the sets, and the files that belong to none. A set that is not
// whole is its files.
func (r *reach) below(ctx context.Context, p string) ([]*set, error) {
	var all []*file
	err := r.ins.files.Walk(ctx, p, func(at string, n File) error {
		f, err := r.look(at, n)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return &fs.PathError{Op: "read", Path: at, Err: err}
		}
		all = append(all, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	linked, lost, err := r.links(ctx, p)
	if err != nil {
		return nil, err
	}
	if all = append(all, linked...); len(all) == 0 && lost > 0 {
		return nil, control.Invalid("it holds symbolic links alone, and they lead to no file of the mount")
	}
	var out []*set
	belongs := map[*file]bool{}
	for _, f := range all {
		c, err := r.folderSet(ctx, f.path)
		if c == nil && err == nil {
			c, err = r.external(f)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if c == nil || err != nil {
			continue
		}
		for _, f := range c.files {
			belongs[f] = true
		}
		out = append(out, c)
	}
	for _, f := range all {
		if !belongs[f] {
			out = append(out, plainly(f))
		}
	}
	return out, nil
}
