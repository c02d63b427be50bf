package volume

import (
	"context"
	"io/fs"

	"ckptfs/fs/control"
)

// Evict drops the raw copies of the packed files at or below path.
func (v *Volume) Evict(ctx context.Context, path string, report func(control.Progress)) (*control.Moved, error) {
	return v.move(ctx, "evict", path, report, func(p string, n *Node) (int64, string, error) {
		size := v.rawSize(n)
		skip, err := v.evict(n)
		if skip == skipNotPacked && p != path && v.staysPlain(n, size) {
			skip = "" // in a folder, small plain files are no news
		}
		if skip != "" || err != nil {
			size = 0
		}
		return size, skip, err
	})
}

// staysPlain reports whether a file is one of those that are never packed.
func (v *Volume) staysPlain(n *Node, size int64) bool {
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	return size < smallFile && !n.file.dirty
}

// Hydrate makes raw copies of the packed files at or below path.
func (v *Volume) Hydrate(ctx context.Context, path string, report func(control.Progress)) (*control.Moved, error) {
	return v.move(ctx, "hydrate", path, report, func(_ string, n *Node) (int64, string, error) {
		size, err := v.hydrate(n)
		return size, "", err
	})
}

func (v *Volume) move(ctx context.Context, op, path string, report func(control.Progress), do func(string, *Node) (int64, string, error)) (*control.Moved, error) {
	m := &control.Moved{Skipped: []control.Skip{}}
	done := 0
	err := v.walk(ctx, path, func(p string, n *Node) error {
		size, skip, err := do(p, n)
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

var _ control.Volume = (*Volume)(nil)
