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
)

// ggufSuffix ends the name of what is made of a folder below gguf.
const ggufSuffix = ".gguf"

// maxBeside bounds the files beside a model's weights that are read at once, in bytes.
const maxBeside = 96 << 20

// ggufFile is the file that is made of the folder of a model: name is the folder's, and ggufSuffix. Who sees
// it may list the folder and read all files that it is made of, by their paths.
func (d makeTree) ggufFile(v *Virtual, c *tree.Asker, name string) (entry, error) {
	stem, ok := strings.CutSuffix(name, ggufSuffix)
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
	var wanted []string
	weights := 0
	for _, e := range append(real, v.Views(c, dir, real)...) {
		switch {
		case e.Mode == unix.S_IFDIR:
			how.templates = how.templates || e.Name == llamacpp.Templates
		case llamacpp.IsPart(e.Name):
			wanted = append(wanted, e.Name)
			weights++
		case slices.Contains(llamacpp.Files, e.Name):
			wanted = append(wanted, e.Name)
		}
	}
	if !slices.Contains(wanted, llamacpp.Config) {
		return nil, fmt.Errorf("%w: the folder has no %s", plans.ErrNone, llamacpp.Config)
	}
	if weights == 0 || weights > maxParts {
		return nil, fmt.Errorf("%w: of %d files called model….safetensors; it takes 1 to %d", plans.ErrNone,
			weights, maxParts)
	}
	slices.SortFunc(wanted, func(a, b string) int {
		if p, q := llamacpp.IsPart(a), llamacpp.IsPart(b); p != q {
			if p {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, name := range wanted {
		o, err := v.operandLinked(c, dir, name)
		if o, err = v.operandSeen(c, byPath, o, err); err != nil {
			for _, o := range of {
				o.drop()
			}
			return nil, fmt.Errorf("%w (%s)", err, name)
		}
		o.as = name
		of = append(of, o)
	}
	return of, nil
}

// makeGGUF makes the plan of a file that is made of a model's folder. One is made at a time: what a tokenizer
// says takes some times the memory of its file.
func (w *computed) makeGGUF() (*plans.Plan, error) {
	w.v.converting <- struct{}{}
	defer func() { <-w.v.converting }()
	of := llamacpp.Folder{Path: w.how.folder, Files: map[string][]byte{}, Templates: w.how.templates}
	var sources []*plans.Source
	var names []string
	var headers, beside int64
	for _, o := range w.of {
		if !llamacpp.IsPart(o.as) {
			if beside += o.size; beside > maxBeside {
				return nil, fmt.Errorf("%w: the files beside its weights have more than %d bytes", plans.ErrNone,
					maxBeside)
			}
			p, err := o.all(llamacpp.MaxFile)
			if err != nil {
				return nil, err
			}
			of.Files[o.as] = p
			continue
		}
		s, err := w.v.sourceOf(o)
		if err != nil {
			return nil, err
		}
		if headers += s.Memory(); headers > w.v.o.IndexBytes && len(sources) > 0 {
			return nil, errHeaders(w.v.o.IndexBytes)
		}
		sources, names = append(sources, s), append(names, o.as)
	}
	return plans.GGUF(sources, names, &of, w.how.to)
}

func errHeaders(most int64) error {
	return fmt.Errorf("%w: the headers of its files take more than %d bytes of memory", plans.ErrNone, most)
}

// listGGUF lists folders, links, and the files that are made of folders.
func (d makeTree) listGGUF(v *Virtual, c *tree.Asker, real []tree.DirEntry) (out []tree.DirEntry) {
	for _, e := range real {
		dir := e.Mode == unix.S_IFDIR
		if e.Name == "." || e.Name == ".." || !dir && e.Mode != unix.S_IFLNK {
			continue
		}
		out = append(out, tree.DirEntry{Name: e.Name, Mode: e.Mode})
		name := e.Name + ggufSuffix
		taken := slices.ContainsFunc(real, func(e tree.DirEntry) bool {
			return e.Name == name && e.Mode != unix.S_IFREG
		})
		if !dir || taken {
			continue
		}
		if w, err := d.ggufFile(v, c, name); err == nil {
			w.drop()
			out = append(out, tree.DirEntry{Name: name, Mode: unix.S_IFREG})
		}
	}
	return out
}
