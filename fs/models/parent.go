package models

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"ckptfs/cas/remote/record"
	"ckptfs/formats/safetensors"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	"ckptfs/index/ledger"
	"ckptfs/index/lineage"
	"ckptfs/index/runs"
)

// parentOfLocked chooses a parent: what another machine told, what the step declares, what the file was
// before it was written again, the step before, the one that it is computed from, the likely one.
func (s *reconciler) parentOfLocked(p *stepPlace, t *record.Told,
	likely func() uint64) (parent lineage.Candidate, merged []uint64, err error) {
	if t != nil {
		parent, merged = s.parentAsToldLocked(t)
		return parent, merged, nil
	}
	at := path.Join(steps.Dir, p.run, p.step.Name)
	var all []lineage.Candidate
	if d := s.says(p); d.Parent != "" {
		seq, err := s.declaredLocked(p, d.Parent)
		if err != nil {
			s.problems[at] = err.Error()
		} else {
			all = append(all, lineage.Candidate{Seq: seq, How: d.How()})
		}
	}
	merged = s.mergedFromLocked(p, at)
	if p.before != nil {
		all = append(all, lineage.Candidate{Seq: p.before.Seq, How: lineage.Previous})
	}
	before := s.found[p.run]
	for i := p.index - 1; i >= 0 && len(all) == 0; i-- {
		if s.o.Steps.State(before[i]) != control.StepComplete {
			continue
		}
		if seq := s.counterpartLocked(p.run, before[i], p.rel); seq != 0 {
			all = append(all, lineage.Candidate{Seq: seq, How: lineage.Previous})
		}
	}
	if len(all) == 0 {
		if from := s.reproducedFrom(p); len(from) > 0 {
			all = append(all, lineage.Candidate{Seq: from[0], How: lineage.Reproduced})
			if len(merged) == 0 {
				merged = from[1:]
			}
		} else if seq := likely(); seq != 0 {
			all = append(all, lineage.Candidate{Seq: seq, How: lineage.Inferred})
		}
	}
	parent, refused := s.book.Forest.Choose(s.book.Next(), all)
	for _, err := range refused {
		s.problems[at] = err.Error()
	}
	return parent, merged, nil
}

// mergedFromLocked are the further parents that a step declares.
func (s *reconciler) mergedFromLocked(p *stepPlace, at string) (merged []uint64) {
	for _, said := range s.says(p).MergedFrom {
		seq, err := s.declaredLocked(p, said)
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

// declaredLocked finds the model that a step names as a parent.
func (s *reconciler) declaredLocked(p *stepPlace, said string) (uint64, error) {
	to, err := ledger.Resolve(said, p.step.From(p.run), s.o.Mountpoint())
	if err != nil {
		return 0, err
	}
	if run, st, rel := s.stepOf(to); st != nil {
		was := rel
		if rel == "" {
			rel = p.rel
		} else if safetensors.IsIndex(rel) { // a set: file by file
			rel = path.Join(path.Dir(rel), path.Base(p.rel))
		}
		if seq := s.counterpartLocked(run, st, rel); seq != 0 {
			return seq, nil
		}
		if seq := s.firstOfSetLocked(run, st, was); seq != 0 {
			return seq, nil
		}
	}
	rel := p.rel
	if safetensors.IsIndex(to) {
		to, rel = path.Dir(to), path.Base(rel)
	}
	if e := s.tombstone(to, rel); e != nil {
		return e.Seq, nil
	}
	return 0, fmt.Errorf("parent %q: %w", said, ledger.ErrUnknown)
}

// counterpartLocked is the model of a step that corresponds to a file called rel: of the same name, else of
// the same name with another ending, else the only one that there is. 0 when there is none.
func (s *reconciler) counterpartLocked(run string, st *steps.Step, rel string) uint64 {
	stem := func(p string) string { return strings.TrimSuffix(p, path.Ext(p)) }
	var models []steps.File
	for _, f := range st.Files.All() {
		if p := s.fresh[f.Ino]; p != nil && p.state == 0 {
			_ = s.enterLocked(p) // a parent comes before its children; one that cannot be entered has none
		}
		if e := s.book.ByIno(f.Ino); e != nil {
			models = append(models, f)
		}
	}
	for _, same := range []func(f steps.File) bool{
		func(f steps.File) bool { return f.Rel == rel },
		func(f steps.File) bool { return stem(f.Rel) == stem(rel) },
		func(steps.File) bool { return len(models) == 1 },
	} {
		if i := slices.IndexFunc(models, same); i >= 0 {
			return s.book.ByIno(models[i].Ino).Seq
		}
	}
	return 0
}

// firstOfSetLocked is the model of the first file of the only set of a step, or of that with the index rel:
// it has the set's architecture, and stands for it where no file of the set is a child's counterpart. 0 when
// there is none.
func (s *reconciler) firstOfSetLocked(run string, st *steps.Step, rel string) (seq uint64) {
	for _, f := range st.Files.All() {
		if !safetensors.IsIndex(f.Rel) || rel != "" && f.Rel != rel {
			continue
		}
		if set := s.ReadShards(path.Join(steps.Dir, run, st.Name, f.Rel)); set != nil {
			first := path.Join(path.Dir(f.Rel), set.Files[0])
			if seq != 0 || !st.Files.Has(first) {
				return 0
			}
			seq = s.counterpartLocked(run, st, first)
		}
	}
	return seq
}

// tombstone is the last retired model that was at a path, or below it and called rel.
func (s *reconciler) tombstone(p, rel string) (last *ledger.Entry) {
	all := slices.DeleteFunc(s.book.At(p), func(e *ledger.Entry) bool { return e.RetiredAt == 0 })
	for _, e := range all {
		if e.Path == p || e.Path == path.Join(p, rel) {
			last = e
		}
	}
	if last == nil && len(all) > 0 {
		last = all[len(all)-1]
	}
	return last
}

// stepOf is the step that a path leads to or into, or nil, and what lies below it.
func (s *reconciler) stepOf(p string) (run string, st *steps.Step, rel string) {
	run, name, rel := steps.In(p)
	if i, is := slices.BinarySearchFunc(s.found[run], name, func(st *steps.Step, name string) int {
		return runs.Compare(st.Name, name)
	}); is {
		st = s.found[run][i]
	}
	return run, st, rel
}

// namesOneOf reports whether a step declares one of these, "run/step", a parent.
func (m *Models) namesOneOf(p stepAt, these map[string]bool) bool {
	one := func(said string) bool {
		to, err := ledger.Resolve(said, p.step.From(p.run), m.o.Mountpoint())
		run, step, _ := steps.In(to)
		return err == nil && these[run+"/"+step]
	}
	d := p.step.Declared()
	return one(d.Parent) || slices.ContainsFunc(d.MergedFrom, one)
}
