package steps

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/tree"
)

// Bounds of one step: what goes beyond them is left out, and said.
const (
	maxStepFiles = 1 << 20
	maxStepDepth = 32
)

// Of looks at the steps of runs, in their order; of all runs for no names. A run that is none is not in the
// answer.
func (s *Steps) Of(names ...string) (map[string][]*Step, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked()
	defer s.watch.end()
	return s.lookAtRunsLocked(context.Background(), names)
}

// Since looks at all steps, unless nothing changed since a look: then found is nil. gen is that of this look.
// One that ctx ends is gone on with by the next.
func (s *Steps) Since(ctx context.Context, last uint64) (found map[string][]*Step, gen uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked()
	defer s.watch.end()
	if last == s.gen && last != 0 {
		return nil, last, nil
	}
	found, err = s.lookAtRunsLocked(ctx, nil)
	return found, s.gen, err
}

// lookAtRunsLocked is Of, between begin and end.
func (s *Steps) lookAtRunsLocked(ctx context.Context, names []string) (map[string][]*Step, error) {
	s.mu.AssertHeld()
	every := len(names) == 0
	out := make(map[string][]*Step, max(len(names), len(s.known)))
	known := func(name string) bool {
		r := s.known[name]
		is := r != nil && r.listed && len(r.changed) == 0
		if is {
			out[name] = r.sorted
		}
		return is
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
	fd, err := s.openRunsLocked()
	if noFolder(err) {
		for name := range s.known {
			s.dropRunLocked(name)
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
				s.dropRunLocked(name)
			}
		}
	}
	for _, name := range names {
		r, err := s.lookAtRunLocked(ctx, fd, name)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if r == nil || err != nil {
			s.dropRunLocked(name)
			if err != nil && !errors.Is(err, unix.EACCES) {
				return nil, fmt.Errorf("%s/%s: %w", Dir, name, err)
			}
			continue
		}
		out[name] = r.sorted
	}
	s.listed = s.listed || every
	return out, nil
}

// openRunsLocked opens runs/, and has it watched.
func (s *Steps) openRunsLocked() (int, error) {
	s.mu.AssertHeld()
	var root, top unix.Stat_t
	if err := unix.Fstat(s.root, &root); err != nil {
		return -1, err
	}
	fd, err := openDirAt(s.root, Dir)
	if err == nil {
		if err = unix.Fstat(fd, &top); err != nil {
			unix.Close(fd)
		}
	}
	s.watch.mu.Lock()
	s.watch.tops = [2]uint64{root.Ino, top.Ino}
	s.watch.mu.Unlock()
	return fd, err
}

// lookAtRunLocked looks at what is not known of one run; nil when it is none.
func (s *Steps) lookAtRunLocked(ctx context.Context, top int, name string) (*run, error) {
	s.mu.AssertHeld()
	if hidden(name) { // who asks for it by name does not make it a run
		return nil, nil
	}
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
	if now := accessOf(&st); r == nil || r.ino != st.Ino || r.access != now {
		s.dropRunLocked(name)
		r = &run{access: now, ino: st.Ino, steps: map[string]*Step{}}
		s.known[name] = r
		s.watch.mu.Lock()
		s.watch.runs[r.ino] = r
		s.watch.mu.Unlock()
	}
	if r.listed {
		if done, err := s.lookAgainLocked(ctx, fd, r, name); done || err != nil {
			return r, err
		}
	}
	dirs, files, err := entriesIn(fd)
	if err != nil {
		return nil, err
	}
	files = numberedCheckpoints(files)
	there := make(map[string]uint64, len(dirs)+len(files))
	for _, e := range slices.Concat(dirs, files) {
		there[e.Name] = e.Ino
	}
	s.watch.mu.Lock()
	for name, st := range r.steps {
		if there[name] != st.ino() {
			s.watch.dropLocked(st)
		}
	}
	s.watch.mu.Unlock()
	sorted := make([]*Step, 0, len(there))
	saved := false // checkpoints in directories
	look := func(entries []tree.DirEntry, areFiles bool) error {
		steps, err := s.lookAtSteps(ctx, fd, r, name, entries, areFiles)
		for _, st := range steps {
			if r.steps[st.Name] == nil {
				s.watch.keep(st)
			}
			if st.counts() {
				sorted = append(sorted, st)
			}
			saved = saved || st.saved()
		}
		return err
	}
	if err := look(dirs, false); err != nil {
		return nil, err
	}
	if !saved {
		if err := look(files, true); err != nil {
			return nil, err
		}
	}
	r.sorted = inOrder(r.sorted, sorted)
	r.listed, r.changed = true, nil
	return r, nil
}

// lookAtSteps looks at those of a run's entries that are not known, with all processors. It returns all that
// are steps; with an error, those that it came to.
func (s *Steps) lookAtSteps(ctx context.Context, fd int, r *run, runName string, entries []tree.DirEntry,
	areFiles bool) ([]*Step, error) {
	steps := make([]*Step, len(entries))
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(cas.Processors, len(entries)) {
		g.Go(func() error { // one for many steps: its stack grows once
			var like *Step
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(entries) {
					return nil
				}
				name := entries[i].Name
				if steps[i] = r.steps[name]; steps[i] != nil {
					continue
				}
				if steps[i] = s.recallLike(like, fd, r, runName, name); steps[i] != nil {
					continue
				}
				st, err := s.lookAtStep(fd, r, runName, name, areFiles)
				if err != nil && !noFolder(err) {
					return fmt.Errorf("%s: %w", name, err)
				}
				if err == nil {
					steps[i], like = st, st
				}
			}
			return ctx.Err()
		})
	}
	err := g.Wait()
	return slices.DeleteFunc(steps, func(st *Step) bool { return st == nil }), err
}

