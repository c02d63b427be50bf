package maintenance

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/fs/content"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/index/manifest"
)

// Leave makes every file plain: its bytes lie in the tree then, whole and durable, and were compared with
// what its manifest says. Nothing else uses the store meanwhile. A file that cannot be made plain is a
// problem, and stays as it is; so it may be cut short, and repeated.
func (p *Passes) Leave(
	ctx context.Context, total int64, report func(control.Progress),
) (*control.Left, error) {
	l := &leave{passes: p, ctx: ctx, total: total, report: report}
	l.moved = control.Left{Damaged: []control.Skip{}, Kept: []string{}, Lost: []string{}}
	err := p.Names.Walk(ctx, l.file)
	return &l.moved, err
}

// leave is one under way.
type leave struct {
	passes *Passes
	ctx    context.Context
	moved  control.Left
	total  int64
	looked int
	report func(control.Progress)
}

// file makes one file plain.
func (l *leave) file(path string, n *names.Node) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	if l.looked++; l.report != nil {
		l.report(control.Progress{DoneBytes: l.moved.Bytes, TotalBytes: max(l.total, l.moved.Bytes),
			DoneFiles: l.looked, Current: path})
	}
	err := l.plain(path, n)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%s: %w", path, err)
	}
	l.moved.Damaged = append(l.moved.Damaged, control.Skip{Path: path, Reason: err.Error()})
	return nil
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
		l.moved.Lost = append(l.moved.Lost, path)
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
		l.moved.Kept = append(l.moved.Kept, path)
		return locked(f, func() error { return f.UnpackLocked(false) })
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
		l.moved.Files++
		l.moved.Bytes += size
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
