package volume

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/control"
	"ckptfs/index/ledger"
	"ckptfs/index/lineage"
	"ckptfs/index/manifest"
	"ckptfs/index/runs"
)

// stepPlace is a file in a step, in what was found at one moment.
type stepPlace struct {
	run   string
	index int // of its step
	step  *step
	rel   string
	ino   uint64
	path  string

	manifest cas.Hash
	mtime    int64
	before   *ledger.Entry // what this inode was
	state    int           // of a new model: 0 not entered, 1 about to be, 2 done
}

// from is where the relative paths that its step says begin.
func (p *stepPlace) from() string {
	if p.step.file {
		return path.Join(runsDir, p.run)
	}
	return path.Join(runsDir, p.run, p.step.name)
}

// settling is one settle.
type settling struct {
	*models
	v     *Volume
	found map[string][]*step
	fresh map[uint64]*stepPlace // files to be entered, by inode

	// Sidecars, by path. One that no model of its step can take is a problem.
	refused map[string]error
	taken   map[string]bool

	sets map[string]*shards // by their indices; nil: it is none
}

// settle brings the ledger up to date with the tree. m.mu is held.
func (m *models) settle(ctx context.Context, v *Volume) error {
	m.stale.Store(false)
	err := m.settleNow(ctx, v)
	said := make([]string, 0, len(m.problems))
	for at, problem := range m.problems {
		said = append(said, at+": "+problem)
	}
	for at, st := range m.seen {
		if st.problem != "" {
			said = append(said, path.Join(runsDir, at)+": "+st.problem)
		}
	}
	slices.Sort(said)
	m.said.Store(&said)
	if err != nil {
		m.stale.Store(true)
	}
	return err
}

