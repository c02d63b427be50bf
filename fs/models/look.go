package models

import (
	"cmp"
	"context"
	"path"
	"slices"

	"ckptfs/cas"
	"ckptfs/fs/tree"
	"ckptfs/index/ledger"
)

// looked is what was found of the files of steps.
type looked struct {
	known   []*stepPlace // that are the models that they were
	again   []*stepPlace // that were written again
	open    []*stepPlace // that the ledger does not know
	inodes  map[uint64]bool
	claimed map[*ledger.Entry]bool
	over    []stepAt    // that were passed over
	gone    *lostModels // whose inodes are nowhere
}

// lookLocked looks at the files of steps. What the ledger has no room for is passed over, those that were
// written last: a place takes memory as a model does.
func (s *reconciler) lookLocked(ctx context.Context, todo []stepAt, present *present) (*looked, error) {
	l := &looked{inodes: map[uint64]bool{}, claimed: map[*ledger.Entry]bool{}}
	if s.o.Most > 0 {
		todo = slices.Clone(todo)
		slices.SortStableFunc(todo, func(a, b stepAt) int { return a.step.Time.Compare(b.step.Time) })
	}
	var gone []*ledger.Entry
	for _, e := range s.book.Live() {
		if !present.has(e.Ino) {
			gone = append(gone, e)
		}
	}
	l.gone = newLost(gone)
	for _, at := range todo {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at.stepProblem(s.problems)
		// One that is nowhere may be a new file: all are looked at then.
		if s.full(l) && len(gone) == 0 && !s.knowsOne(at) {
			l.over = append(l.over, at)
			continue
		}
		for i := range at.step.Files.Len() {
			if err := s.lookAtFile(l, at, i, present); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

// full reports whether there is no room for another new file.
func (s *reconciler) full(l *looked) bool {
	return s.o.Most > 0 && s.book.Len()+len(l.open) >= s.o.Most
}

// stepProblem sets, or clears, what is wrong with what a step says of its parents.
func (at stepAt) stepProblem(problems map[string]string) {
	if p := at.step.DeclaredProblem; p != "" {
		problems[at.path()] = p
	} else {
		delete(problems, at.path())
	}
}

// knowsOne reports whether a file of a step is a model.
func (s *reconciler) knowsOne(at stepAt) bool {
	for _, f := range at.step.Files.All() {
		if s.book.ByIno(f.Ino) != nil {
			return true
		}
	}
	return false
}

// lookAtFile looks at file i of a step.
func (s *reconciler) lookAtFile(l *looked, at stepAt, i int, present *present) error {
	f := at.step.Files.At(i)
	if !present.first(f.Ino, at.step, i) { // a further hard link
		return nil
	}
	p := &stepPlace{stepAt: at, rel: f.Rel, ino: f.Ino, size: f.Size, path: path.Join(at.path(), f.Rel)}
	ok, err := s.lookAtPlace(p)
	if err != nil {
		return err
	}
	e := s.book.ByIno(p.ino)
	if e != nil {
		l.inodes[p.ino] = true
	}
	switch {
	// elsewhere, what is not packed may be another file that got the inode
	case e != nil && (ok && e.Manifest == p.manifest || !ok && e.Path == p.path):
		l.claimed[e] = true
		if ok {
			l.known = append(l.known, p)
		}
	case e != nil && e.Path == p.path:
		l.claimed[e] = true
		p.before = e
		l.again = append(l.again, p)
	case ok && s.full(l) && len(l.gone.byManifest[p.manifest])+len(l.gone.byPath[p.path]) == 0:
		s.beyond = true
	case ok:
		l.open = append(l.open, p)
	}
	return nil
}

// anyModel reports whether files of steps may be models: those that are packed.
func anyModel(of []stepAt) bool {
	return slices.ContainsFunc(of, func(at stepAt) bool {
		for _, f := range at.step.Files.All() {
			if f.Size >= tree.HeaderSize {
				return true
			}
		}
		return false
	})
}

// lostModels are models that have no file any more, the earliest first.
type lostModels struct {
	all        []*ledger.Entry
	byManifest map[cas.Hash][]*ledger.Entry
	byPath     map[string][]*ledger.Entry
	taken      map[*ledger.Entry]bool
}

func newLost(all []*ledger.Entry) *lostModels {
	slices.SortFunc(all, func(a, b *ledger.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	l := &lostModels{all: all, byManifest: map[cas.Hash][]*ledger.Entry{},
		byPath: map[string][]*ledger.Entry{}, taken: map[*ledger.Entry]bool{}}
	for _, e := range all {
		l.byManifest[e.Manifest] = append(l.byManifest[e.Manifest], e)
		l.byPath[e.Path] = append(l.byPath[e.Path], e)
	}
	return l
}

// takeSame takes the model that has the manifest of a new file, and its path unless it may be from anywhere;
// nil: there is none.
func (l *lostModels) takeSame(p *stepPlace, anywhere bool) *ledger.Entry {
	if !anywhere {
		return l.take(l.byPath[p.path], func(e *ledger.Entry) bool { return e.Manifest == p.manifest })
	}
	rest := l.byManifest[p.manifest]
	for len(rest) > 0 && l.taken[rest[0]] { // which no other takes either
		rest = rest[1:]
	}
	l.byManifest[p.manifest] = rest
	return l.take(rest, func(*ledger.Entry) bool { return true })
}

// takePlace takes the model in whose place there is a new file.
func (l *lostModels) takePlace(p *stepPlace) *ledger.Entry {
	return l.take(l.byPath[p.path], func(*ledger.Entry) bool { return true })
}

func (l *lostModels) take(from []*ledger.Entry, is func(e *ledger.Entry) bool) *ledger.Entry {
	for _, e := range from {
		if !l.taken[e] && is(e) {
			l.taken[e] = true
			return e
		}
	}
	return nil
}
