package virtual

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/formats/dcp"
	"ckptfs/formats/deepspeed"
	"ckptfs/fs/names"
	"ckptfs/fs/plans"
	"ckptfs/fs/tree"
	"ckptfs/fs/view"
	"ckptfs/fs/virtual/ways"
)

// makeTree is a folder of the tree as it is shown below a way of .ckptfs/make. It is what its path leads to
// now: so the kernel may keep its name for a tick of its clock.
type makeTree struct {
	how making
	at  string // the path of the way below .ckptfs/make
	rel string // that of the folder in the tree
	src *names.Node
}

// entry takes src's reference.
func (d makeTree) entry() entry { return entry{dir: d, key: d, src: d.src, brief: true} }

// now is the folder that the path leads to, with one reference to its src more.
func (d makeTree) now(v *Virtual) (makeTree, error) {
	if !d.src.Dead() && d.src.Path() == d.rel {
		d.src.Pin()
		return d, nil
	}
	n, err := v.o.Names.Resolve(d.rel)
	if err == nil && !n.IsDir() {
		n.Unpin()
		err = unix.ENOENT
	}
	d.src = n
	return d, err
}

func (d makeTree) lookup(_ context.Context, v *Virtual, c *tree.Asker, name string) (entry, error) {
	d, err := d.now(v)
	if err != nil {
		return entry{}, err
	}
	defer d.src.Unpin()
	n, _, err := v.o.Names.Child(d.src, name)
	if err == nil {
		switch {
		case n.IsDir():
			return makeTree{d.how, d.at, path.Join(d.rel, name), n}.entry(), nil
		case n.Type() == unix.S_IFLNK && !strings.HasSuffix(name, view.Suffix):
			return tensorEntry(n)
		}
		n.Unpin()
	} else if err != unix.ENOENT {
		return entry{}, err
	}
	if stem, ok := strings.CutSuffix(name, ways.WhySuffix); ok {
		if n, _, err := v.o.Names.Child(d.src, stem); err == nil {
			if n.IsDir() {
				return makeTree{d.how, d.at, path.Join(d.rel, stem), n}.why(v, c)
			}
			n.Unpin()
		}
	}
	return madeNames(d.file).lookup(v, c, name)
}

// why says that the folder is there, and why it has not what is made of folders. It takes src's reference.
func (d makeTree) why(v *Virtual, c *tree.Asker) (entry, error) {
	defer d.src.Unpin()
	text := fmt.Sprintf("%s is there.\n", path.Base(d.rel))
	made := map[makeKind]string{makeOne: ways.OneName, makeHF: ways.OneName,
		makeMegatron: ways.MegatronRelease, makeState: ways.StateName(0, 0)}[d.how.kind]
	if made != "" {
		w, err := d.file(v, c, made)
		switch {
		case errors.Is(err, plans.ErrNone):
			text = fmt.Sprintf("%s is there. %s in it %v.\n", path.Base(d.rel), made, err)
		case err != nil:
			return entry{}, err
		default:
			w.drop()
		}
	}
	return entry{key: makeWhy(text), data: []byte(text)}, nil
}

// file is what a name is that is no folder: a file that is made, a folder for one of several, or a link.
func (d makeTree) file(v *Virtual, c *tree.Asker, name string) (entry, error) {
	switch d.how.kind {
	case makeOne:
		return d.oneFile(v, c, name)
	case makeGGUF:
		return d.ggufFile(v, c, name)
	case makeState:
		return d.stateFile(v, c, name)
	case makeMegatron:
		return d.megatronFile(v, c, name)
	case makeHF:
		return d.hfFile(v, c, name)
	}
	o, err := v.operandLinked(c, inPlace, d.src, name)
	if err != nil {
		return entry{}, err
	}
	_, several := d.how.several()
	if named := strings.HasSuffix(name, view.Suffix); several || !named { // else its plan is looked for
		if !named && v.others.has(o) {
			return d.itself(o, name), nil
		}
		_, err = v.sourceOf(o)
		switch {
		case errors.Is(err, plans.ErrNone) && !named:
			v.others.add(o)
			return d.itself(o, name), nil
		case err != nil:
			o.drop()
			return entry{}, err
		}
	}
	if several {
		at := path.Join(d.at, d.rel, name)
		return makeOf{d.how.and(path.Join(d.rel, name)), at, o.n}.entry(), nil
	}
	of, side, err := d.others(v, c, o)
	if err != nil {
		return entry{}, err
	}
	how := d.how
	how.part = how.kind == makeMerge && ways.IsPart(name)
	w, err := v.newComputed(how, of, side)
	if err != nil {
		return entry{}, err
	}
	return w.entry(inPlace), nil
}