func (m *models) settleNow(ctx context.Context, v *Volume) error {
	if err := m.load(v); err != nil {
		return err
	}
	found, err := v.stepsOf()
	if err != nil {
		return err
	}
	s := &settling{models: m, v: v, found: found, fresh: map[uint64]*stepPlace{}, refused: map[string]error{}, taken: map[string]bool{}, sets: map[string]*shards{}}
	there := map[string]bool{}
	present := map[uint64]string{} // inode → path; of several the first
	var places []*stepPlace
	changed := map[string]bool{} // steps, "run/step", that are new, another or gone
	var same []*stepPlace
	names := slices.SortedFunc(maps.Keys(found), runs.Compare)
	for _, run := range names {
		for i, st := range found[run] {
			key := run + "/" + st.name
			there[key] = true
			for _, f := range st.files {
				if p := path.Join(runsDir, key, f.rel); present[f.ino] == "" {
					present[f.ino] = p
				}
			}
			known := m.seen[key] == st
			changed[key] = !known
			if v.stepState(st) != control.StepComplete || known && st.declared.IsZero() {
				continue
			}
			for _, f := range st.files {
				p := &stepPlace{run: run, index: i, step: st, rel: f.rel, ino: f.ino, path: path.Join(runsDir, key, f.rel)}
				if known {
					same = append(same, p)
				} else {
					places = append(places, p)
				}
			}
		}
	}
	for key := range m.seen {
		if !there[key] {
			changed[key] = true
			delete(m.seen, key)
			delete(m.problems, path.Join(runsDir, key))
		}
	}
	maps.DeleteFunc(changed, func(_ string, is bool) bool { return !is })
	// What a step says of others may be so now, or be so no more.
	for _, p := range same {
		if len(changed) > 0 && (m.problems[path.Join(runsDir, p.run, p.step.name)] != "" || v.namesOneOf(p, changed)) {
			places = append(places, p)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	m.recheck = true
	if err := s.files(ctx, places, present); err != nil {
		return err
	}
	for _, run := range names {
		for _, st := range found[run] {
			if v.stepState(st) == control.StepComplete {
				m.seen[run+"/"+st.name] = st
			}
		}
	}
	return nil
}

// namesOneOf reports whether a step declares one of these, "run/step", a parent.
func (v *Volume) namesOneOf(p *stepPlace, steps map[string]bool) bool {
	one := func(said string) bool {
		to, err := ledger.Resolve(said, p.from(), v.mountpoint)
		run, step, _ := stepIn(to)
		return err == nil && steps[run+"/"+step]
	}
	return one(p.step.declared.Parent) || slices.ContainsFunc(p.step.declared.MergedFrom, one)
}

// files enters what is new among places, and makes tombstones of what is gone.
func (s *settling) files(ctx context.Context, places []*stepPlace, present map[uint64]string) error {
	v, book := s.v, s.book
	now := v.now().UnixNano()
	var known, open, order []*stepPlace
	looked, claimed := map[uint64]bool{}, map[*ledger.Entry]bool{}
	for _, p := range places {
		delete(s.problems, path.Join(runsDir, p.run, p.step.name))
	}
	for _, p := range places {
		if err := ctx.Err(); err != nil {
			return err
		}
		if present[p.ino] != p.path || looked[p.ino] { // a further hard link
			continue
		}
		looked[p.ino] = true
		ok, err := v.lookAtPlace(p)
		if err != nil {
			return err
		}
		e := book.ByIno(p.ino)
		switch {
		case e != nil && (ok && e.Manifest == p.manifest || !ok && e.Path == p.path): // elsewhere, what is not packed may be another file that got the inode
			claimed[e] = true
			if ok {
				known = append(known, p)
			}
		case e != nil && e.Path == p.path: // written again
			claimed[e] = true
			p.before = e
			order = append(order, p)
		case ok:
			open = append(open, p)
		}
	}
	// What has no file any more. Its inode may be another file's by now; in a store that was copied every inode is another. So
	// a file that is new is first looked for among these, by its manifest.
	var lost []*ledger.Entry
	for _, e := range book.Live() {
		if !claimed[e] && (present[e.Ino] == "" || looked[e.Ino]) {
			lost = append(lost, e)
		}
	}
	slices.SortFunc(lost, func(a, b *ledger.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	take := func(is func(e *ledger.Entry) bool) *ledger.Entry {
		i := slices.IndexFunc(lost, is)
		if i < 0 {
			return nil
		}
		e := lost[i]
		lost = slices.Delete(lost, i, i+1)
		return e
	}
	moved := map[*stepPlace]*ledger.Entry{}
	for _, anywhere := range []bool{false, true} {
		for _, p := range open {
			if moved[p] == nil {
				if e := take(func(e *ledger.Entry) bool { return e.Manifest == p.manifest && (anywhere || e.Path == p.path) }); e != nil {
					moved[p] = e
				}
			}
		}
	}
	for _, p := range open {
		if moved[p] == nil {
			p.before = take(func(e *ledger.Entry) bool { return e.Path == p.path }) // another file in its place
			order = append(order, p)
		}
	}
	for _, e := range lost {
		book.Retire(e.Seq, now)
	}
	for _, e := range moved {
		book.Detach(e)
	}
	for _, p := range order {
		if p.before != nil {
			book.Detach(p.before)
		}
		s.fresh[p.ino] = p
	}
	for p, e := range moved {
		book.Move(e, p.ino, p.path)
		known = append(known, p)
	}
	for _, e := range slices.Collect(maps.Values(book.Live())) {
		if at := present[e.Ino]; at != "" {
			book.Move(e, e.Ino, at)
		}
	}
	slices.SortStableFunc(order, func(a, b *stepPlace) int {
		return cmp.Or(cmp.Compare(a.mtime, b.mtime), runs.Compare(a.path, b.path))
	})
	for _, p := range order {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.enter(p); err != nil {
			return err
		}
	}
	for _, p := range known { // a sidecar may have come late
		if err := s.again(p); err != nil {
			return err
		}
	}
	for _, p := range places {
		at := path.Join(runsDir, p.run, p.step.name)
		file := path.Join(at, p.rel)
		if err := s.refused[file]; err != nil && !s.taken[file] {
			s.problems[at] = fmt.Sprintf("%s: %v", cmp.Or(p.rel, p.step.name), err)
		}
	}
	return nil
}

// lookAtPlace reads the record of a file, which may be any with p.ino 0. False when the file is no model: not packed, or gone.
func (v *Volume) lookAtPlace(p *stepPlace) (bool, error) {
	n, err := v.resolve(p.path)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer v.unref(n, 1)
	if n.file == nil || p.ino != 0 && n.ino != p.ino {
		return false, nil
	}
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	if err := v.load(n); err != nil {
		return false, err
	}
	p.manifest, p.mtime = n.file.rec.Manifest, n.file.rec.Mtime
	return n.file.rec.Packed(), nil
}

// manifestOf reads a manifest; nil when it cannot be read or names no tensors.
func (v *Volume) modelManifest(h cas.Hash) *manifest.Manifest {
	m, err := v.asm.Manifest(h)
	if err != nil || len(m.Tensors) == 0 {
		return nil
	}
	return m
}

// enter makes a model of a file.
func (s *settling) enter(p *stepPlace) error {
	if p.state != 0 {
		return nil
	}
	p.state = 1
	defer func() { p.state = 2 }()
	v, book := s.v, s.book
	m := v.modelManifest(p.manifest)
	if m == nil {
		if p.before != nil {
			book.Retire(p.before.Seq, v.now().UnixNano())
		}
		return nil
	}
	tensors, bytes, marks := modelTensors(m)
	parent, merged, err := s.parentOf(p, func() uint64 { return s.likely(p, m, tensors, marks) })
	if err != nil {
		return err
	}
	e := &ledger.Entry{Ino: p.ino, Manifest: p.manifest, Path: p.path, Time: p.mtime, Size: m.Size, Tensors: len(tensors), Marks: marks}
	e.Seq = book.Next()
	e.Parent, e.How, e.MergedFrom = parent.Seq, parent.How, merged
	if e.Parent == 0 {
		e.How = lineage.None
	}
	g, from, _ := s.blueprintOf(p, m, "")
	s.keepGraph(e, g, from)
	e.Owners = s.owners(e, tensors, e.Parent, e.How, p.step.declared.Tensors)
	e.Owned = lineage.Shares(e.Owners, bytes)
	if p.before != nil { // written again: what it was is no more, and its parent
		book.Retire(p.before.Seq, v.now().UnixNano())
	}
	if err := book.Add(e); err != nil {
		// No owner but an ancestor is ever named; should it be, the model stands alone.
		e.Parent, e.How, e.MergedFrom = 0, lineage.None, nil
		e.Owners = lineage.Inherit(e.Seq, tensors, nil)
		e.Owned = lineage.Shares(e.Owners, bytes)
		return book.Add(e)
	}
	return nil
}

// owners is who owns each tensor of e as a child of parent. renamed is what the step says of their names.
func (s *settling) owners(e *ledger.Entry, tensors []lineage.Tensor, parent uint64, how lineage.How, renamed map[string]string) []uint64 {
	seq := e.Seq
	pe := s.book.Get(parent)
	if pe == nil {
		return lineage.Inherit(seq, tensors, nil)
	}
	if how == lineage.Transfer {
		renamed = s.v.transferred(e, pe, renamed)
	}
	owners := pe.Owners
	if pm := s.v.modelManifest(pe.Manifest); pm != nil && (len(owners) == len(pm.Tensors) || owners == nil) {
		theirs, _, _ := modelTensors(pm)
		if owners == nil { // retired: what it had of others is forgotten, what the child has of it is not
			owners = lineage.Inherit(parent, theirs, nil)
		}
		return lineage.Inherit(seq, tensors, &lineage.Parent{Tensors: theirs, Owners: owners, Read: renamed})
	}
	return lineage.Inherit(seq, tensors, nil)
}

// parentOf chooses a parent: what the step declares, what the file was before it was written again, the step before, the likely one.
func (s *settling) parentOf(p *stepPlace, likely func() uint64) (parent lineage.Candidate, merged []uint64, err error) {
	at := path.Join(runsDir, p.run, p.step.name)
	var all []lineage.Candidate
	if d := p.step.declared; d.Parent != "" {
		seq, err := s.declared(p, d.Parent)
		if err != nil {
			s.problems[at] = err.Error()
		} else {
			all = append(all, lineage.Candidate{Seq: seq, How: d.How()})
		}
	}
	merged = s.mergedFrom(p, at)
	if p.step.declaredProblem != "" {
		s.problems[at] = p.step.declaredProblem
	}
	if p.before != nil {
		all = append(all, lineage.Candidate{Seq: p.before.Seq, How: lineage.Previous})
	}
	steps := s.found[p.run]
	for i := p.index - 1; i >= 0 && len(all) == 0; i-- {
		if s.v.stepState(steps[i]) != control.StepComplete {
			continue
		}
		if seq := s.counterpart(p.run, steps[i], p.rel); seq != 0 {
			all = append(all, lineage.Candidate{Seq: seq, How: lineage.Previous})
		}
	}
	if len(all) == 0 {
		if seq := likely(); seq != 0 {
			all = append(all, lineage.Candidate{Seq: seq, How: lineage.Inferred})
		}
	}
	parent, refused := s.book.Forest.Choose(s.book.Next(), all)
	for _, err := range refused {
		s.problems[at] = err.Error()
	}
	return parent, merged, nil
}

// mergedFrom are the further parents that a step declares.
func (s *settling) mergedFrom(p *stepPlace, at string) (merged []uint64) {
	for _, said := range p.step.declared.MergedFrom {
		seq, err := s.declared(p, said)
		if err != nil {
			s.problems[at] = err.Error()
			continue
		}
		if !slices.Contains(merged, seq) {
			merged = append(merged, seq)
		}
	}
	return merged
}

// stepIn takes a path apart: the run and the step that it leads to or into, and what lies below the step. The step is "" where the path leads to none.
func stepIn(p string) (run, step, rel string) {
	if parts := strings.SplitN(p, "/", 4); len(parts) >= 3 && parts[0] == runsDir {
		return parts[1], parts[2], strings.Join(parts[3:], "")
	}
	return "", "", ""
}

// stepOf is the step that a path leads to or into, or nil, and what lies below it.
func (s *settling) stepOf(p string) (run string, st *step, rel string) {
	run, name, rel := stepIn(p)
	if i := slices.IndexFunc(s.found[run], func(st *step) bool { return st.name == name }); i >= 0 {
		st = s.found[run][i]
	}
	return run, st, rel
}

// declared finds the model that a step names as a parent.
func (s *settling) declared(p *stepPlace, said string) (uint64, error) {
	to, err := ledger.Resolve(said, p.from(), s.v.mountpoint)
	if err != nil {
		return 0, err
	}
	if run, st, rel := s.stepOf(to); st != nil {
		if rel == "" {
			rel = p.rel
		} else if isIndex(rel) { // a set: file by file
			rel = path.Join(path.Dir(rel), path.Base(p.rel))
		}
		if seq := s.counterpart(run, st, rel); seq != 0 {
			return seq, nil
		}
	}
	if e := s.tombstone(to, p.rel); e != nil {
		return e.Seq, nil
	}
	return 0, fmt.Errorf("parent %q: %w", said, ledger.ErrUnknown)
}

// tombstone is the last retired model that was at a path, or below it and called rel.
func (s *settling) tombstone(p, rel string) (last *ledger.Entry) {
	for _, e := range s.book.All() {
		if e.RetiredAt != 0 && (e.Path == p || e.Path == path.Join(p, rel)) {
			last = e
		}
	}
	if last == nil {
		for _, e := range s.book.All() {
			if e.RetiredAt != 0 && strings.HasPrefix(e.Path, p+"/") {
				last = e
			}
		}
	}
	return last
}

// counterpart is the model of a step that corresponds to a file called rel: of the same name, else of the same name with another
// ending, else the only one that there is. 0 when there is none.
func (s *settling) counterpart(run string, st *step, rel string) uint64 {
	stem := func(p string) string { return strings.TrimSuffix(p, path.Ext(p)) }
	var models []stepFile
	for _, f := range st.files {
		if p := s.fresh[f.ino]; p != nil && p.state == 0 {
			_ = s.enter(p) // a parent comes before its children; who cannot be entered has none
		}
		if e := s.book.ByIno(f.ino); e != nil {
			models = append(models, f)
		}
	}
	for _, same := range []func(f stepFile) bool{
		func(f stepFile) bool { return f.rel == rel }, func(f stepFile) bool { return stem(f.rel) == stem(rel) },
		func(stepFile) bool { return len(models) == 1 },
	} {
		if i := slices.IndexFunc(models, same); i >= 0 {
			return s.book.ByIno(models[i].ino).Seq
		}
	}
	return 0
}

// again looks whether a model's step says something else of its architecture or its parent now.
func (s *settling) again(p *stepPlace) error {
	e := s.book.ByIno(p.ino)
	at := path.Join(runsDir, p.run, p.step.name)
	d := p.step.declared
	otherNames := false // what began as what may be known otherwise now
	if e != nil {
		if m := s.v.modelManifest(e.Manifest); m != nil {
			g, from, same := s.blueprintOf(p, m, e.GraphFrom)
			if !same {
				s.keepGraph(e, g, from)
				s.book.Change(e)
			}
			otherNames = d.Transfer && (!same || len(s.seen) > 0)
		}
	}
	if p.step.declaredProblem != "" {
		s.problems[at] = p.step.declaredProblem
		return nil
	}
	if e == nil || d.IsZero() {
		return nil
	}
	if merged := s.mergedFrom(p, at); len(merged) > 0 && !slices.Equal(merged, e.MergedFrom) {
		if err := s.book.Merge(e, merged); err != nil {
			s.problems[at] = err.Error()
		}
	}
	if d.Parent == "" {
		return nil
	}
	seq, err := s.declared(p, d.Parent)
	if err == nil && seq == e.Parent && e.How == d.How() && !otherNames {
		return nil
	}
	if err == nil && seq >= e.Seq {
		err = fmt.Errorf("parent %q was saved after its child: %w", d.Parent, lineage.ErrParent)
	}
	if err != nil {
		s.problems[at] = err.Error()
		return nil
	}
	m := s.v.modelManifest(e.Manifest)
	if m == nil {
		return nil
	}
	tensors, bytes, _ := modelTensors(m)
	owners := s.owners(e, tensors, seq, d.How(), d.Tensors)
	if seq == e.Parent && e.How == d.How() && slices.Equal(owners, e.Owners) {
		return nil
	}
	if err := s.book.Reparent(e, seq, d.How(), owners, lineage.Shares(owners, bytes)); err != nil {
		s.problems[at] = err.Error()
	}
	return nil
}

// modelTensors is what the lineage knows tensors by: in the manifest's order, with their bytes, and the marks of the largest.
func modelTensors(m *manifest.Manifest) (tensors []lineage.Tensor, bytes []int64, marks []uint64) {
	objects := tensorDigests(m)
	users := map[int]int{}
	for i := range m.Tensors {
		users[m.Tensors[i].Region]++
	}
	tensors, bytes = make([]lineage.Tensor, len(m.Tensors)), make([]int64, len(m.Tensors))
	order := make([]int, 0, len(m.Tensors))
	for i := range m.Tensors {
		t := &m.Tensors[i]
		content := objects[i]
		switch {
		case t.NumBytes() == 0:
			content = cas.Hash{}
		case content.IsZero(): // of several objects: like no other
			content = cas.Sum(fmt.Appendf(nil, "%d of %d tensors of %d bytes", i, len(m.Tensors), m.Size))
			for _, o := range m.Objects {
				content = cas.Sum(append(content[:], o.Digest[:]...))
			}
		case t.Offset != 0 || !t.Contiguous() || t.NumBytes() != m.Regions[t.Region].Len:
			content = cas.Sum(fmt.Appendf(nil, "%s at %d by %v", content, t.Offset, t.Stride))
		}
		tensors[i] = lineage.Tensor{Name: t.Name, Digest: lineage.Digest(string(t.DType), t.Shape, content)}
		if t.Region >= 0 && users[t.Region] > 1 {
			tensors[i].Tie = t.Region + 1
		}
		bytes[i] = t.NumBytes()
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(bytes[b], bytes[a]) })
	for _, i := range order {
		if bytes[i] < minTelling || len(marks) == ledger.MaxMarks {
			break
		}
		if mark := ledger.Mark(tensors[i].Digest); !slices.Contains(marks, mark) {
			marks = append(marks, mark)
		}
	}
	return tensors, bytes, marks
}
