package volume

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/control"
	"ckptfs/fs/tree"
	"ckptfs/index/ledger"
	"ckptfs/index/runs"
)

// steps is what was found below runs/. The host's directories are looked through once, and again where they changed; nothing is
// held that they do not say. Whoever changes a file or a directory says so (changed): after it was done, and before the caller is told.
type steps struct {
	mu     sync.Mutex // held over a look, so that many askers look once
	known  map[string]*run
	listed bool   // known are all runs
	gen    uint64 // of known: another one when something in it may be another

	note    sync.Mutex // guards what is below; no lock is taken under it
	looking bool       // what is looked at is not watched yet
	changes map[uint64]bool
	watched map[uint64]*step   // by the inodes of its files and directories
	shared  map[uint64][]*step // those of hard links that watched has no room for
	runDirs map[uint64]*run
	tops    [2]uint64 // the inodes of the root and of runs/
}

// runsDir is where runs are.
const runsDir = "runs"

// run is one directory of runs/.
type run struct {
	who    access
	ino    uint64
	listed bool             // steps are all its steps, and sorted are those with files, as people count
	steps  map[string]*step // by their names
	sorted []*step
}

// step is one directory of a run, or one file. It never changes: when the directory does, it is another one.
type step struct {
	of      *run
	name    string
	file    bool     // it is one file, whose rel is ""
	dirs    []uint64 // inodes, the step's own first
	files   []stepFile
	size    int64
	time    time.Time // when a file was written last
	metrics map[string]float64
	problem string

	declared        ledger.Declared
	declaredProblem string

	private bool // there are people who may list the run, and not this
}

// access is who may do what with an inode.
type access struct{ mode, uid, gid uint32 }

func accessOf(st *unix.Stat_t) access { return access{st.Mode & 0o777, st.Uid, st.Gid} }

// withholds reports whether somebody whom b lets read is not let by a: as group or as others, for the owner can help himself.
func (a access) withholds(b access, bits uint32) bool {
	for _, class := range []uint32{3, 0} {
		want := b.mode & (bits << class)
		if class == 3 && a.gid != b.gid {
			want >>= 3
		}
		if a.mode&want != want {
			return true
		}
	}
	return a.uid != b.uid && a.mode&bits != bits
}

type stepFile struct {
	rel   string
	ino   uint64
	size  int64
	mtime int64
}

// Bounds of one step: what goes beyond them is left out, and said.
const (
	maxStepFiles = 1 << 20
	maxStepDepth = 32
)

func newSteps() *steps {
	return &steps{known: map[string]*run{}, changes: map[uint64]bool{}, watched: map[uint64]*step{}, shared: map[uint64][]*step{},
		runDirs: map[uint64]*run{}}
}

// openSteps begins to follow what is written.
func (v *Volume) openSteps() {
	v.steps = newSteps()
	v.models = newModels()
	var err error
	if v.writing, err = tree.OpenWriting(v.dir, v.lock.Before.Clean || v.lock.Before.PID == 0, v.readOnly); err != nil {
		v.report(slog.LevelWarn, "which checkpoints a crash leaves torn will not be known", "reason", err)
	}
}

// changed notes that a file may have other bytes, or a directory other names or attributes.
func (s *steps) changed(ino uint64) {
	s.note.Lock()
	defer s.note.Unlock()
	if s.looking || s.watched[ino] != nil || s.runDirs[ino] != nil || slices.Contains(s.tops[:], ino) {
		s.changes[ino] = true
	}
}

// begin drops what changed since the last look. s.mu is held until end was called.
func (s *steps) begin() {
	s.note.Lock()
	defer s.note.Unlock()
	s.looking = true
	if len(s.changes) > 0 {
		s.gen++
	}
	for ino := range s.changes {
		if slices.Contains(s.tops[:], ino) {
			s.listed = false
			for _, r := range s.known { // another directory may have its name
				r.listed = false
			}
		}
		if r := s.runDirs[ino]; r != nil {
			r.listed = false
		}
		for st := s.watched[ino]; st != nil; st = s.watched[ino] {
			s.drop(st)
		}
	}
	clear(s.changes)
}

