package volume

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
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

// steps is what was found below runs/: the directories of the host, looked through once and again when they changed. It holds
// nothing that the directories do not say.
//
// A step that was looked through is believed as long as each directory in it is the inode that it was, with the times that it
// had, and no file of it was written. Times are coarse: those of the last moment are not believed.
type steps struct {
	mu     sync.Mutex // held over a look, so that many askers look once
	known  map[string]map[string]*step
	dirty  map[uint64]bool // inodes written since a step that holds them was looked at
	dirtyM sync.Mutex
}

// runsDir is where runs are.
const runsDir = "runs"

// step is one directory of a run.
type step struct {
	name    string
	dirs    []stamp // the step's own first
	files   []stepFile
	size    int64
	time    time.Time // when a file was written last
	metrics map[string]float64
	problem string

	declared        ledger.Declared
	declaredProblem string

	racy bool // it changed just when it was looked at
}

// stamp is what a directory looked like.
type stamp struct {
	rel   string // of the step
	ino   uint64
	mtime unix.Timespec
	ctime unix.Timespec
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
	// racyTime is how coarse the times of a filesystem may be.
	racyTime = 100 * time.Millisecond
	// maxDirty bounds steps.dirty; beyond it all is looked through anew.
	maxDirty = 1 << 16
)

// openSteps begins to follow what is written.
func (v *Volume) openSteps() {
	v.steps = &steps{known: map[string]map[string]*step{}, dirty: map[uint64]bool{}}
	v.models = newModels()
	var err error
	if v.writing, err = tree.OpenWriting(v.dir, v.lock.Before.Clean || v.lock.Before.PID == 0, v.readOnly); err != nil {
		v.report(slog.LevelWarn, "which checkpoints a crash leaves torn will not be known", "reason", err)
	}
}

// wrote notes that a file may have other bytes.
func (s *steps) wrote(ino uint64) {
	s.dirtyM.Lock()
	defer s.dirtyM.Unlock()
	if len(s.dirty) < maxDirty {
		s.dirty[ino] = true
	}
}

// takeDirty hands out what was written since, and reports whether that is all.
func (s *steps) takeDirty() (map[uint64]bool, bool) {
	s.dirtyM.Lock()
	defer s.dirtyM.Unlock()
	d := s.dirty
	s.dirty = map[uint64]bool{}
	return d, len(d) < maxDirty
}

// state says how far a step is.
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

// runNames lists the runs.
func (v *Volume) runNames() ([]string, error) {
	fd, err := openDirAt(v.rootFd, runsDir)
	if noFolder(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	names, err := dirsIn(fd)
	slices.SortFunc(names, runs.Compare)
	return names, err
}

// dirsIn lists the directories in a directory. Names that begin with a dot are nobody's runs or steps.
func dirsIn(fd int) ([]string, error) {
	entries, err := readNames(fd)
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name, ".") {
			continue
		}
		mode := e.Mode
		if mode == 0 { // a filesystem that does not tell
			var st unix.Stat_t
			if unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
				mode = st.Mode & unix.S_IFMT
			}
		}
		if mode == unix.S_IFDIR {
			names = append(names, e.Name)
		}
	}
	return names, err
}

// openDirAt opens a directory on the daemon's own account.
func openDirAt(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags|unix.O_NOATIME, 0)
	if err == unix.EPERM {
		fd, err = unix.Openat(dir, name, flags, 0)
	}
	return fd, err
}

// noFolder reports whether openDirAt found no directory by the name.
func noFolder(err error) bool { return err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP }

