package steps

import (
	"slices"

	"ckptfs/cas/locks"
)

// The locks of this package, in the order in which they may be taken. Under lookLock files are opened and
// read.
type (
	lookLock  struct{} // Steps.mu
	watchLock struct{} // watch.mu, a leaf
	newsLock  struct{} // news.mu, a leaf
)

func (lookLock) Rank() (int, string)  { return locks.Volume + 2, "Steps.mu" }
func (watchLock) Rank() (int, string) { return locks.Volume + 980, "watch.mu" }
func (newsLock) Rank() (int, string)  { return locks.Volume + 981, "news.mu" }

// watch says which steps a changed inode is of.
type watch struct {
	mu      locks.Mutex[watchLock]
	looking bool // what is looked at is not watched yet
	changes map[uint64]bool
	steps   map[uint64][]*Step // by the inodes of their files and directories, see near
	runs    map[uint64]*run    // by their inodes
	tops    [2]uint64          // the inodes of the root and of runs/
	prints  map[*Step]Print    // of steps with files recorded since their look; zero: not taken yet

	// early is what changed since this process began, until Untouched; nil from then on, or when it was much
	early map[uint64]bool
}

// maxEarly bounds watch.early.
const maxEarly = 1 << 16

// near is what watch.steps has a step by, of an inode of it. A filesystem numbers what is made together one
// after the other, so there are few for each step, and few steps for each: an entry for each inode would take
// half of what is known of a step.
func near(ino uint64) uint64 { return ino / 64 }

// fewFiles is how many files of a step are looked through for an inode. One that has more counts as having
// what is near: at worst it is looked at once more.
const fewFiles = 128

// withLocked are the steps that an inode is of.
func (w *watch) withLocked(ino uint64) (all []*Step) {
	w.mu.AssertHeld()
	for _, st := range w.steps[near(ino)] {
		if st.mayHave(ino) {
			all = append(all, st)
		}
	}
	return all
}

func (st *Step) mayHave(ino uint64) bool {
	if st.Files.Len() > fewFiles || len(st.Dirs) > fewFiles {
		return true
	}
	for own := range st.inodes {
		if own == ino {
			return true
		}
	}
	return false
}

// changedLocked reports whether a step has changed since it was looked at.
func (w *watch) changedLocked(st *Step) bool {
	w.mu.AssertHeld()
	for ino := range st.inodes {
		if w.changes[ino] {
			return true
		}
	}
	return false
}

func newWatch() watch {
	return watch{changes: map[uint64]bool{}, steps: map[uint64][]*Step{}, runs: map[uint64]*run{},
		prints: map[*Step]Print{}, early: map[uint64]bool{}}
}

// Touched reports whether anything in the tree may be another than it was when this process began.
func (s *Steps) Touched() bool { return s.touched.Load() }

// Untouched says of which of these steps nothing was touched since this process began, and in whose runs no
// name came or went since the folders were as before; nil when that is not known. It is not known any more
// after the first call.
func (s *Steps) Untouched(found map[string][]*Step, before Folders) (untouched map[*Step]bool) {
	w := &s.watch
	w.mu.Lock()
	early := w.early
	w.early = nil
	w.mu.Unlock()
	now, err := s.Folders()
	if early == nil || err != nil {
		return nil
	}
	untouched = map[*Step]bool{}
	for _, steps := range found {
		for _, st := range steps {
			run := st.of.ino
			if at, ok := now[run]; !ok || at != before[run] {
				continue
			}
			untouched[st] = true
			for ino := range st.inodes {
				if early[ino] {
					delete(untouched, st)
				}
			}
		}
	}
	return untouched
}

// Same reports whether all steps are known, and none of them can be another than at a look, of Since.
func (s *Steps) Same(gen uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	return gen != 0 && gen == s.gen && len(s.watch.changes) == 0
}

// Changed notes that a file may have other bytes, or a directory other names or attributes.
func (s *Steps) Changed(ino uint64) {
	s.touched.Store(true)
	s.alter()
	defer s.alter() // who looked in between has not seen it
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.early != nil {
		if w.early[ino] = true; len(w.early) > maxEarly {
			w.early = nil
		}
	}
	if w.looking || w.runs[ino] != nil || slices.Contains(w.tops[:], ino) || len(w.withLocked(ino)) > 0 {
		w.changes[ino] = true
	}
}

// beginLocked drops what changed since the last look. Steps.mu is held until watch.end was called.
func (s *Steps) beginLocked() {
	s.mu.AssertHeld()
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking = true
	if len(w.changes) > 0 {
		s.gen++
	}
	for ino := range w.changes {
		if slices.Contains(w.tops[:], ino) {
			s.listed = false
			for _, r := range s.known { // another directory may have its name
				r.listed = false
			}
		}
		if r := w.runs[ino]; r != nil {
			r.listed = false
		}
		for _, st := range w.withLocked(ino) {
			w.dropLocked(st)
			st.of.change(st)
		}
	}
	clear(w.changes)
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking = false
}

// dropLocked forgets a step.
func (w *watch) dropLocked(st *Step) {
	w.mu.AssertHeld()
	delete(st.of.steps, st.Name)
	delete(w.prints, st)
	for ino := range st.inodes {
		at := near(ino)
		rest := slices.DeleteFunc(w.steps[at], func(o *Step) bool { return o == st })
		if len(rest) == 0 {
			delete(w.steps, at)
		} else {
			w.steps[at] = rest
		}
	}
}

// change has a step looked at again.
func (r *run) change(st *Step) {
	if r.changed == nil {
		r.changed = map[string]*Step{}
	}
	r.changed[st.Name] = st
}

// keep has a step watched.
func (w *watch) keep(st *Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st.of.steps[st.Name] = st
	for ino := range st.inodes {
		if at := near(ino); !slices.Contains(w.steps[at], st) {
			w.steps[at] = append(w.steps[at], st)
		}
	}
}

// dropRunLocked forgets a run.
func (s *Steps) dropRunLocked(name string) {
	s.mu.AssertHeld()
	r := s.known[name]
	if r == nil {
		return
	}
	s.gen++
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, st := range r.steps {
		w.dropLocked(st)
	}
	delete(w.runs, r.ino)
	delete(s.known, name)
}