func (s *steps) end() {
	s.note.Lock()
	defer s.note.Unlock()
	s.looking = false
}

// drop has a step looked at again. s.note is held.
func (s *steps) drop(st *step) {
	delete(st.of.steps, st.name)
	st.of.listed = false
	for ino := range st.inodes {
		if s.watched[ino] != st {
			s.shared[ino] = slices.DeleteFunc(s.shared[ino], func(o *step) bool { return o == st })
		} else if rest := s.shared[ino]; len(rest) > 0 {
			s.watched[ino], s.shared[ino] = rest[0], rest[1:]
		} else {
			delete(s.watched, ino)
		}
		if len(s.shared[ino]) == 0 {
			delete(s.shared, ino)
		}
	}
}

// dropRun forgets a run. s.mu is held.
func (s *steps) dropRun(name string) {
	r := s.known[name]
	if r == nil {
		return
	}
	s.gen++
	s.note.Lock()
	defer s.note.Unlock()
	for _, st := range r.steps {
		s.drop(st)
	}
	delete(s.runDirs, r.ino)
	delete(s.known, name)
}

// keep has a step watched. s.mu is held.
func (s *steps) keep(st *step) {
	s.note.Lock()
	defer s.note.Unlock()
	st.of.steps[st.name] = st
	for ino := range st.inodes {
		switch s.watched[ino] {
		case nil:
			s.watched[ino] = st
		case st: // two names in one step
		default:
			if !slices.Contains(s.shared[ino], st) {
				s.shared[ino] = append(s.shared[ino], st)
			}
		}
	}
}

// inodes are those of all that a step is made of, some of them more than once.
func (st *step) inodes(yield func(uint64) bool) {
	for _, ino := range st.dirs {
		if !yield(ino) {
			return
		}
	}
	for i := range st.files {
		if !yield(st.files[i].ino) {
			return
		}
	}
}

// ino is the step's own inode.
func (st *step) ino() uint64 {
	if st.file {
		return st.files[0].ino
	}
	return st.dirs[0]
}

// stepState says how far a step is.
func (v *Volume) stepState(s *step) string {
	if strings.HasPrefix(s.name, "tmp-") || strings.Contains(s.name, ".orbax-checkpoint-tmp") || strings.HasPrefix(s.name, "tmp_") {
		return control.StepWriting
	}
	state := control.StepComplete
	for i := range s.files {
		open, torn := v.writing.State(s.files[i].ino)
		if open {
			return control.StepWriting
		}
		if torn {
			state = control.StepTorn
		}
	}
	return state
}

// beingWritten reports whether a file of these steps has a writer.
func (v *Volume) beingWritten(steps []*step) bool {
	return slices.ContainsFunc(steps, func(s *step) bool {
		return slices.ContainsFunc(s.files, func(f stepFile) bool {
			open, _ := v.writing.State(f.ino)
			return open
		})
	})
}

// stepsOf looks at the steps of runs, in their order; of all runs for no names. A run that is none is not in the answer.
func (v *Volume) stepsOf(names ...string) (map[string][]*step, error) {
	v.steps.mu.Lock()
	defer v.steps.mu.Unlock()
	v.steps.begin()
	defer v.steps.end()
	return v.lookAtRuns(names)
}

// stepsSince looks at all steps, unless nothing changed since a look: then found is nil. gen is that of this look.
func (v *Volume) stepsSince(last uint64) (found map[string][]*step, gen uint64, err error) {
	v.steps.mu.Lock()
	defer v.steps.mu.Unlock()
	v.steps.begin()
	defer v.steps.end()
	if last == v.steps.gen && last != 0 {
		return nil, last, nil
	}
	found, err = v.lookAtRuns(nil)
	return found, v.steps.gen, err
}

