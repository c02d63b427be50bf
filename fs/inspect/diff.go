package inspect

import (
	"cmp"
	"context"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"ckptfs/formats"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
)

// Diff compares the tensors of two files, steps or runs. Of a run it is the last complete step. parts and
// progress may be nil.
func (ins *Inspector) Diff(ctx context.Context, o control.DiffOptions, parts control.Differences,
	progress func(control.Progress)) (*control.Diff, error) {
	d := &differ{ins: ins, report: progress, parts: parts, sample: o.Sample}
	d.out = &control.Diff{A: o.A, B: o.B, Files: []control.FilePair{}, TensorLists: control.NoTensors(),
		Others: []control.OtherFile{}}
	d.reach = newReach(ins)
	defer d.reach.close()
	left, err := d.side(ctx, &d.out.A)
	if err != nil {
		return nil, err
	}
	right, err := d.side(ctx, &d.out.B)
	if err != nil {
		return nil, err
	}
	return d.out, d.compare(ctx, left, right)
}

type differ struct {
	ins    *Inspector
	out    *control.Diff
	parts  control.Differences
	sample int64 // as in DiffOptions
	report func(control.Progress)
	reach  *reach
}

// partTensors is how many tensors are told of at a time. Each takes some 300 bytes until then, and twice that
// as JSON.
const partTensors = 1 << 12

// tell hands over what was found, if it is enough.
func (d *differ) tell() error {
	l := &d.out.TensorLists
	if d.parts == nil || len(l.Changed)+len(l.Reshaped)+len(l.Added)+len(l.Removed) < partTensors {
		return nil
	}
	told := *l
	*l = control.NoTensors()
	return d.parts(told)
}

// removed and added note a tensor that one side alone has.
func (d *differ) removed(c *set, i int) error {
	d.out.Removed = append(d.out.Removed, refOf(c.path, &c.at(i).Tensor))
	return d.tell()
}

func (d *differ) added(c *set, i int) error {
	d.out.Added = append(d.out.Added, refOf(c.path, &c.at(i).Tensor))
	return d.tell()
}

// side lists what there is on one side. *p becomes the step, when it was a run.
func (d *differ) side(ctx context.Context, p *string) ([]*set, error) {
	ins := d.ins
	n, err := ins.files.Open(*p)
	if err != nil {
		return nil, &fs.PathError{Op: "diff", Path: *p, Err: err}
	}
	defer n.Unpin()
	info, err := n.Info()
	if err != nil {
		return nil, &fs.PathError{Op: "diff", Path: *p, Err: err}
	}
	if !info.Dir {
		c, err := d.reach.at(ctx, *p)
		if err != nil {
			return nil, &fs.PathError{Op: "diff", Path: *p, Err: err}
		}
		c.rel = cmp.Or(c.name, path.Base(*p))
		return []*set{c}, nil
	}
	if _, err := steps.RunOf(*p); err == nil {
		_, all, err := ins.steps.Run(ctx, "diff", *p)
		if err != nil {
			return nil, err
		}
		i := len(all) - 1
		for i >= 0 && ins.steps.State(all[i]) != control.StepComplete {
			i--
		}
		if i >= 0 { // else it has files, but no steps
			*p = path.Join(*p, all[i].Name)
		}
	}
	all, err := d.reach.below(ctx, *p)
	if err != nil {
		return nil, &fs.PathError{Op: "diff", Path: *p, Err: err}
	}
	for _, c := range all {
		c.rel = strings.TrimPrefix(strings.TrimPrefix(c.path, *p), "/")
		if c.name != "" { // a set is called as the file would be that has all of it
			c.rel = path.Join(path.Dir(c.rel), c.name)
		}
	}
	return all, nil
}

