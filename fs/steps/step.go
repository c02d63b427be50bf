package steps

import (
	"iter"
	"path"
	"slices"
	"time"

	"ckptfs/fs/tree"
	"ckptfs/index/ledger"
	"ckptfs/index/runs"
)

// Step is one directory of a run, or one file. It never changes: when the directory does, it is another one.
// There may be hundreds of thousands of them.
type Step struct {
	of      *run
	Name    string
	IsFile  bool     // it is one file, whose Rel is ""
	Dirs    []uint64 // inodes, the step's own first
	Files   FileList
	Size    int64
	Time    time.Time // when a file was written last
	Print   Print
	Metrics runs.Metrics
	Problem string // what of it could not be read

	declared        *ledger.Declared // nil: nothing
	DeclaredProblem string           // why what it says of its parents could not be read

	remote   bool // some of what it says of itself was not here: it may be by now, though nothing changed
	arriving bool // it names files that are not there

	// Guards are passed by a caller who may read, by their paths from the run's directory on, all that the
	// metrics are read from: the step, and the files in it that have some.
	Guards []tree.Guard
}

// File is a file of a step.
type File struct {
	Rel   string // path below the step
	Ino   uint64
	Size  int64
	Mtime int64 // nanoseconds since 1970
}

// FileList has the files of a step. Steps whose files have the same names share these.
type FileList struct {
	rels []string
	of   []inode
}

type inode struct {
	ino         uint64
	size, mtime int64
}

func (l *FileList) add(f File) {
	l.rels = append(l.rels, f.Rel)
	l.of = append(l.of, inode{f.Ino, f.Size, f.Mtime})
}

// Len is how many there are.
func (l *FileList) Len() int { return len(l.of) }

// At is one of them.
func (l *FileList) At(i int) File { return File{l.rels[i], l.of[i].ino, l.of[i].size, l.of[i].mtime} }

// All are all of them.
func (l *FileList) All() iter.Seq2[int, File] {
	return func(yield func(int, File) bool) {
		for i := range l.of {
			if !yield(i, l.At(i)) {
				return
			}
		}
	}
}

// Has reports whether a file is at a path below the step.
func (l *FileList) Has(rel string) bool { return slices.Contains(l.rels, rel) }

func (l *FileList) equal(o *FileList) bool {
	return slices.Equal(l.rels, o.rels) && slices.Equal(l.of, o.of)
}

// Declared is what the step says of its parents.
func (st *Step) Declared() (d ledger.Declared) {
	if st.declared != nil {
		d = *st.declared
	}
	return d
}

func (st *Step) declare(d ledger.Declared) {
	st.declared = nil
	if !d.IsZero() || d.Transfer || d.Tensors != nil || d.Tied != nil {
		st.declared = &d
	}
}

// ino is the step's own inode.
func (st *Step) ino() uint64 {
	if st.IsFile {
		return st.Files.of[0].ino
	}
	return st.Dirs[0]
}

// inodes are those of all that a step is made of, some of them more than once.
func (st *Step) inodes(yield func(uint64) bool) {
	for _, ino := range st.Dirs {
		if !yield(ino) {
			return
		}
	}
	for i := range st.Files.of {
		if !yield(st.Files.of[i].ino) {
			return
		}
	}
}

// From is where the relative paths begin that a step of a run says.
func (st *Step) From(run string) string {
	if st.IsFile {
		return path.Join(Dir, run)
	}
	return path.Join(Dir, run, st.Name)
}

// shorten has a step take no more memory than it needs: its files' names, and its guards, are most often
// those of the last step.
func (s *Steps) shorten(st *Step) {
	last := s.last.Load()
	if last == nil {
		last = new(Step)
	}
	st.Dirs, st.Files.of = slices.Clone(st.Dirs), slices.Clone(st.Files.of)
	if slices.Equal(last.Files.rels, st.Files.rels) {
		st.Files.rels = last.Files.rels
	} else {
		st.Files.rels = slices.Clone(st.Files.rels)
		for i := range st.Files.rels {
			s.shared(&st.Files.rels[i])
		}
	}
	if slices.Equal(last.Guards, st.Guards) {
		st.Guards = last.Guards
	} else {
		st.Guards = slices.Clone(st.Guards)
	}
	s.last.Store(st)
}

// shared has a name be the one that was seen before, if it was not long ago.
func (s *Steps) shared(name *string) {
	if of, ok, _ := s.names.PeekOrAdd(*name, *name); ok {
		*name = of
	}
}