// oneFile is the file that has all tensors of the folder, by its name. Other files are links to themselves,
// but for those that it is made of.
func (d makeTree) oneFile(v *Virtual, c *tree.Asker, name string) (entry, error) {
	if strings.HasSuffix(name, dcp.Suffix) || name == dcp.Metadata || deepspeed.IsPart(name) {
		return entry{}, errNoFile
	}
	if name == ways.OneName {
		w, err := d.whole(v, c)
		if err != errNoFile {
			return w, err
		}
	}
	o, err := d.own(v, c, name)
	if err != nil && name == ways.OneName {
		err = fmt.Errorf("%w (%s, or files of DeepSpeed's ZeRO, beside it)", errNoFile, dcp.Metadata)
	}
	if err != nil {
		return entry{}, err
	}
	return d.itself(o, name), nil
}

// whole is the file that is made of those that ranks wrote; errNoFile when they wrote none here.
func (d makeTree) whole(v *Virtual, c *tree.Asker) (entry, error) {
	how, isPart := d.how, func(name string) bool { return strings.HasSuffix(name, dcp.Suffix) }
	side, err := d.own(v, c, dcp.Metadata)
	if err != nil {
		how.kind, isPart = makeZero, deepspeed.IsPart
	}
	of, err := d.partFiles(v, c, isPart)
	if err == nil && len(of) == 0 {
		err = errNoFile
		if side != nil {
			err = fmt.Errorf("%w: no file of parts is there", plans.ErrNone)
		}
	}
	if err != nil {
		if side != nil {
			side.drop()
		}
		return entry{}, err
	}
	w, err := v.newComputed(how, of, side)
	if err != nil {
		return entry{}, err
	}
	return w.entry(inPlace), nil
}

// own is a file of the folder that c may read; errNoFile where there is none.
func (d makeTree) own(v *Virtual, c *tree.Asker, name string) (*operand, error) {
	return v.operandAt(c, inPlace, d.src, name)
}

// partFiles are the files of parts in the folder. c has to be allowed to read all of them.
func (d makeTree) partFiles(
	v *Virtual, c *tree.Asker, isPart func(name string) bool,
) ([]*operand, error) {
	real, err := d.src.ListQuietly()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range real {
		if isPart(e.Name) {
			names = append(names, e.Name)
		}
	}
	if len(names) > ways.MaxParts {
		return nil, fmt.Errorf("%w: of %d files; it takes 1 to %d", plans.ErrNone, len(names), ways.MaxParts)
	}
	slices.Sort(names)
	return operandsBy(names, func(name string) (*operand, error) {
		o, err := d.own(v, c, name)
		if err == nil {
			o.as = name
		}
		return o, err
	})
}

// others are all files that one is made of, o the first, and the one that says how. If they are not there it
// gives o's reference back.
func (d makeTree) others(v *Virtual, c *tree.Asker, o *operand) (of []*operand, side *operand, err error) {
	of = []*operand{o}
	at := d.rel
	for _, x := range d.how.operands() {
		var one *operand
		if one, err = v.operandFor(c, x.Path); err != nil {
			break
		}
		of, at = append(of, one), path.Dir(x.Path)
	}
	if beside := d.how.beside(); beside != "" && err == nil {
		side, err = v.operandFor(c, path.Join(at, beside))
	}
	if err == nil {
		return of, side, nil
	}
	for _, o := range of {
		o.drop()
	}
	return nil, nil, err
}

// operandLinked is operandAt, or the file that a symbolic link leads to at once, within the tree, if c may
// read that by its path.
func (v *Virtual) operandLinked(c *tree.Asker, s sight, dir *names.Node, name string) (*operand, error) {
	n, _, err := v.o.Names.Child(dir, name)
	if err != nil {
		return v.operandAt(c, s, dir, name)
	}
	defer n.Unpin()
	if n.Type() != unix.S_IFLNK {
		return v.operandAt(c, s, dir, name)
	}
	target, err := n.Readlink()
	if err != nil {
		return nil, err
	}
	p := path.Join(dir.Path(), target)
	if path.IsAbs(target) || p == ".." || strings.HasPrefix(p, "../") {
		return nil, fmt.Errorf("%w: it is a link that leads out of the mount", plans.ErrNone)
	}
	return v.operandBy(c, p, func(c *tree.Asker, dir *names.Node, name string) (*operand, error) {
		return v.operandAt(c, byPath, dir, name)
	})
}

