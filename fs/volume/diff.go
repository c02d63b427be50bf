package volume

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/formats"
	"ckptfs/formats/numbers"
	"ckptfs/fs/control"
)

// comparand is a file as diff and find see it.
type comparand struct {
	path    string
	rel     string // below what was asked for
	node    *Node  // of the file, or of a view's source
	size    int64
	layout  *formats.Layout
	digests []cas.Hash // of each tensor's storage; nil for a file that is not packed
	whole   cas.Hash   // the manifest; zero for a file that is not packed
}

// comparandOf looks at one file. n stays referenced as long as the caller's reference does.
func (v *Volume) comparandOf(p string, n *Node) (*comparand, error) {
	a, err := v.Stat(n)
	if err != nil {
		return nil, err
	}
	if n.view != nil {
		n = n.view.src
	}
	if n.file == nil {
		return nil, errNotRegular
	}
	var out control.File
	layout, m, err := v.layoutOf(n, &out)
	if err != nil {
		return nil, err
	}
	f := &comparand{path: p, node: n, size: a.Size, layout: layout}
	if m != nil {
		f.digests = tensorDigests(m)
		n.file.mu.Lock()
		f.whole = n.file.rec.Manifest
		n.file.mu.Unlock()
	}
	return f, nil
}

// storage is what tells a tensor from others without its elements being read: zero when that cannot be told.
func (f *comparand) storage(i int) cas.Hash {
	t := &f.layout.Tensors[i]
	if f.digests == nil || t.Offset != 0 || !t.Contiguous() || t.Region < 0 || t.NumBytes() != f.layout.Regions[t.Region].Len {
		return cas.Hash{}
	}
	return f.digests[i]
}

// Diff compares the tensors of two files, steps or runs. Of a run it is the last complete step.
func (v *Volume) Diff(ctx context.Context, a, b string, progress func(control.Progress)) (*control.Diff, error) {
	d := &differ{v: v, report: progress, out: &control.Diff{
		A: a, B: b, Files: []control.FilePair{}, Changed: []control.TensorChange{}, Reshaped: []control.TensorChange{},
		Added: []control.TensorRef{}, Removed: []control.TensorRef{}, Others: []control.OtherFile{},
	}}
	defer d.close()
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
	v      *Volume
	out    *control.Diff
	report func(control.Progress)
	nodes  []*Node // referenced
}

func (d *differ) close() {
	for _, n := range d.nodes {
		d.v.unref(n, 1)
	}
}

// side lists the files of one side. *p becomes the step, when it was a run.
func (d *differ) side(ctx context.Context, p *string) ([]*comparand, error) {
	v := d.v
	n, err := v.resolve(*p)
	if err != nil {
		return nil, &fs.PathError{Op: "diff", Path: *p, Err: err}
	}
	d.nodes = append(d.nodes, n)
	if !n.IsDir() {
		f, err := v.comparandOf(*p, n)
		if err != nil {
			return nil, &fs.PathError{Op: "diff", Path: *p, Err: err}
		}
		f.rel = path.Base(*p)
		return []*comparand{f}, nil
	}
	if _, err := runOf(*p); err == nil {
		_, steps, err := v.oneRun(ctx, "diff", *p)
		if err != nil {
			return nil, err
		}
		i := len(steps) - 1
		for i >= 0 && v.stepState(steps[i]) != control.StepComplete {
			i--
		}
		if i >= 0 { // else it has files, but no steps
			*p = path.Join(*p, steps[i].name)
		}
	}
	var all []*comparand
	err = v.walk(ctx, *p, func(at string, n *Node) error {
		f, err := v.comparandOf(at, n)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return &fs.PathError{Op: "diff", Path: at, Err: err}
		}
		f.rel = strings.TrimPrefix(at, *p+"/")
		v.ref(n)
		d.nodes = append(d.nodes, n)
		all = append(all, f)
		return nil
	})
	return all, err
}