// compare pairs the files: by name, then by name without its ending, then what is left if there is one of
// each.
func (d *differ) compare(ctx context.Context, left, right []*set) error {
	pairs := map[*set]*set{}
	taken := map[*set]bool{}
	pair := func(key func(*set) string) {
		at := map[string]*set{}
		for _, b := range right {
			if k := key(b); !taken[b] && at[k] == nil {
				at[k] = b
			}
		}
		for _, a := range left {
			if b := at[key(a)]; pairs[a] == nil && b != nil && !taken[b] {
				pairs[a], taken[b] = b, true
			}
		}
	}
	pair(func(f *set) string { return f.rel })
	holds := func(f *set) string { // a file without tensors is no other form of one with
		if f.len() > 0 {
			return "/tensors"
		}
		return ""
	}
	pair(func(f *set) string { return strings.TrimSuffix(f.rel, path.Ext(f.rel)) + holds(f) })
	free := func(all []*set, used func(*set) bool) (out []*set) {
		for _, f := range all {
			if !used(f) && f.len() > 0 {
				out = append(out, f)
			}
		}
		return out
	}
	a := free(left, func(f *set) bool { return pairs[f] != nil })
	b := free(right, func(f *set) bool { return taken[f] })
	if len(a) == 1 && len(b) == 1 {
		pairs[a[0]], taken[b[0]] = b[0], true
	}
	for _, f := range left {
		g := pairs[f]
		switch {
		case g == nil && f.len() == 0:
			d.out.Others = append(d.out.Others, control.OtherFile{Path: f.rel, What: "removed"})
		case g == nil:
			for i := range f.len() {
				if err := d.removed(f, i); err != nil {
					return err
				}
			}
		default:
			if err := d.files(ctx, f, g); err != nil {
				return err
			}
		}
	}
	for _, g := range right {
		switch {
		case taken[g]:
		case g.len() == 0:
			d.out.Others = append(d.out.Others, control.OtherFile{Path: g.rel, What: "added"})
		default:
			for i := range g.len() {
				if err := d.added(g, i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func refOf(file string, t *formats.Tensor) control.TensorRef {
	return control.TensorRef{File: file, Name: t.Name, DType: string(t.DType), Shape: shapeOf(t),
		Bytes: max(t.NumBytes(), 0)}
}

func shapeOf(t *formats.Tensor) []int64 {
	if t.Shape == nil {
		return []int64{}
	}
	return t.Shape
}

// files compares two files.
func (d *differ) files(ctx context.Context, a, b *set) error {
	if a.len() == 0 && b.len() == 0 {
		return d.others(a, b)
	}
	d.out.Files = append(d.out.Files, control.FilePair{A: a.path, B: b.path})
	for _, c := range []*set{a, b} {
		if c.one != nil {
			defer c.one.keep()()
		}
	}
	of, at := firsts(a), firsts(b)
	met := make([]bool, b.len())
	for i := range a.len() {
		name := a.nameOf(i)
		if of[name] != i {
			continue
		}
		j, ok := at[name]
		if !ok {
			if err := d.removed(a, i); err != nil {
				return err
			}
			continue
		}
		met[j] = true
		if err := d.tensors(ctx, a, a.at(i), b, b.at(j)); err != nil {
			return err
		}
		if err := d.tell(); err != nil {
			return err
		}
	}
	for j := range met {
		if !met[j] && at[b.nameOf(j)] == j {
			if err := d.added(b, j); err != nil {
				return err
			}
		}
	}
	d.rest(a, b)
	return d.objects(a, b)
}

// objects compares what two sets hold besides arrays.
func (d *differ) objects(a, b *set) error {
	if a.one != nil || b.one != nil {
		return nil // the one in another form
	}
	at := map[string]*sealed{}
	for i := range a.objects {
		at[a.objects[i].key] = &a.objects[i]
	}
	other := func(key, what string) {
		d.out.Others = append(d.out.Others, control.OtherFile{Path: path.Join(b.rel, key), What: what})
	}
	for i := range b.objects {
		y := &b.objects[i]
		x := at[y.key]
		delete(at, y.key)
		if x == nil {
			other(y.key, "added")
		} else if same, err := d.sameBytes(x, y); err != nil {
			return err
		} else if !same {
			other(y.key, "changed")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(at)) {
		other(key, "removed")
	}
	return nil
}

// rest tells of what two files hold besides the tensors that are listed.
func (d *differ) rest(a, b *set) {
	x, y := a.one, b.one
	switch {
	case x == nil || y == nil || !x.layout.Partial && !y.layout.Partial ||
		!x.whole.IsZero() && x.whole == y.whole:
	case x.hidden.IsZero() || y.hidden.IsZero() || x.layout.Format != y.layout.Format:
		d.out.Others = append(d.out.Others, control.OtherFile{Path: b.rel, What: "not compared: what it holds besides the tensors that are listed"})
	case x.hidden != y.hidden:
		d.out.Others = append(d.out.Others, control.OtherFile{Path: b.rel, What: "changed in what it holds besides the tensors that are listed"})
	}
}

// firsts is the first array of each name.
func firsts(c *set) map[string]int {
	first := make(map[string]int, c.len())
	for i := range c.len() {
		if name := c.nameOf(i); !mapHas(first, name) {
			first[name] = i
		}
	}
	return first
}

func mapHas(m map[string]int, k string) bool { _, ok := m[k]; return ok }

// maxCompared bounds the files without tensors that are compared byte by byte.
const maxCompared = 64 << 20

// others compares two files without tensors.
func (d *differ) others(a, b *set) error {
	x, y := a.one, b.one
	if x == nil || y == nil { // sets of nothing
		return nil
	}
	same := !x.whole.IsZero() && x.whole == y.whole
	if !same && x.size == y.size {
		if x.size > maxCompared {
			d.out.Others = append(d.out.Others, control.OtherFile{Path: b.rel, What: "not compared: it is large and holds no tensors"})
			return nil
		}
		var err error
		same, _, err = d.ins.compareBytes(&sealed{f: x, n: x.size}, &sealed{f: y, n: y.size})
		if err != nil {
			return &fs.PathError{Op: "diff", Path: b.path, Err: err}
		}
	}
	if !same {
		d.out.Others = append(d.out.Others, control.OtherFile{Path: b.rel, What: "changed"})
	}
	return nil
}