// itself is a link to a file of the tree. It takes the operand's reference. A link that everyone finds is
// brief.
func (d makeTree) itself(o *operand, name string) entry {
	depth := 2 + len(strings.Split(path.Join(d.at, d.rel), "/")) // with .ckptfs/make
	target := strings.Repeat("../", depth) + path.Join(d.rel, name)
	a, err := o.n.Attr()
	return entry{
		key: target, src: o.n, sight: inPlace, brief: err == nil && a.Mode&0o444 == 0o444,
		link: func(*Virtual, *tree.Asker) (string, error) { return target, nil },
	}
}

func (d makeTree) list(v *Virtual, c *tree.Asker) ([]tree.DirEntry, error) {
	d, err := d.now(v)
	if err != nil {
		return nil, err
	}
	defer d.src.Unpin()
	real, err := d.src.ListQuietly()
	if err != nil {
		return nil, err
	}
	if d.how.kind == makeGGUF {
		return d.listGGUF(v, c, real), nil
	}
	var out []tree.DirEntry
	if views := v.Views(c, d.src, real); d.how.kind == makeState {
		out = d.listState(v, c)
	} else if d.how.kind == makeMegatron {
		out = d.listMegatron(v, c)
	} else if d.how.kind != makeOne && d.how.kind != makeHF {
		real = append(real, views...)
	} else if w, err := d.file(v, c, ways.OneName); err == nil {
		w.drop()
		real = slices.DeleteFunc(real, func(e tree.DirEntry) bool { return e.Name == ways.OneName })
		real = append(real, tree.DirEntry{Name: ways.OneName, Mode: unix.S_IFREG})
		if d.how.kind == makeHF && !slices.ContainsFunc(real, isConfig) {
			real = append(real, tree.DirEntry{Name: modelConfig, Mode: unix.S_IFREG}) // it is elsewhere
		}
	}
	for _, e := range real {
		file := e.Mode == unix.S_IFREG || e.Mode == unix.S_IFLNK && strings.HasSuffix(e.Name, view.Suffix)
		switch {
		case e.Name == "." || e.Name == "..":
			continue
		case file:
			w, err := d.file(v, c, e.Name)
			if err != nil {
				continue
			}
			e.Mode = w.mode()
			w.drop()
		case e.Mode != unix.S_IFDIR && e.Mode != unix.S_IFLNK:
			continue
		}
		out = append(out, tree.DirEntry{Name: e.Name, Mode: e.Mode})
	}
	return out, nil
}

// madeNames are the names of made files in a folder, but of those that are folders.
type madeNames func(v *Virtual, c *tree.Asker, name string) (entry, error)

// lookup finds such a name, or the text that says why it is not there.
func (file madeNames) lookup(v *Virtual, c *tree.Asker, name string) (entry, error) {
	w, err := file(v, c, name)
	if !errors.Is(err, plans.ErrNone) {
		return w, err
	}
	stem, ok := strings.CutSuffix(name, ways.WhySuffix)
	if !ok {
		return entry{}, unix.ENOENT
	}
	return file.why(v, c, stem)
}

// why is the text that says why a name is not there for a caller. It is what the caller may know at the time
// of the lookup, so that another text is another node.
func (file madeNames) why(v *Virtual, c *tree.Asker, name string) (entry, error) {
	text := fmt.Sprintf("%s is there.\n", name)
	switch w, err := file(v, c, name); {
	case errors.Is(err, plans.ErrNone):
		text = fmt.Sprintf("%s %v.\n", name, err)
	case err != nil:
		return entry{}, err
	default:
		if w.link != nil {
			text = fmt.Sprintf("%s is there, as a link to itself: nothing is made of it.\n", name)
		} else if w.made != nil {
			text = fmt.Sprintf("%s is there, and has %d bytes.\n", name, w.made.size)
		}
		w.drop()
	}
	return entry{key: makeWhy(text), data: []byte(text)}, nil
}

// makeWhy is the identity of a text that says why a name is not there.
type makeWhy string
