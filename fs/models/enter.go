package models

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/steps"
	"ckptfs/index/graph"
	"ckptfs/index/ledger"
	"ckptfs/index/lineage"
	"ckptfs/index/manifest"
)

// enterLocked makes a model of a file.
func (s *reconciler) enterLocked(p *stepPlace) error {
	if p.state != 0 {
		return nil
	}
	p.state = 1
	defer func() { p.state = 2 }()
	if s.o.Most > 0 && s.book.Len() >= s.o.Most && p.before == nil {
		s.beyond = true
		return nil
	}
	t := s.told(p)
	var m *manifest.Manifest
	if !p.remote {
		m = s.modelManifest(p.manifest)
	}
	if m == nil && (!p.remote || t == nil) {
		s.noLongerLocked(p)
		return nil
	}
	if e := s.reviveLocked(p, t); e != nil {
		s.noLongerLocked(p)
		s.describeLocked(p, e, m, t)
		return nil
	}
	e := &ledger.Entry{Ino: p.ino, Manifest: p.manifest, Path: p.path, Time: p.mtime, Size: p.size}
	var bytes []int64
	var tensors []lineage.Tensor
	if m != nil {
		tensors, bytes, e.Marks = modelTensors(m)
		e.Size, e.Tensors = m.Size, len(tensors)
	}
	parent, merged, err := s.parentOfLocked(p, t, func() uint64 {
		if m == nil {
			return 0
		}
		if seq := s.likely(p, m, tensors, e.Marks); seq != 0 {
			return seq
		}
		return s.roundedFrom(p, m)
	})
	if err != nil {
		return err
	}
	e.Seq = s.book.Next()
	e.Parent, e.How, e.MergedFrom = parent.Seq, parent.How, merged
	if e.Parent == 0 {
		e.How = lineage.None
	}
	s.graphLocked(p, e, m, t)
	if m != nil {
		e.Owners = s.owners(e, tensors, e.Parent, e.How, s.says(p).Tensors)
		e.Owned = lineage.Shares(e.Owners, bytes)
	}
	s.noLongerLocked(p)
	if err := s.book.Add(e); err != nil {
		// No owner but an ancestor is ever named; should it be, the model stands alone.
		e.Parent, e.How, e.MergedFrom = 0, lineage.None, nil
		e.Owners = lineage.Inherit(e.Seq, tensors, nil)
		e.Owned = lineage.Shares(e.Owners, bytes)
		return s.book.Add(e)
	}
	return nil
}

// noLongerLocked retires what a file was before it was written again, with its parent.
func (s *reconciler) noLongerLocked(p *stepPlace) {
	if p.before != nil {
		s.book.Retire(p.before.Seq, s.o.Now().UnixNano())
	}
}

// describeLocked sets what of a model only its bytes tell, which are here now.
func (s *reconciler) describeLocked(p *stepPlace, e *ledger.Entry, m *manifest.Manifest, t *record.Told) {
	if s.graphLocked(p, e, m, t) {
		s.book.Change(e)
	}
	if m == nil {
		return
	}
	tensors, bytes, marks := modelTensors(m)
	s.book.Describe(e, m.Size, len(tensors), marks)
	e.Owners = lineage.Inherit(e.Seq, tensors, nil)
	owners := s.owners(e, tensors, e.Parent, e.How, s.says(p).Tensors)
	if s.book.Reparent(e, e.Parent, e.How, owners, lineage.Shares(owners, bytes)) == nil {
		s.inheritedLocked(e)
	}
}

// graphLocked sets the architecture of a model, whose manifest is nil where its bytes are not here. It
// reports whether it is another now. What another machine told is better than what the tensors make one
// guess.
func (s *reconciler) graphLocked(p *stepPlace, e *ledger.Entry, m *manifest.Manifest, t *record.Told) bool {
	var g *graph.Graph
	from := ""
	if m != nil {
		var same bool
		if g, from, same = s.graphOf(p, m, e.GraphFrom); same {
			return false
		}
	}
	if t == nil {
		t = s.told(p)
	}
	if t != nil && (m == nil || g != nil && g.Kind >= graph.Seq || g == nil && from == "") {
		parts := s.graphAsTold(t)
		if said := t.Model.Source; len(parts) > 0 || m == nil && strings.HasPrefix(said, partOf) {
			changed := !slices.Equal(parts, e.Graph) || said != e.GraphFrom
			e.Graph, e.GraphFrom = parts, said
			return changed
		}
	}
	changed := g != nil || len(e.Graph) > 0 || from != e.GraphFrom
	s.keepGraphLocked(e, g, from)
	return changed
}

// againLocked looks whether a model's step says something else of its architecture or its parent now.
func (s *reconciler) againLocked(p *stepPlace) error {
	e := s.book.ByIno(p.ino)
	at := path.Join(steps.Dir, p.run, p.step.Name)
	d := s.says(p)
	otherNames := false // what began as what may be known otherwise now
	if p.remote {
		return nil
	}
	if e != nil {
		if m := s.modelManifest(e.Manifest); m != nil {
			if e.Tensors == 0 { // its bytes came
				s.describeLocked(p, e, m, nil)
			}
			changed := s.graphLocked(p, e, m, nil)
			if changed {
				s.book.Change(e)
			}
			otherNames = d.Transfer && (changed || len(s.seen) > 0)
		}
	}
	if e == nil || d.IsZero() {
		return nil
	}
	if merged := s.mergedFromLocked(p, at); len(merged) > 0 && !slices.Equal(merged, e.MergedFrom) {
		if err := s.book.Merge(e, merged); err != nil {
			s.problems[at] = err.Error()
		}
	}
	if d.Parent == "" {
		return nil
	}
	seq, err := s.declaredLocked(p, d.Parent)
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
	m := s.modelManifest(e.Manifest)
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

// owners are the models that own each tensor of e as a child of parent. renamed is what the step says of
// their names.
func (s *reconciler) owners(e *ledger.Entry, tensors []lineage.Tensor, parent uint64, how lineage.How,
	renamed map[string]string) []uint64 {
	seq := e.Seq
	pe := s.book.Get(parent)
	if pe == nil {
		return lineage.Inherit(seq, tensors, nil)
	}
	if how == lineage.Transfer {
		renamed = s.transferred(e, pe, renamed)
	}
	if pe.Tensors == 0 && pe.RetiredAt == 0 { // its bytes are not here
		return lineage.Inherit(seq, tensors, nil)
	}
	owners := pe.Owners
	if pm := s.modelManifest(pe.Manifest); pm != nil && (len(owners) == len(pm.Tensors) || owners == nil) {
		theirs, _, _ := modelTensors(pm)
		if owners == nil { // retired: what it had of others is forgotten, what the child has of it is not
			owners = lineage.Inherit(parent, theirs, nil)
		}
		return lineage.Inherit(seq, tensors, &lineage.Parent{Tensors: theirs, Owners: owners, Read: renamed})
	}
	return lineage.Inherit(seq, tensors, nil)
}

// modelManifest reads a manifest; nil when it cannot be read or names no tensors.
func (m *Models) modelManifest(h cas.Hash) *manifest.Manifest {
	doc, err := m.o.Manifest(h)
	if err != nil || len(doc.Tensors) == 0 {
		return nil
	}
	return doc
}

// modelTensors is what the lineage knows tensors by: in the manifest's order, with their bytes, and the marks
// of the largest.
func modelTensors(m *manifest.Manifest) (tensors []lineage.Tensor, bytes []int64, marks []uint64) {
	objects := m.Digests()
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