// dirsIn lists the directories in a directory. Names that begin with a dot are neither runs nor steps.
func dirsIn(fd int) ([]tree.DirEntry, error) {
	dirs, _, err := entriesIn(fd)
	return dirs, err
}

// hidden reports whether nothing of that name is a run, a step or a file of one.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// entriesIn lists the directories and the regular files in a directory but for names that begin with a dot.
func entriesIn(fd int) (dirs, files []tree.DirEntry, err error) {
	entries, err := tree.ReadNames(fd)
	for _, e := range entries {
		if hidden(e.Name) {
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

// lookAtStep looks through a step of a run whose directory is open. Its metrics are read, too. What changes
// meanwhile is looked at again.
func (s *Steps) lookAtStep(dir int, of *run, runName, name string, isFile bool) (*Step, error) {
	st := &Step{of: of, Name: name, IsFile: isFile}
	print := beginPrint(runName, name)
	fd, err := st.open(dir)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	err = st.list(fd, &print)
	s.shorten(st)
	if err != nil || st.Files.Len() == 0 {
		return st, err
	}
	st.Print = print.end()
	if s.recall(st) {
		return st, nil
	}
	s.readMetrics(fd, runName, st)
	s.readDeclared(fd, runName, st)
	if !st.IsFile {
		s.readNamed(runName, st)
	}
	return st, nil
}

func (st *Step) open(dir int) (fd int, err error) {
	if !st.IsFile {
		return openDirAt(dir, st.Name)
	}
	return unix.Openat(dir, st.Name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// list looks at what there is of a step that is open.
func (st *Step) list(fd int, print *printing) error {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err
	}
	print.add("", &info)
	if !st.IsFile {
		st.isFolder(&info)
		return st.lookInto(fd, "", 0, nil, print)
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.ENOENT
	}
	st.Size, st.Time = info.Size, time.Unix(0, info.Mtim.Nano())
	st.guard(guardOf(&info, tree.MayRead))
	st.Files.add(File{"", info.Ino, info.Size, info.Mtim.Nano()})
	return nil
}

// lookInto looks through a directory of the step. way are the guards of the directories down to it.
func (st *Step) lookInto(fd int, rel string, depth int, way []tree.Guard, print *printing) error {
	var info unix.Stat_t
	entries, err := tree.ReadNames(fd)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name == "." || e.Name == ".." || e.Mode != 0 && e.Mode != unix.S_IFREG &&
			e.Mode != unix.S_IFDIR {
			continue
		}
		if err := unix.Fstatat(fd, e.Name, &info, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
			continue
		} else if err != nil {
			return err
		}
		at := path.Join(rel, e.Name)
		print.add(at, &info)
		switch info.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if st.Files.Len() == maxStepFiles {
				st.Problem = fmt.Sprintf("more than %d files: the others are left out", maxStepFiles)
				return nil
			}
			st.has(at, &info, way)
		case unix.S_IFDIR:
			if depth == maxStepDepth {
				st.Problem = fmt.Sprintf("folders nested deeper than %d are left out", maxStepDepth)
				continue
			}
			st.Dirs = append(st.Dirs, info.Ino)
			sub, err := openDirAt(fd, e.Name)
			if err == unix.EACCES || noFolder(err) {
				continue
			}
			if err != nil {
				return err
			}
			way := append(slices.Clip(way), guardOf(&info, tree.MayEnter))
			err = st.lookInto(sub, at, depth+1, way, print)
			unix.Close(sub)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// isFolder notes the step's own folder.
func (st *Step) isFolder(info *unix.Stat_t) {
	st.Dirs = []uint64{info.Ino}
	st.guard(guardOf(info, tree.MayRead|tree.MayEnter))
}

// has notes a file of the step. way are the guards of the directories down to it.
func (st *Step) has(rel string, info *unix.Stat_t, way []tree.Guard) {
	if hasMetrics(rel) {
		st.guard(append(slices.Clip(way), guardOf(info, tree.MayRead))...)
	}
	st.Files.add(File{rel, info.Ino, info.Size, info.Mtim.Nano()})
	st.Size += info.Size
	if t := time.Unix(0, info.Mtim.Nano()); t.After(st.Time) {
		st.Time = t
	}
}

// access is the owner and permissions of an inode.
type access struct{ mode, uid, gid uint32 }

func accessOf(st *unix.Stat_t) access { return access{st.Mode & 0o777, st.Uid, st.Gid} }

func guardOf(st *unix.Stat_t, need uint32) tree.Guard {
	a := accessOf(st)
	return tree.Guard{Mode: a.mode, UID: a.uid, GID: a.gid, Need: need}
}

// guard adds guards to those of the step.
func (st *Step) guard(all ...tree.Guard) {
	for _, g := range all {
		if !slices.Contains(st.Guards, g) {
			st.Guards = append(st.Guards, g)
		}
	}
}
