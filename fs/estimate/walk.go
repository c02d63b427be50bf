package estimate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/dry"
	"ckptfs/fs/order"
)

// openLock guards the files that are open. Nothing is locked under it.
type openLock struct{ sync.Mutex }

// file is one inode.
type file struct {
	path  string // below the root
	shown string // what people know it by: path, or a link to it if its own name says nothing
	size  int64  // bytes; of what is left as it is, those that it holds
	mtime int64

	format   string
	plain    bool // left as it is
	out      bool // could not be read: it does not count
	pads     int64
	sampled  int64 // bytes that were packed
	rank     [2]int64
	tally    [dry.Kinds]dry.Count
	manifest cas.Hash // in this pass
	kin      map[int32]int64
}

// forget forgets what passes found out.
func (f *file) forget() {
	*f = file{path: f.path, shown: f.shown, size: f.size, mtime: f.mtime, out: f.out}
}

// inode names a file, whatever names it has.
type inode struct{ dev, ino uint64 }

// left are the files that could not be read.
type left struct {
	named []Left
	files int
}

const mostNamed = 1000

func (l *left) add(path string, err error) {
	l.files++
	if len(l.named) < mostNamed {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		l.named = append(l.named, Left{Path: path, Reason: err.Error()})
	}
}

// walker finds the files.
type walker struct {
	*estimator
	ctx   context.Context
	seen  map[inode]*file
	links []string
	real  []string // the paths that were given
}

// within reports whether an absolute path is one that was given, or below it.
func (w *walker) within(path string) bool {
	return slices.ContainsFunc(w.real, func(dir string) bool { return within(path, dir) })
}

// walk finds the files below paths, each once, and puts them in order.
func (e *estimator) walk(ctx context.Context, paths []string) error {
	w := &walker{estimator: e, ctx: ctx, seen: map[inode]*file{}}
	var real []string
	for _, p := range paths {
		abs, err := filepath.Abs(p)
		if err == nil {
			abs, err = filepath.EvalSymlinks(abs)
		}
		if err != nil {
			return err
		}
		st, err := os.Stat(abs)
		if err != nil {
			return err
		}
		if !st.IsDir() && !st.Mode().IsRegular() {
			return fmt.Errorf("%s is neither a folder nor a file", p)
		}
		dir := abs
		if !st.IsDir() {
			dir = filepath.Dir(abs)
		}
		if real = append(real, abs); e.root == "" {
			e.root = dir
		}
		for !within(dir, e.root) {
			e.root = filepath.Dir(e.root)
		}
	}
	w.real = real
	for _, p := range real {
		if err := w.below(p); err != nil {
			return err
		}
	}
	w.follow()
	return e.sort(ctx)
}

// within reports whether an absolute path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// below adds what is at p or below it. What cannot be looked at is left out.
func (w *walker) below(p string) error {
	return filepath.WalkDir(p, func(p string, d fs.DirEntry, err error) error {
		if w.ctx.Err() != nil {
			return w.ctx.Err()
		}
		if err != nil {
			w.left.add(p, err)
			return nil
		}
		switch {
		case d.IsDir():
			if w.o.Leave != nil {
				if why := w.o.Leave(p); why != "" {
					w.left.add(p, errors.New(why))
					return fs.SkipDir
				}
			}
		case d.Type()&fs.ModeSymlink != 0:
			w.links = append(w.links, p)
		case d.Type().IsRegular():
			w.add(p, unix.AT_SYMLINK_NOFOLLOW)
		}
		return nil
	})
}

// add adds the regular file at p, unless it was seen under another name, and returns it.
func (w *walker) add(p string, flags int) *file {
	var st unix.Stat_t
	if err := unix.Fstatat(unix.AT_FDCWD, p, &st, flags); err != nil {
		w.left.add(p, err)
		return nil
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	id := inode{st.Dev, st.Ino}
	if f := w.seen[id]; f != nil {
		return f
	}
	rel, err := filepath.Rel(w.root, p)
	if err != nil {
		w.left.add(p, err)
		return nil
	}
	f := &file{path: rel, shown: rel, size: st.Size, mtime: st.Mtim.Nano()}
	if held := st.Blocks * 512; held > 0 && held < st.Size/2 {
		f.size = held // until it is known whether it has holes
	}
	w.seen[id] = f
	w.files = append(w.files, f)
	return f
}

// follow adds the files of the paths that links lead to. Files whose names have no ending are known by such
// links: in a cache of models their own names are hashes.
func (w *walker) follow() {
	for _, p := range w.links {
		st, err := os.Stat(p)
		if err != nil {
			continue // it leads nowhere
		}
		if st.IsDir() {
			w.estimator.links++
			continue
		}
		if to, err := filepath.EvalSymlinks(p); err != nil || !w.within(to) {
			w.outside++ // a store that adopts the folder has the link alone
			continue
		}
		if f := w.add(p, 0); f != nil && f.shown == f.path && filepath.Ext(f.path) == "" {
			if rel, err := filepath.Rel(w.root, p); err == nil {
				f.shown = rel
			}
		}
	}
}

// sort puts the files in the order in which a store packs those that come at once.
func (e *estimator) sort(ctx context.Context) error {
	var files order.Files
	for _, f := range e.files {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		files.Add(f.path, f.mtime, e.look(f))
	}
	sorted := make([]*file, 0, len(e.files))
	for _, i := range files.Sorted() {
		sorted = append(sorted, e.files[i])
	}
	e.files = sorted
	return nil
}

// look looks at a file's tensors. One that cannot be read has none: its turn tells more.
func (e *estimator) look(f *file) order.Model {
	if f.size < order.LeastModel {
		return order.Model{}
	}
	raw, err := openRegular(filepath.Join(e.root, f.path))
	if err != nil {
		return order.Model{}
	}
	defer raw.Close()
	st, err := raw.Stat()
	if err != nil {
		return order.Model{}
	}
	return order.Look(raw, st.Size())
}

// openRegular opens a file for reading. What became something else meanwhile is not waited for.
func openRegular(p string) (*os.File, error) {
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, errChanged)
	}
	return f, nil
}
