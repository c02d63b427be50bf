package residency

import (
	"context"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
)

// Walk calls f with each regular file at or below a path.
type Walk func(ctx context.Context, path string, f func(path string, file *content.File) error) error

// Evict evicts the resident bytes of the packed files at or below path. Of those in use it says so, and what
// holder says of them, and does it once they are not.
func Evict(ctx context.Context, walk Walk, l *LRU, h *Hydrator, path string,
	holder func(f *content.File) string, report func(control.Progress)) (*control.Moved, error) {
	evict := func(p string, f *content.File) (int64, string, error) {
		h.Forget(f) // the user knows better than what was read before
		size := f.Unpacked()
		skip, err := f.Evict()
		for tries := 0; skip == content.SkipInUse && !isOpen(f) && tries < graceTries; tries++ {
			time.Sleep(closeGrace / graceTries)
			skip, err = f.Evict()
		}
		if skip != "" || err != nil {
			size = 0
		} else {
			l.dismiss(f)
		}
		switch skip {
		case content.SkipOpen, content.SkipInUse:
			l.Want(f)
			if who := holder(f); who != "" {
				skip = who
			}
		case content.SkipNotPacked:
			if p != path && settledPlain(f) {
				skip = "" // in a folder, plain files are no news
			}
		}
		return size, skip, err
	}
	return move(ctx, walk, "evict", path, min(runtime.GOMAXPROCS(0), mostEvicted), report, evict)
}

// mostEvicted is how many files are evicted at a time: most of the work is the disk's names.
const mostEvicted = 8

// closeGrace is how long Evict waits for the kernel to let go of a file that a program has closed already,
// and graceTries how often it looks meanwhile.
const (
	closeGrace = 500 * time.Millisecond
	graceTries = 50
)

func isOpen(f *content.File) bool {
	f.Lock()
	defer f.Unlock()
	return f.StateLocked().InUse
}

// settledPlain reports whether a file is one of those that are not to be packed.
func settledPlain(f *content.File) bool {
	f.Lock()
	defer f.Unlock()
	is := f.StateLocked()
	return !is.Dirty && is.Writers == 0
}

// Hydrate hydrates the packed files at or below path.
func Hydrate(ctx context.Context, walk Walk, path string,
	report func(control.Progress)) (*control.Moved, error) {
	hydrate := func(_ string, f *content.File) (int64, string, error) {
		size, err := f.Hydrate()
		if size > 0 {
			content.DropPages(f)
		}
		return size, "", err
	}
	return move(ctx, walk, "hydrate", path, 1, report, hydrate) // one file alone is decoded by all processors
}

// found is a file that a walk came to. It is pinned.
type found struct {
	path string
	file *content.File
}

// waitingFiles is how many files a walk is ahead of the work on them.
const waitingFiles = 64

// mover is a command that moves the bytes of files, several at a time.
type mover struct {
	op     string
	do     func(string, *content.File) (int64, string, error)
	report func(control.Progress) // or nil

	total atomic.Int64 // files; 0 until they are counted

	mu    sync.Mutex
	moved *control.Moved
	done  int
}

// patience is after how long the files are counted of what takes long: who waits wants to know how long.
const patience = time.Second

// count counts the files that walk comes to, unless it is over before.
func (m *mover) count(ctx context.Context, walk Walk, path string) {
	select {
	case <-time.After(patience):
	case <-ctx.Done():
		return
	}
	n := int64(0)
	err := walk(ctx, path, func(string, *content.File) error {
		n++
		return ctx.Err()
	})
	if err == nil {
		m.total.Store(n)
	}
}

// file does it to one file, and lets go of that.
func (m *mover) file(at found) error {
	defer at.file.Unpin()
	size, skip, err := m.do(at.path, at.file)
	if err != nil {
		return &fs.PathError{Op: m.op, Path: at.path, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done++
	switch {
	case skip != "":
		m.moved.Skipped = append(m.moved.Skipped, control.Skip{Path: at.path, Reason: skip})
	case size > 0:
		m.moved.Files++
		m.moved.Bytes += size
	}
	if m.report != nil {
		m.report(control.Progress{DoneBytes: m.moved.Bytes, DoneFiles: m.done,
			TotalFiles: int(m.total.Load()), Current: at.path})
	}
	return nil
}

// files does it to files until there are no more. After an error it only lets go of them.
func (m *mover) files(some <-chan found) (failed error) {
	for at := range some {
		if failed != nil {
			at.file.Unpin()
		} else {
			failed = m.file(at)
		}
	}
	return failed
}

// move does something to each packed file at or below path, to some files at a time. do says how many bytes
// it moved, or why the file is left as it was.
func move(ctx context.Context, walk Walk, op, path string, atATime int, report func(control.Progress),
	do func(string, *content.File) (int64, string, error)) (*control.Moved, error) {
	m := &mover{op: op, do: do, report: report, moved: &control.Moved{Skipped: []control.Skip{}}}
	files := make(chan found, waitingFiles)
	group, ctx := errgroup.WithContext(ctx)
	for range atATime { // not a goroutine for each file: each would grow a stack
		group.Go(func() error { return m.files(files) })
	}
	counting, stop := context.WithCancel(ctx)
	var counted sync.WaitGroup
	if report != nil {
		counted.Go(func() { m.count(counting, walk, path) })
	}
	defer counted.Wait()
	defer stop()
	err := walk(ctx, path, func(p string, f *content.File) error {
		f.Pin()
		files <- found{p, f}
		return ctx.Err()
	})
	close(files)
	if failed := group.Wait(); failed != nil {
		err = failed
	}
	if err != nil {
		if _, ok := err.(*fs.PathError); !ok && err != ctx.Err() {
			err = &fs.PathError{Op: op, Path: path, Err: err}
		}
		return nil, err
	}
	slices.SortFunc(m.moved.Skipped, func(a, b control.Skip) int { return strings.Compare(a.Path, b.Path) })
	return m.moved, nil
}
