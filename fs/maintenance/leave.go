package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/index/manifest"
)

const (
	// leavers are how many files are made plain at a time: each waits for the disk several times. But of
	// those with more than leavesAlone bytes it is one, which keeps the processors busy.
	leavers     = 16
	leavesAlone = 8 << 20
)

// Leave makes every file plain: its bytes lie in the tree then, whole and durable, and were compared with
// what its manifest says. Nothing else uses the store meanwhile. A file that cannot be made plain is a
// problem, and stays as it is; so it may be cut short, and repeated.
func (p *Passes) Leave(
	ctx context.Context, total int64, report func(control.Progress),
) (*control.Left, error) {
	l := &leave{passes: p, ctx: ctx, total: total, report: report}
	l.moved = control.Left{Damaged: []control.Skip{}, Kept: []string{}, Lost: []string{}}
	err := p.Names.Tour(ctx, names.Tour{Workers: leavers, File: l.file})
	slices.SortFunc(l.moved.Damaged, func(a, b control.Skip) int { return cmp.Compare(a.Path, b.Path) })
	slices.Sort(l.moved.Kept)
	slices.Sort(l.moved.Lost)
	return &l.moved, err
}

// leave is one under way.
type leave struct {
	passes *Passes
	ctx    context.Context
	total  int64
	large  sync.Mutex          // held while a large file is made plain
	inodes [leavers]sync.Mutex // by number: a file with two names is not met twice at a time

	mu     sync.Mutex // guards the rest
	moved  control.Left
	looked int
	report func(control.Progress)
}

// file makes one file plain.
func (l *leave) file(path string, n *names.Node, _ *unix.Stat_t) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	l.begins(path)
	one := &l.inodes[n.Ino()%leavers]
	one.Lock()
	defer one.Unlock()
	err := l.plain(path, n)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%s: %w", path, err)
	}
	l.note(func(out *control.Left) {
		out.Damaged = append(out.Damaged, control.Skip{Path: path, Reason: err.Error()})
	})
	return nil
}

// begins reports that a file is looked at.
func (l *leave) begins(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looked++; l.report != nil {
		l.report(control.Progress{DoneBytes: l.moved.Bytes, TotalBytes: max(l.total, l.moved.Bytes),
			DoneFiles: l.looked, Current: path})
	}
}

// note changes what Leave returns.
func (l *leave) note(change func(*control.Left)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.moved)
}

// plain makes a file plain. No lock is held.
func (l *leave) plain(path string, n *names.Node) error {
	f := n.File()
	is, err := found(f)
	switch {
	case err != nil:
		return err
	case is.Damage != nil:
		return is.Damage
	case is.Record.Lost:
		l.note(func(out *control.Left) { out.Lost = append(out.Lost, path) })
	}
	if !is.Packed() {
		return locked(f, func() error { return f.UnpackLocked(false) })
	}
	m, err := l.passes.Assemble.Manifest(is.Record.Manifest)
	if err == nil {
		_, err = l.passes.Files.Complete(is.Record.Manifest)
	}
	if err != nil && (is.Record.Hollow || is.Record.Remote) {
		return err
	}
	if err != nil { // the local copy is all there is, and UnpackLocked keeps it
		l.note(func(out *control.Left) { out.Kept = append(out.Kept, path) })
		return locked(f, func() error { return f.UnpackLocked(false) })
	}
	if m.Size > leavesAlone {
		l.large.Lock()
		defer l.large.Unlock()
	}
	if !is.Record.Hollow {
		if l.same(f, m) == nil {
			return l.count(m.Size, content.UnpackInPlace(f))
		}
		if err := locked(f, f.DisbelieveLocked); err != nil {
			return err
		}
	}
	if _, err := f.Hydrate(); err != nil {
		return err
	}
	if err := l.same(f, m); err != nil {
		return fmt.Errorf("what was written is not what the disk has: %w", err)
	}
	return l.count(m.Size, content.UnpackInPlace(f))
}

// count counts a file that was made plain.
func (l *leave) count(size int64, err error) error {
	if err == nil {
		l.note(func(out *control.Left) {
			out.Files++
			out.Bytes += size
		})
	}
	return err
}

// same compares the local copy, as the disk has it, with the hashes of its manifest.
func (l *leave) same(f *content.File, m *manifest.Manifest) error {
	raw, err := f.OpenQuietly()
	if err != nil {
		return err
	}
	defer raw.Close()
	if st, err := raw.Stat(); err != nil || st.Size() != m.Size {
		return fmt.Errorf("its size is not that of its manifest, %d: %w", m.Size, errors.Join(err, cas.ErrCorrupt))
	}
	_ = unix.Fadvise(int(raw.Fd()), 0, 0, unix.FADV_DONTNEED) // what is not durable stays in memory
	c := check{passes: l.passes, out: &control.Checked{}}
	if at, err := c.compare(l.ctx, raw, m); err != nil {
		return fmt.Errorf("at %d: %w", at, err)
	}
	return nil
}

// found is the state of a file, once all is read that tells it.
func found(f *content.File) (is content.State, err error) {
	f.Lock()
	defer f.Unlock()
	if err := f.LoadLocked(); err != nil {
		return is, err
	}
	if !f.StateLocked().Packed() {
		err = f.VetLocked()
	}
	return f.StateLocked(), err
}

func locked(f *content.File, do func() error) error {
	f.Lock()
	defer f.Unlock()
	return do()
}
