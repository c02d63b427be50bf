package residency

import (
	"context"
	"io/fs"
	"time"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
)

// Walk calls f with each regular file at or below a path.
type Walk func(ctx context.Context, path string, f func(path string, file *content.File) error) error

// Evict evicts the resident bytes of the packed files at or below path. Of those in use it says so, and what
// holder says of them, and does it once they are not.
func Evict(ctx context.Context, walk Walk, l *LRU, h *Hydrator, path string,
	holder func(f *content.File) string, report func(control.Progress)) (*control.Moved, error) {
	return move(ctx, walk, "evict", path, report, func(p string, f *content.File) (int64, string, error) {
		h.Forget(f) // the user knows better than what was read before
		size := f.Unpacked()
		skip, err := f.Evict()
		for tries := 0; skip == content.SkipInUse && !isOpen(f) && tries < graceTries; tries++ {
			time.Sleep(closeGrace / graceTries)
			skip, err = f.Evict()
		}
		if skip != "" || err != nil {
			size = 0
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
	})
}

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
	return move(ctx, walk, "hydrate", path, report, func(_ string, f *content.File) (int64, string, error) {
		size, err := f.Hydrate()
		return size, "", err
	})
}

func move(ctx context.Context, walk Walk, op, path string, report func(control.Progress),
	do func(string, *content.File) (int64, string, error)) (*control.Moved, error) {
	m := &control.Moved{Skipped: []control.Skip{}}
	done := 0
	err := walk(ctx, path, func(p string, f *content.File) error {
		size, skip, err := do(p, f)
		if err != nil {
			return &fs.PathError{Op: op, Path: p, Err: err}
		}
		done++
		switch {
		case skip != "":
			m.Skipped = append(m.Skipped, control.Skip{Path: p, Reason: skip})
		case size > 0:
			m.Files++
			m.Bytes += size
		}
		if report != nil {
			report(control.Progress{DoneBytes: m.Bytes, DoneFiles: done, Current: p})
		}
		return nil
	})
	if err != nil {
		if _, ok := err.(*fs.PathError); !ok && err != ctx.Err() {
			err = &fs.PathError{Op: op, Path: path, Err: err}
		}
		return nil, err
	}
	return m, nil
}
