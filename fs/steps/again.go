package steps

import (
	"context"
	"slices"

	"ckptfs/fs/tree"
	"ckptfs/index/runs"
)

// lookAgainLocked looks at the steps of a run that changed, where the run's directory did not. false: which
// steps the run has is to be found out by a look at all names.
func (s *Steps) lookAgainLocked(ctx context.Context, fd int, r *run, name string) (bool, error) {
	s.mu.AssertHeld()
	changed := r.changed
	r.listed, r.changed = false, nil
	sorted := slices.Clone(r.sorted)
	byKind := map[bool][]tree.DirEntry{}
	for step, was := range changed {
		if _, counted := find(sorted, step); was.IsFile && !counted { // beside folders with checkpoints
			return false, nil
		}
		byKind[was.IsFile] = append(byKind[was.IsFile], tree.DirEntry{Name: step})
	}
	for areFiles, entries := range byKind {
		found, err := s.lookAtSteps(ctx, fd, r, name, entries, areFiles)
		for _, st := range found {
			s.watch.keep(st)
		}
		if err != nil || len(found) < len(entries) {
			return false, err
		}
		for _, st := range found {
			if st.saved() != changed[st.Name].saved() { // whether files are steps depends on it
				return false, nil
			}
			sorted = place(sorted, st)
		}
	}
	r.listed, r.sorted = true, sorted
	return true, nil
}

// inOrder sorts steps. Most are among those that were sorted before: then hardly any name is compared.
func inOrder(before, all []*Step) []*Step {
	rest := make(map[*Step]bool, len(all))
	for _, st := range all {
		rest[st] = true
	}
	sorted := make([]*Step, 0, len(all))
	for _, some := range [][]*Step{before, all} {
		for _, st := range some {
			if rest[st] {
				delete(rest, st)
				sorted = append(sorted, st)
			}
		}
	}
	slices.SortFunc(sorted, func(a, b *Step) int { return runs.Compare(a.Name, b.Name) })
	return sorted
}

// place has a step be in the place of the one of its name, or where it belongs.
func place(sorted []*Step, st *Step) []*Step {
	i, there := find(sorted, st.Name)
	switch {
	case there && st.counts():
		sorted[i] = st
	case there:
		return slices.Delete(sorted, i, i+1)
	case st.counts():
		return slices.Insert(sorted, i, st)
	}
	return sorted
}

func find(sorted []*Step, name string) (i int, there bool) {
	return slices.BinarySearchFunc(sorted, name, func(st *Step, name string) int {
		return runs.Compare(st.Name, name)
	})
}

// counts reports whether a step is one of its run's: an empty directory is none.
func (st *Step) counts() bool { return st.Files.Len() > 0 || st.Problem != "" }

// saved reports whether a step is a directory with checkpoints.
func (st *Step) saved() bool {
	return !st.IsFile && slices.ContainsFunc(st.Files.rels, IsCheckpoint)
}
