package virtual

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/fs/names"
	"ckptfs/fs/plans"
	"ckptfs/fs/plans/llamacpp"
	"ckptfs/fs/tree"
	"ckptfs/fs/virtual/ways"
)

// maxBeside bounds the files beside a model's weights that are read at once, in bytes.
const maxBeside = 96 << 20

// ggufFile is the file that is made of the folder of a model: name is the folder's, and GGUFSuffix. Who sees
// it may list the folder and read all files that it is made of, by their paths.
func (d makeTree) ggufFile(v *Virtual, c *tree.Asker, name string) (entry, error) {
	stem, ok := strings.CutSuffix(name, ways.GGUFSuffix)
	if !ok || stem == "" {
		return entry{}, errNoFile
	}
	dir, _, err := v.o.Names.Child(d.src, stem)
	if err == unix.ENOENT {
		return entry{}, errNoFile
	} else if err != nil {
		return entry{}, err
	}
	defer dir.Unpin()
	if !dir.IsDir() {
		return entry{}, fmt.Errorf("%w: %s is no folder", plans.ErrNone, stem)
	}
	if !v.visible(c, byPath, dir) {
		return entry{}, errNoFile
	}
	how := d.how
	how.folder = path.Join(d.rel, stem)
	of, err := v.modelFiles(c, dir, &how)
	if err != nil {
		return entry{}, err
	}
	w, err := v.newComputed(how, of, nil)
	if err != nil {
		return entry{}, err
	}
	return w.entry(byPath), nil
}

// modelFiles are the files of a model's folder that are read, those of weights first.
func (v *Virtual) modelFiles(c *tree.Asker, dir *names.Node, how *making) (of []*operand, err error) {
	real, err := dir.ListQuietly()
	if err != nil {
		return nil, err
	}
	var parts, beside []string
	for _, e := range append(real, v.Views(c, dir, real)...) {
		switch {
		case e.Mode == unix.S_IFDIR:
			how.templates = how.templates || e.Name == llamacpp.Templates
		case llamacpp.IsPart(e.Name):
			parts = append(parts, e.Name)
		case slices.Contains(llamacpp.Files, e.Name):
			beside = append(beside, e.Name)
		}
	}
	if !slices.Contains(beside, llamacpp.Config) {
		return nil, fmt.Errorf("%w: the folder has no %s", plans.ErrNone, llamacpp.Config)
	}
	if err := ways.CountParts(parts); err != nil {
		return nil, err
	}
	slices.Sort(parts)
	slices.Sort(beside)
	return operandsBy(append(parts, beside...), func(name string) (*operand, error) {
		o, err := v.operandIn(c, dir, name)
		if err == nil {
			o.as = name
		}
		return o, err
	})
}

// makeGGUF makes the plan of a file that is made of a model's folder, whose files modelFiles found. It reads
// the config first: in most folders that is all.
func (w *computed) makeGGUF() (*plans.Plan, error) {
	config := slices.IndexFunc(w.of, func(o *operand) bool { return o.as == llamacpp.Config })
	said, err := w.of[config].all(llamacpp.MaxFile)
	if err == nil {
		err = plans.GGUFRefused(w.how.folder, said)
	}
	if err != nil {
		return nil, err
	}
	parts := slices.IndexFunc(w.of, func(o *operand) bool { return !llamacpp.IsPart(o.as) })
	sources, names, err := w.sources(w.of[:parts])
	if err != nil {
		return nil, err
	}
	of := llamacpp.Folder{Path: w.how.folder, Files: map[string][]byte{}, Templates: w.how.templates}
	var beside int64
	for _, o := range w.of[parts:] {
		if beside += o.size; beside > maxBeside {
			return nil, fmt.Errorf("%w: the files beside its weights have more than %d bytes", plans.ErrNone,
				maxBeside)
		}
		if of.Files[o.as] = said; o.as == llamacpp.Config {
			continue
		}
		if of.Files[o.as], err = o.all(llamacpp.MaxFile); err != nil {
			return nil, err
		}
	}
	return plans.GGUF(sources, names, &of, w.how.to)
}

// listGGUF lists folders, links, and the files that are made of folders.
func (d makeTree) listGGUF(v *Virtual, c *tree.Asker, real []tree.DirEntry) (out []tree.DirEntry) {
	taken := make(map[string]bool) // by what is no file
	for _, e := range real {
		taken[e.Name] = e.Mode != unix.S_IFREG
	}
	for _, e := range real {
		dir := e.Mode == unix.S_IFDIR
		if e.Name == "." || e.Name == ".." || !dir && e.Mode != unix.S_IFLNK {
			continue
		}
		out = append(out, tree.DirEntry{Name: e.Name, Mode: e.Mode})
		name := e.Name + ways.GGUFSuffix
		if !dir || taken[name] {
			continue
		}
		if w, err := d.ggufFile(v, c, name); err == nil {
			w.drop()
			out = append(out, tree.DirEntry{Name: name, Mode: unix.S_IFREG})
		}
	}
	return out
}
