package models

import (
	"cmp"
	"maps"
	"slices"

	"ckptfs/cas"
	"ckptfs/cas/remote/record"
	"ckptfs/index/ledger"
	"ckptfs/index/lineage"
)

// told is what another machine told of the model that a file is; nil: nothing.
func (s *reconciler) told(p *stepPlace) *record.Told {
	b, err := s.o.Files.Attribute(p.path, p.ino, record.ToldAttr)
	if err != nil {
		return nil
	}
	t, err := record.DecodeTold(b)
	if err != nil || t.Model == nil || t.Manifest != p.manifest { // it was written again since
		return nil
	}
	return t
}

// parentAsToldLocked is the parent of a model, and what it was merged from, as another machine told.
func (s *reconciler) parentAsToldLocked(t *record.Told) (parent lineage.Candidate, merged []uint64) {
	for _, from := range t.Model.Merged {
		if seq := s.ancestorLocked(from, nil); seq != 0 && !slices.Contains(merged, seq) {
			merged = append(merged, seq)
		}
	}
	how, ok := lineage.ParseHow(t.Model.How)
	if !ok || how == lineage.None {
		return parent, merged
	}
	seq := s.ancestorLocked(t.Model.Parent, t.Above)
	parent, _ = s.book.Forest.Choose(s.book.Next(), []lineage.Candidate{{Seq: seq, How: how}})
	return parent, merged
}

// ancestorLocked is the model that another machine told of; above are its parent, and so on. One that is not
// here is a tombstone until it comes. 0: it cannot be told which it is.
func (s *reconciler) ancestorLocked(from record.Parent, above []record.Ancestor) uint64 {
	if p := s.at[from.Path]; p != nil && p.state == 0 && p.manifest == from.Manifest {
		_ = s.enterLocked(p) // one that cannot be entered is no parent
	}
	if e := s.byManifest(from); e != nil {
		return e.Seq
	}
	if from.Manifest.IsZero() || s.o.Most > 0 && s.book.Len() >= s.o.Most {
		return 0
	}
	e := &ledger.Entry{Path: from.Path, Manifest: from.Manifest, Time: s.o.Now().UnixNano()}
	if len(above) > 0 {
		how, ok := lineage.ParseHow(above[0].How)
		if parent := s.ancestorLocked(above[0].Parent, above[1:]); ok && how != lineage.None && parent != 0 {
			e.Parent, e.How = parent, how
		}
	}
	e.Seq = s.book.Next()
	if s.book.AddRetired(e, e.Time) != nil {
		return 0
	}
	return e.Seq
}

// byManifest is the model of a path that had a manifest: a live one, or the last that is no more. Where the
// manifest is not known, it is the last one of the path.
func (s *reconciler) byManifest(from record.Parent) (found *ledger.Entry) {
	for _, e := range s.book.At(from.Path) {
		if e.Path != from.Path || !from.Manifest.IsZero() && e.Manifest != from.Manifest {
			continue
		}
		if found == nil || e.RetiredAt == 0 || found.RetiredAt != 0 {
			found = e
		}
	}
	return found
}

// reviveLocked makes a file the model that it was told to be, before it came; nil: it was not.
func (s *reconciler) reviveLocked(p *stepPlace, t *record.Told) *ledger.Entry {
	e := s.byManifest(record.Parent{Path: p.path, Manifest: p.manifest})
	if t == nil || e == nil || !s.book.Revive(e, p.ino) {
		return nil
	}
	e.Time = p.mtime
	return e
}

// graphAsTold is a graph that another machine told of, if the store has it.
func (s *reconciler) graphAsTold(t *record.Told) (parts []cas.Hash) {
	for _, part := range t.Model.Graph {
		parts = append(parts, part.Hash)
	}
	locs := make([]cas.Location, len(parts))
	if err := s.o.Store.Locate(parts, locs); err != nil {
		return nil
	}
	if slices.ContainsFunc(locs, func(l cas.Location) bool { return l.Segment == 0 }) {
		return nil
	}
	return parts
}

// inheritedLocked brings up to date whose the tensors are of what comes from a model that is another now.
func (s *reconciler) inheritedLocked(from *ledger.Entry) {
	changed := map[uint64]bool{from.Seq: true}
	live := slices.SortedFunc(maps.Values(s.book.Live()), func(a, b *ledger.Entry) int {
		return cmp.Compare(a.Seq, b.Seq)
	})
	for _, e := range live {
		if !changed[e.Parent] || e.Tensors == 0 {
			continue
		}
		m := s.modelManifest(e.Manifest)
		if m == nil {
			continue
		}
		tensors, bytes, _ := modelTensors(m)
		owners := s.owners(e, tensors, e.Parent, e.How, nil)
		if !slices.Equal(owners, e.Owners) &&
			s.book.Reparent(e, e.Parent, e.How, owners, lineage.Shares(owners, bytes)) == nil {
			changed[e.Seq] = true
		}
	}
}