// compare pairs the files: by name, then by name without its ending, then what is left if there is one of each.
func (d *differ) compare(ctx context.Context, left, right []*comparand) error {
	pairs := map[*comparand]*comparand{}
	taken := map[*comparand]bool{}
	pair := func(key func(*comparand) string) {
		at := map[string]*comparand{}
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
	pair(func(f *comparand) string { return f.rel })
	holds := func(f *comparand) string { // a file without tensors is no other form of one with
		if len(f.layout.Tensors) > 0 {
			return "/tensors"
		}
		return ""
	}
	pair(func(f *comparand) string { return strings.TrimSuffix(f.rel, path.Ext(f.rel)) + holds(f) })
	free := func(all []*comparand, used func(*comparand) bool) (out []*comparand) {
		for _, f := range all {
			if !used(f) && len(f.layout.Tensors) > 0 {
				out = append(out, f)
			}
		}
		return out
	}
	a := free(left, func(f *comparand) bool { return pairs[f] != nil })
	b := free(right, func(f *comparand) bool { return taken[f] })
	if len(a) == 1 && len(b) == 1 {
		pairs[a[0]], taken[b[0]] = b[0], true
	}
	for _, f := range left {
		g := pairs[f]
		switch {
		case g == nil && len(f.layout.Tensors) == 0:
			d.out.Others = append(d.out.Others, control.OtherFile{Path: f.rel, What: "removed"})
		case g == nil:
			for i := range f.layout.Tensors {
				d.out.Removed = append(d.out.Removed, refOf(f, i))
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
		case len(g.layout.Tensors) == 0:
			d.out.Others = append(d.out.Others, control.OtherFile{Path: g.rel, What: "added"})
		default:
			for i := range g.layout.Tensors {
				d.out.Added = append(d.out.Added, refOf(g, i))
			}
		}
	}
	return nil
}

func refOf(f *comparand, i int) control.TensorRef {
	t := &f.layout.Tensors[i]
	return control.TensorRef{File: f.path, Name: t.Name, DType: string(t.DType), Shape: shapeOf(t), Bytes: t.NumBytes()}
}

func shapeOf(t *formats.Tensor) []int64 {
	if t.Shape == nil {
		return []int64{}
	}
	return t.Shape
}

// files compares two files.
func (d *differ) files(ctx context.Context, a, b *comparand) error {
	if len(a.layout.Tensors) == 0 && len(b.layout.Tensors) == 0 {
		return d.others(a, b)
	}
	d.out.Files = append(d.out.Files, control.FilePair{A: a.path, B: b.path})
	at := map[string]int{}
	for i := range b.layout.Tensors {
		if name := b.layout.Tensors[i].Name; !mapHas(at, name) {
			at[name] = i
		}
	}
	met := map[int]bool{}
	seen := map[string]bool{}
	for i := range a.layout.Tensors {
		t := &a.layout.Tensors[i]
		j, ok := at[t.Name]
		if seen[t.Name] {
			continue
		}
		seen[t.Name] = true
		if !ok {
			d.out.Removed = append(d.out.Removed, refOf(a, i))
			continue
		}
		met[j] = true
		if err := d.tensors(ctx, a, i, b, j); err != nil {
			return err
		}
	}
	for j := range b.layout.Tensors {
		if !met[j] && at[b.layout.Tensors[j].Name] == j {
			d.out.Added = append(d.out.Added, refOf(b, j))
		}
	}
	return nil
}

func mapHas(m map[string]int, k string) bool { _, ok := m[k]; return ok }

// maxCompared bounds the files without tensors that are compared byte by byte.
const maxCompared = 64 << 20

// others compares two files without tensors.
func (d *differ) others(a, b *comparand) error {
	same := !a.whole.IsZero() && a.whole == b.whole
	if !same && a.size == b.size {
		if a.size > maxCompared {
			d.out.Others = append(d.out.Others, control.OtherFile{Path: b.rel, What: "not compared: it is large and holds no tensors"})
			return nil
		}
		x, err := d.v.readFile(a.node, a.size)
		if err == nil {
			var y []byte
			if y, err = d.v.readFile(b.node, b.size); err == nil {
				same = string(x) == string(y)
			}
		}
		if err != nil {
			return &fs.PathError{Op: "diff", Path: b.path, Err: err}
		}
	}
	if !same {
		d.out.Others = append(d.out.Others, control.OtherFile{Path: b.rel, What: "changed"})
	}
	return nil
}

// tensors compares two tensors of one name.
func (d *differ) tensors(ctx context.Context, a *comparand, i int, b *comparand, j int) error {
	s, t := &a.layout.Tensors[i], &b.layout.Tensors[j]
	c := control.TensorChange{Name: t.Name, File: b.path, DTypeA: string(s.DType), DType: string(t.DType), ShapeA: shapeOf(s), Shape: shapeOf(t), Bytes: t.NumBytes()}
	x, y := a.storage(i), b.storage(j)
	if !slices.Equal(s.Shape, t.Shape) {
		c.SameBytes = s.DType == t.DType && !x.IsZero() && x == y
		d.out.Reshaped = append(d.out.Reshaped, c)
		return nil
	}
	if s.DType == t.DType && (!x.IsZero() && x == y || s.NumBytes() == 0) {
		d.equal(t)
		return nil
	}
	sum, same, err := d.read(ctx, a, s, b, t)
	if err != nil {
		return err
	}
	if same && s.DType == t.DType {
		d.equal(t)
		return nil
	}
	if sum != nil {
		c.Elements, c.ChangedElements, c.Special = sum.Elements, sum.Changed, sum.Special
		maxAbs, rel := control.Number(sum.MaxAbs), control.Number(sum.RelNorm())
		c.MaxAbs, c.RelNorm = &maxAbs, &rel
		if sum.Elements > 0 {
			c.Share = float64(sum.Changed) / float64(sum.Elements)
		}
	}
	d.out.Changed = append(d.out.Changed, c)
	return nil
}

func (d *differ) equal(t *formats.Tensor) {
	d.out.Equal++
	d.out.EqualBytes += t.NumBytes()
}

// read compares the elements of two tensors of one shape. No sum: they are not numbers to this program, and same says all.
func (d *differ) read(ctx context.Context, a *comparand, s *formats.Tensor, b *comparand, t *formats.Tensor) (sum *numbers.Comparison, same bool, err error) {
	x, err := d.open(a, s)
	if err != nil {
		return nil, false, err
	}
	defer x.done()
	y, err := d.open(b, t)
	if err != nil {
		return nil, false, err
	}
	defer y.done()
	known := numbers.Known(s.DType) && numbers.Known(t.DType)
	if !known && s.DType != t.DType {
		return nil, false, nil
	}
	same = true
	if known {
		sum = &numbers.Comparison{}
	}
	const most = 1 << 16 // elements at a time
	step := int64(most)
	wa, wb := int64(s.DType.Bits()/8), int64(t.DType.Bits()/8)
	n := s.NumElements()
	if !known {
		n, wa, wb, step = s.NumBytes(), 1, 1, 1<<20
	}
	p, q := make([]byte, step*wa), make([]byte, step*wb)
	for at := int64(0); at < n; at += step {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		k := min(step, n-at)
		p, q := p[:k*wa], q[:k*wb]
		if err := x.read(p, at*wa); err != nil {
			return nil, false, err
		}
		if err := y.read(q, at*wb); err != nil {
			return nil, false, err
		}
		d.out.ReadBytes += int64(len(p) + len(q))
		if wa != wb || string(p) != string(q) {
			same = false
		}
		if known {
			sum.Add(s.DType, p, t.DType, q)
		}
		if d.report != nil {
			d.report(control.Progress{DoneBytes: d.out.ReadBytes, Current: b.path})
		}
	}
	return sum, same, nil
}

func (d *differ) open(f *comparand, t *formats.Tensor) (*tensorReader, error) {
	r, err := d.v.openTensor(f, t)
	if err != nil {
		return nil, &fs.PathError{Op: "diff", Path: f.path, Err: fmt.Errorf("tensor %s: %w", t.Name, err)}
	}
	return r, nil
}