// stepsOf looks at the steps of runs, in their order; of all runs for no names. A run that is none is not in the answer.
func (v *Volume) stepsOf(names ...string) (map[string][]*step, error) {
	s := v.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	dirty, all := s.takeDirty()
	if !all {
		clear(s.known)
	}
	if len(dirty) > 0 {
		s.forget(dirty)
	}
	every := len(names) == 0
	if every {
		var err error
		if names, err = v.runNames(); err != nil {
			return nil, err
		}
	}
	out := map[string][]*step{}
	fd, err := openDirAt(v.rootFd, runsDir)
	if noFolder(err) {
		clear(s.known)
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for _, name := range names {
		found, err := v.lookAtRun(fd, name)
		if found == nil || err != nil {
			delete(s.known, name)
			if err != nil && !errors.Is(err, unix.EACCES) {
				return nil, fmt.Errorf("%s/%s: %w", runsDir, name, err)
			}
			continue
		}
		out[name] = found
	}
	if every {
		for name := range s.known {
			if out[name] == nil {
				delete(s.known, name)
			}
		}
	}
	return out, nil
}

// forget drops what is known of the steps that hold one of these files. s.mu is held.
func (s *steps) forget(inodes map[uint64]bool) {
	for _, run := range s.known {
		for name, st := range run {
			if slices.ContainsFunc(st.files, func(f stepFile) bool { return inodes[f.ino] }) {
				delete(run, name)
			}
		}
	}
}

// lookAtRun looks at the steps of one run; nil when it is none. s.mu is held.
func (v *Volume) lookAtRun(top int, run string) ([]*step, error) {
	fd, err := openDirAt(top, run)
	if noFolder(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	names, err := dirsIn(fd)
	if err != nil {
		return nil, err
	}
	known, now := v.steps.known[run], map[string]*step{}
	out := []*step{}
	for _, name := range names {
		st := known[name]
		if st == nil || st.racy || !st.holds(fd) {
			if st, err = v.lookAtStep(fd, run, name); noFolder(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		now[name] = st
		if len(st.files) > 0 {
			out = append(out, st)
		}
	}
	v.steps.known[run] = now
	slices.SortFunc(out, func(a, b *step) int { return runs.Compare(a.name, b.name) })
	return out, nil
}

// holds reports whether a step's directories are as they were.
func (s *step) holds(run int) bool {
	for i := range s.dirs {
		d := &s.dirs[i]
		var st unix.Stat_t
		if unix.Fstatat(run, path.Join(s.name, d.rel), &st, unix.AT_SYMLINK_NOFOLLOW) != nil || stampOf(d.rel, &st) != *d {
			return false
		}
	}
	return true
}

func stampOf(rel string, st *unix.Stat_t) stamp { return stamp{rel, st.Ino, st.Mtim, st.Ctim} }

// lookAtStep looks through a step. Its metrics are read, too.
func (v *Volume) lookAtStep(run int, runName, name string) (*step, error) {
	s := &step{name: name}
	start := time.Now()
	if err := v.lookInto(run, name, "", s, 0); err != nil {
		return nil, err
	}
	for _, d := range s.dirs {
		last := max(d.mtime.Nano(), d.ctime.Nano())
		s.racy = s.racy || start.UnixNano()-last < int64(racyTime)
	}
	if len(s.files) == 0 {
		return s, nil
	}
	fd, err := openDirAt(run, name)
	if err != nil {
		s.racy = true
		return s, nil
	}
	defer unix.Close(fd)
	v.readMetrics(fd, runName, s)
	v.readDeclared(fd, runName, s)
	return s, nil
}

func (v *Volume) lookInto(dir int, name, rel string, s *step, depth int) error {
	fd, err := openDirAt(dir, name)
	if err == unix.EACCES && depth > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	s.dirs = append(s.dirs, stampOf(rel, &st))
	entries, err := readNames(fd)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name == "." || e.Name == ".." || e.Mode != 0 && e.Mode != unix.S_IFREG && e.Mode != unix.S_IFDIR {
			continue
		}
		if err := unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
			s.racy = true
			continue
		} else if err != nil {
			return err
		}
		at := path.Join(rel, e.Name)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if len(s.files) == maxStepFiles {
				s.problem = fmt.Sprintf("more than %d files: the others are left out", maxStepFiles)
				return nil
			}
			s.files = append(s.files, stepFile{at, st.Ino, st.Size, st.Mtim.Nano()})
			s.size += st.Size
			if t := time.Unix(0, st.Mtim.Nano()); t.After(s.time) {
				s.time = t
			}
		case unix.S_IFDIR:
			if depth == maxStepDepth {
				s.problem = fmt.Sprintf("folders nested deeper than %d are left out", maxStepDepth)
				continue
			}
			if err := v.lookInto(fd, e.Name, at, s, depth+1); err != nil && !noFolder(err) {
				return err
			}
		}
	}
	return nil
}

// readMetrics reads the metrics of a step, whose directory is open. What cannot be read is the step's problem and nobody else's.
func (v *Volume) readMetrics(fd int, runName string, s *step) {
	all := map[string]float64{}
	note := func(what string, err error) {
		if s.problem == "" {
			s.problem = fmt.Sprintf("%s: %v", what, err)
		}
	}
	for _, src := range runs.Sources {
		if !slices.ContainsFunc(s.files, func(f stepFile) bool { return f.rel == src.Name }) {
			continue
		}
		b, err := v.readSmall(path.Join(runsDir, runName, s.name, src.Name), src.Max)
		if errors.Is(err, unix.ENOENT) {
			s.racy = true
			continue
		}
		var found map[string]float64
		if err == nil {
			found, err = src.Parse(b)
		}
		if err != nil {
			note(src.Name, err)
			continue
		}
		for k, m := range found {
			all[k] = m
		}
	}
	list := make([]byte, 64<<10)
	n, err := unix.Flistxattr(fd, list)
	if err != nil && err != unix.EOPNOTSUPP {
		note("extended attributes", err)
	}
	for name := range strings.SplitSeq(string(list[:max(n, 0)]), "\x00") {
		metric, ok := runs.FromXattr(name)
		if !ok {
			continue
		}
		value := make([]byte, 256)
		k, err := unix.Fgetxattr(fd, name, value)
		if err == unix.ENODATA {
			s.racy = true
			continue
		}
		var m float64
		if err == nil {
			m, err = runs.ParseValue(value[:k])
		}
		if err != nil {
			note("attribute "+name, err)
			continue
		}
		all[metric] = m
	}
	if len(all) > 0 {
		s.metrics = all
	}
}

// lineageFile and parentXattr say of a step which it came from; the attribute wins.
const (
	lineageFile = "lineage.json"
	parentXattr = "user.parent"
)

// readDeclared reads what a step, whose directory is open, says of its parents.
func (v *Volume) readDeclared(fd int, runName string, s *step) {
	if slices.ContainsFunc(s.files, func(f stepFile) bool { return f.rel == lineageFile }) {
		b, err := v.readSmall(path.Join(runsDir, runName, s.name, lineageFile), ledger.MaxDeclared)
		if err == nil {
			s.declared, err = ledger.ParseDeclared(b)
		}
		switch {
		case errors.Is(err, unix.ENOENT):
			s.racy = true
		case err != nil:
			s.declaredProblem = fmt.Sprintf("%s: %v", lineageFile, err)
		}
	}
	value := make([]byte, 4096)
	n, err := unix.Fgetxattr(fd, parentXattr, value)
	switch {
	case err == nil:
		s.declared.Parent = strings.TrimRight(string(value[:n]), "\x00\n")
	case err != unix.ENODATA && err != unix.EOPNOTSUPP:
		s.declaredProblem = fmt.Sprintf("attribute %s: %v", parentXattr, err)
	}
}

// readSmall reads a file of at most max bytes, packed or not, on the daemon's own account.
func (v *Volume) readSmall(p string, most int64) ([]byte, error) {
	n, err := v.resolve(p)
	if err != nil {
		return nil, err
	}
	defer v.unref(n, 1)
	r, size, done, err := v.peruse(n)
	if err != nil {
		return nil, err
	}
	defer done()
	if size > most {
		return nil, fmt.Errorf("%d bytes, of at most %d: %w", size, most, runs.ErrInvalid)
	}
	b := make([]byte, size)
	k, err := r.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b[:k], err
}

// peruse makes the bytes of a file or a view readable to this process until done is called. size is what it had when it was
// opened.
func (v *Volume) peruse(n *Node) (r io.ReaderAt, size int64, done func(), err error) {
	if n.view != nil {
		if err := v.useView(n); err != nil {
			return nil, 0, nil, err
		}
		return n.view, n.view.size, func() { v.closeView(n) }, nil
	}
	f := n.file
	if f == nil {
		return nil, 0, nil, errNotRegular
	}
	a, err := v.Stat(n)
	if err != nil {
		return nil, 0, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := v.load(n); err != nil {
		return nil, 0, nil, err
	}
	if err := v.vet(n); err != nil {
		return nil, 0, nil, err
	}
	if err := v.openSource(n); err != nil {
		v.closeSources(n)
		return nil, 0, nil, err
	}
	f.inside++
	return f, a.Size, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.inside--
		v.closeSources(n)
	}, nil
}

// runOf is the run that a path names: runs/NAME.
func runOf(p string) (string, error) {
	name, ok := strings.CutPrefix(p, runsDir+"/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%s: no run: it is to be a folder in %s/: %w", p, runsDir, unix.EINVAL)
	}
	return name, nil
}
