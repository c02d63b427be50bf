// Package steps knows the runs and steps that the tree has: which there are, how far each is, its metrics,
// and what it says of its parents.
//
//	runs/RUN/STEP/...     a step is a folder of a run
//	runs/RUN/STEP.ckpt    or a file of it, where the run has no folders with checkpoints and the names differ
//	                      in their numbers only
//
// The host's directories are looked through once, and again where they changed. Nothing is held that they do
// not say. Whatever changes a file or a directory says so (Changed): after it was done, and before the caller
// is told. Which files have writers, and which lost theirs to a crash, is in a tree.Writing.
//
// Locks: Steps.mu is held over a look, so that many callers look once; files are opened and read under it.
// Under it may be taken watch.mu, which is a leaf: Changed takes it, and is called with the locks of names
// and files held.
package steps

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/cas/locks"
	"ckptfs/fs/control"
	"ckptfs/fs/tree"
)

// Dir is where runs are.
const Dir = "runs"

// Files reads files on the daemon's own account. The error is ErrRemote where that would take the network.
type Files interface {
	// ReadSmall reads a file of at most so many bytes. The error is runs.ErrInvalid for a larger one.
	ReadSmall(path string, most int64) ([]byte, error)
	// Read calls f with the bytes of a file, which are readable until it returns.
	Read(path string, f func(r io.ReaderAt, size int64) error) error
}

// Options say what Steps are of.
type Options struct {
	Files   Files
	Writing *tree.Writing // which files have writers
	// Released waits, for a bounded time, until every writer that was closed is released.
	Released func(ctx context.Context)
	HideTorn bool // folders of runs are to be listed without Hidden
}

// Steps are the runs and steps of a tree.
type Steps struct {
	Options
	root int // a descriptor of the tree's root

	mu     locks.Mutex[lookLock] // held over a look
	known  map[string]*run
	listed bool   // known are all runs
	gen    uint64 // of known: another one when something in it may be another

	names *lru.Cache[string, string] // of files and metrics of steps
	last  atomic.Pointer[Step]       // that shorten saw

	recalled map[Print][]byte // see Recall

	touched     atomic.Bool
	altering    atomic.Int64  // changes that are being made
	alterations atomic.Uint64 // begins and ends of changes
	watch       watch
	news        news
}

// mostNames is how many names of files and metrics are kept once for all steps.
const mostNames = 4096

// run is one directory of runs/.
type run struct {
	access access
	ino    uint64
	listed bool             // steps and changed are all its steps, and sorted those with files, in order
	steps  map[string]*Step // by their names
	sorted []*Step          // handed out: it is never written to

	changed map[string]*Step // that are to be looked at again, as they were
}

// New makes Steps of no tree.
func New(o Options) *Steps {
	names, _ := lru.New[string, string](mostNames) // which fails for no room alone
	return &Steps{Options: o, root: -1, known: map[string]*run{}, watch: newWatch(), names: names}
}

// Open says what the tree is, by a descriptor of its root. It is called once, before runs and steps are asked
// for.
func (s *Steps) Open(root int) { s.root = root }

// Close ends the account of which files have writers.
func (s *Steps) Close() error { return s.Writing.Close() }

// Begin notes that a file has a writer.
func (s *Steps) Begin(ino uint64) {
	s.touched.Store(true)
	s.alter()
	s.Writing.Begin(ino)
	s.alter() // Settle may have begun in between
}

// End notes that a file has no writer any more. torn: not all that was to be written was.
func (s *Steps) End(ino uint64, torn bool) {
	s.Alter() // what was written is told of behind that
	defer s.Altered()
	s.Writing.End(ino, torn)
	s.Changed(ino)
}

// Gone notes that a file has no name any more.
func (s *Steps) Gone(ino uint64) { s.Writing.Gone(ino) }

// Known is the number of runs that are remembered.
func (s *Steps) Known() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}

// State says how far a step is.
func (s *Steps) State(st *Step) string {
	return st.state(func(ino uint64) (open, torn bool) { return s.Writing.State(ino) })
}

// States returns what says how far steps are at this moment, for very many of them.
func (s *Steps) States() func(st *Step) string {
	all := s.Writing.All()
	of := func(ino uint64) (open, torn bool) {
		torn, is := all[ino]
		return is && !torn, torn
	}
	return func(st *Step) string { return st.state(of) }
}

func (st *Step) state(of func(ino uint64) (open, torn bool)) string {
	if Unfinished(st.Name) {
		return control.StepWriting
	}
	state := control.StepComplete
	if st.arriving {
		state = control.StepArriving
	}
	for i := range st.Files.of {
		open, torn := of(st.Files.of[i].ino)
		if open {
			return control.StepWriting
		}
		if torn {
			state = control.StepTorn
		}
	}
	return state
}

// Unfinished reports whether a name is one that savers give to what they have not finished.
func Unfinished(name string) bool {
	return strings.HasPrefix(name, "tmp-") || strings.HasPrefix(name, "tmp_") ||
		strings.Contains(name, ".orbax-checkpoint-tmp")
}

// beingWritten reports whether a file of these steps has a writer.
func (s *Steps) beingWritten(steps []*Step) bool {
	all := s.Writing.All()
	return slices.ContainsFunc(steps, func(st *Step) bool {
		return slices.ContainsFunc(st.Files.of, func(f inode) bool {
			torn, is := all[f.ino]
			return is && !torn
		})
	})
}

// RunOf is the run that a path names: runs/NAME. The error is EINVAL.
func RunOf(p string) (string, error) {
	name, ok := strings.CutPrefix(p, Dir+"/")
	if !ok || name == "" || strings.Contains(name, "/") {
		if run, _, _ := In(p); run != "" {
			return "", control.Invalid("%s is no run, it lies in one: is it %s/%s?", p, Dir, run)
		}
		return "", control.Invalid("%s is no run: a run is a folder in %s/, and `ckptfs runs` lists them",
			cmp.Or(p, "the root"), Dir)
	}
	if hidden(name) {
		return "", control.Invalid("%s is no run: its name begins with a dot", p)
	}
	return name, nil
}

// In takes a path apart: the run and the step that it leads to or into, and what lies below the step. The
// step is "" where the path leads to none.
func In(p string) (run, step, rel string) {
	if parts := strings.SplitN(p, "/", 4); len(parts) >= 3 && parts[0] == Dir {
		return parts[1], parts[2], strings.Join(parts[3:], "")
	}
	return "", "", ""
}