// lookAtRuns is stepsOf, between begin and end. s.mu is held.
func (v *Volume) lookAtRuns(names []string) (map[string][]*step, error) {
	s := v.steps
	every := len(names) == 0
	out := make(map[string][]*step, max(len(names), len(s.known)))
	known := func(name string) bool {
		r := s.known[name]
		if r != nil && r.listed {
			out[name] = r.sorted
		}
		return r != nil && r.listed
	}
	if every && s.listed {
		for name := range s.known {
			if !known(name) {
				names = append(names, name)
			}
		}
	} else {
		names = slices.DeleteFunc(slices.Clone(names), known)
	}
	if len(names) == 0 && (s.listed || !every) {
		return out, nil
	}
	fd, err := v.openRuns()
	if noFolder(err) {
		for name := range s.known {
			s.dropRun(name)
		}
		s.listed = true
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if every && !s.listed {
		entries, err := dirsIn(fd)
		if err != nil {
			return nil, err
		}
		names = make([]string, len(entries))
		there := make(map[string]bool, len(entries))
		for i, e := range entries {
			names[i], there[e.Name] = e.Name, true
		}
		for name := range s.known {
			if !there[name] {
				s.dropRun(name)
			}
		}
	}
	for _, name := range names {
		r, err := v.lookAtRun(fd, name)
		if r == nil || err != nil {
			s.dropRun(name)
			if err != nil && !errors.Is(err, unix.EACCES) {
				return nil, fmt.Errorf("%s/%s: %w", runsDir, name, err)
			}
			continue
		}
		out[name] = r.sorted
	}
	s.listed = s.listed || every
	return out, nil
}

// openRuns opens runs/, and has it watched. s.mu is held.
func (v *Volume) openRuns() (int, error) {
	var root, top unix.Stat_t
	if err := unix.Fstat(v.names.rootFd, &root); err != nil {
		return -1, err
	}
	fd, err := openDirAt(v.names.rootFd, runsDir)
	if err == nil {
		if err = unix.Fstat(fd, &top); err != nil {
			unix.Close(fd)
		}
	}
	v.steps.note.Lock()
	v.steps.tops = [2]uint64{root.Ino, top.Ino}
	v.steps.note.Unlock()
	return fd, err
}

// lookAtRun looks at what is not known of one run; nil when it is none. s.mu is held.
func (v *Volume) lookAtRun(top int, name string) (*run, error) {
	s := v.steps
	s.gen++
	fd, err := openDirAt(top, name)
	if noFolder(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	r := s.known[name]
	if who := accessOf(&st); r == nil || r.ino != st.Ino || r.who != who {
		s.dropRun(name)
		r = &run{who: who, ino: st.Ino, steps: map[string]*step{}}
		s.known[name] = r
		s.note.Lock()
		s.runDirs[r.ino] = r
		s.note.Unlock()
	}
	dirs, files, err := namesIn(fd)
	if err != nil {
		return nil, err
	}
	files = numberedCheckpoints(files)
	there := make(map[string]uint64, len(dirs)+len(files))
	for _, e := range slices.Concat(dirs, files) {
		there[e.Name] = e.Ino
	}
	s.note.Lock()
	for name, st := range r.steps {
		if there[name] != st.ino() {
			s.drop(st)
		}
	}
	s.note.Unlock()
	r.sorted = make([]*step, 0, len(there))
	saved := false // checkpoints in directories
	look := func(e DirEntry, look func(dir int, of *run, runName, name string) (*step, error)) error {
		st := r.steps[e.Name]
		if st == nil {
			var err error
			if st, err = look(fd, r, name, e.Name); noFolder(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", e.Name, err)
			}
			s.keep(st)
		}
		if len(st.files) > 0 || st.problem != "" {
			r.sorted = append(r.sorted, st)
		}
		saved = saved || !st.file && slices.ContainsFunc(st.files, func(f stepFile) bool { return namesCheckpoint(f.rel) })
		return nil
	}
	for _, e := range dirs {
		if err := look(e, v.lookAtStep); err != nil {
			return nil, err
		}
	}
	if !saved {
		for _, e := range files {
			if err := look(e, v.lookAtFile); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(r.sorted, func(a, b *step) int { return runs.Compare(a.name, b.name) })
	r.listed = true
	return r, nil
}

// runOf is the run that a path names: runs/NAME.
func runOf(p string) (string, error) {
	name, ok := strings.CutPrefix(p, runsDir+"/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%s: no run: it is to be a folder in %s/: %w", cmp.Or(p, "the root"), runsDir, unix.EINVAL)
	}
	return name, nil
}
