package volume

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/formats"
	"ckptfs/formats/torchzip"
	"ckptfs/fs/tree"
	"ckptfs/index/ledger"
	"ckptfs/index/runs"
)

// runNames lists the runs.
func (v *Volume) runNames() ([]string, error) {
	fd, err := openDirAt(v.names.rootFd, runsDir)
	if noFolder(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	entries, err := dirsIn(fd)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
	}
	slices.SortFunc(names, runs.Compare)
	return names, err
}

// dirsIn lists the directories in a directory. Names that begin with a dot are nobody's runs or steps.
func dirsIn(fd int) ([]DirEntry, error) {
	dirs, _, err := namesIn(fd)
	return dirs, err
}

// namesIn lists the directories and the regular files in a directory but for names that begin with a dot.
func namesIn(fd int) (dirs, files []DirEntry, err error) {
	entries, err := tree.ReadNames(fd)
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
		switch mode {
		case unix.S_IFDIR:
			dirs = append(dirs, e)
		case unix.S_IFREG:
			files = append(files, e)
		}
	}
	return dirs, files, err
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

// lookAtStep looks through a step. Its metrics are read, too. What changes meanwhile is looked at again.
func (v *Volume) lookAtStep(dir int, of *run, runName, name string) (*step, error) {
	s := &step{of: of, name: name}
	fd, err := openDirAt(dir, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	s.dirs = []uint64{st.Ino}
	s.private = accessOf(&st).withholds(of.who, 5)
	if err := s.lookInto(fd, "", 0); err != nil || len(s.files) == 0 {
		return s, err
	}
	v.readMetrics(fd, runName, s)
	v.readDeclared(fd, runName, s)
	return s, nil
}

// lookAtFile is lookAtStep for a step that is one file.
func (v *Volume) lookAtFile(dir int, of *run, runName, name string) (*step, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, unix.ENOENT
	}
	s := &step{of: of, name: name, file: true, size: st.Size, time: time.Unix(0, st.Mtim.Nano()), private: accessOf(&st).withholds(of.who, 4)}
	s.files = []stepFile{{"", st.Ino, st.Size, st.Mtim.Nano()}}
	v.readMetrics(fd, runName, s)
	v.readDeclared(fd, runName, s)
	return s, nil
}

// lookInto looks through a directory of the step.
func (s *step) lookInto(fd int, rel string, depth int) error {
	var st unix.Stat_t
	entries, err := tree.ReadNames(fd)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name == "." || e.Name == ".." || e.Mode != 0 && e.Mode != unix.S_IFREG && e.Mode != unix.S_IFDIR {
			continue
		}
		if err := unix.Fstatat(fd, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
			continue
		} else if err != nil {
			return err
		}
		at := path.Join(rel, e.Name)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if hasMetrics(at) && accessOf(&st).withholds(s.of.who, 4) {
				s.private = true
			}
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
			s.dirs = append(s.dirs, st.Ino)
			sub, err := openDirAt(fd, e.Name)
			if err == unix.EACCES || noFolder(err) {
				continue
			}
			if err != nil {
				return err
			}
			err = s.lookInto(sub, at, depth+1)
			unix.Close(sub)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// maxProblem bounds what is told of a step's problems, but for the last.
const maxProblem = 1 << 10

// readMetrics reads the metrics of a step, which is open. What cannot be read is the step's problem and nobody else's.
func (v *Volume) readMetrics(fd int, runName string, s *step) {
	all := map[string]float64{}
	note := func(what string, err error) {
		switch {
		case s.problem == "":
			s.problem = fmt.Sprintf("%s: %v", what, err)
		case len(s.problem) < maxProblem:
			s.problem += fmt.Sprintf("; %s: %v", what, err)
		}
	}
	if err := v.readScores(runName, s, all); err != nil {
		note("*"+lightningSuffix, err)
	}
	for _, src := range runs.Sources {
		if !slices.ContainsFunc(s.files, func(f stepFile) bool { return f.rel == src.Name }) {
			continue
		}
		b, err := v.readSmall(path.Join(runsDir, runName, s.name, src.Name), src.Max)
		if errors.Is(err, unix.ENOENT) {
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
	self := fmt.Sprintf("/proc/self/fd/%d", fd) // a file is open as a path only
	n, err := unix.Listxattr(self, list)
	if err != nil && err != unix.EOPNOTSUPP {
		note("extended attributes", err)
	}
	for name := range strings.SplitSeq(string(list[:max(n, 0)]), "\x00") {
		metric, ok := runs.FromXattr(name)
		if !ok {
			continue
		}
		value := make([]byte, 256)
		k, err := unix.Getxattr(self, name, value)
		if err == unix.ENODATA {
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

// lightningSuffix ends the names of Lightning's checkpoints, which have metrics in them.
const lightningSuffix = ".ckpt"

// hasMetrics reports whether metrics may be read from a file of a step.
func hasMetrics(rel string) bool {
	return strings.HasSuffix(rel, lightningSuffix) || slices.ContainsFunc(runs.Sources, func(src runs.Source) bool { return src.Name == rel })
}

// readScores adds what Lightning's checkpoint in a step says of itself; of several, that which was written last.
func (v *Volume) readScores(runName string, s *step, all map[string]float64) error {
	var last *stepFile
	for i := range s.files {
		if f := &s.files[i]; strings.HasSuffix(path.Join(s.name, f.rel), lightningSuffix) && (last == nil || f.mtime > last.mtime || f.mtime == last.mtime && f.rel > last.rel) {
			last = f
		}
	}
	if last == nil {
		return nil
	}
	r, size, done, err := v.perusePath(path.Join(runsDir, runName, s.name, last.rel))
	if err != nil {
		return gone(err)
	}
	defer done()
	scores, err := torchzip.Scores(r, size)
	if errors.Is(err, formats.ErrNotFormat) {
		return nil
	}
	for name, score := range scores {
		if runs.CheckName(name) == nil {
			all[name] = score
		}
	}
	return err
}

// gone is no error when a file went away meanwhile, of which we hear.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// lineageFile and parentXattr say of a step which it came from; the attribute wins.
const (
	lineageFile = "lineage.json"
	parentXattr = "user.parent"
)

// parentSaid is the value of parentXattr without what programs put behind it.
func parentSaid(value []byte) string { return strings.TrimRight(string(value), "\x00\n") }

// readDeclared reads what a step, which is open, says of its parents.
func (v *Volume) readDeclared(fd int, runName string, s *step) {
	if slices.ContainsFunc(s.files, func(f stepFile) bool { return f.rel == lineageFile }) {
		b, err := v.readSmall(path.Join(runsDir, runName, s.name, lineageFile), ledger.MaxDeclared)
		if err == nil {
			s.declared, err = ledger.ParseDeclared(b)
		}
		if gone(err) != nil {
			s.declaredProblem = fmt.Sprintf("%s: %v", lineageFile, err)
		}
	}
	value := make([]byte, 4096)
	n, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", fd), parentXattr, value)
	switch {
	case err == nil:
		s.declared.Parent, s.declared.Transfer, s.declared.Tensors = parentSaid(value[:n]), false, nil
	case err != unix.ENODATA && err != unix.EOPNOTSUPP:
		s.declaredProblem = fmt.Sprintf("attribute %s: %v", parentXattr, err)
	}
}
