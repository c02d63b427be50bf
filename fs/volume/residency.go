package volume

import (
	"context"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fs/content"
	"ckptfs/fs/control"
)

// Evict gives up the bytes in place of the packed files at or below path. Of those in use it says so, and does it once
// they are not.
func (v *Volume) Evict(ctx context.Context, path string, report func(control.Progress)) (*control.Moved, error) {
	return v.move(ctx, "evict", path, report, func(p string, n *Node) (int64, string, error) {
		v.hydrator.forget(n.file) // who says so knows better than what was read before
		size := n.file.Unpacked()
		skip, err := n.file.Evict()
		for end := time.Now().Add(closeGrace); skip == content.SkipInUse && !v.isOpen(n) && time.Now().Before(end); {
			time.Sleep(closeGrace / 50)
			skip, err = n.file.Evict()
		}
		if skip != "" || err != nil {
			size = 0
		}
		switch skip {
		case content.SkipOpen, content.SkipInUse:
			v.hot.want(n.file)
		case content.SkipNotPacked:
			if p != path && v.settledPlain(n) {
				skip = "" // in a folder, plain files are no news
			}
		}
		return size, skip, err
	})
}

// closeGrace is how long Evict waits for the kernel to let go of a file that a program has closed already.
const closeGrace = 500 * time.Millisecond

func (v *Volume) isOpen(n *Node) bool {
	n.file.Lock()
	defer n.file.Unlock()
	return n.file.UsersLocked() > 0
}

// settledPlain reports whether a file is one of those that are not to be packed.
func (v *Volume) settledPlain(n *Node) bool {
	n.file.Lock()
	defer n.file.Unlock()
	return !n.file.DirtyLocked() && n.file.WritersLocked() == 0
}

// Hydrate fills in the bytes of the packed files at or below path.
func (v *Volume) Hydrate(ctx context.Context, path string, report func(control.Progress)) (*control.Moved, error) {
	return v.move(ctx, "hydrate", path, report, func(_ string, n *Node) (int64, string, error) {
		size, err := n.file.Hydrate()
		return size, "", err
	})
}

func (v *Volume) move(ctx context.Context, op, path string, report func(control.Progress), do func(string, *Node) (int64, string, error)) (*control.Moved, error) {
	if v.readOnly {
		return nil, &fs.PathError{Op: op, Path: path, Err: unix.EROFS}
	}
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
