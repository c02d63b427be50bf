package share

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/cas/remote/record"
	"ckptfs/fs/content"
	"ckptfs/fs/names"
	"ckptfs/fs/share/attrs"
	"ckptfs/fs/share/known"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/tree"
)

// make makes a name, in place of old if that is not nil and is as it was when it was known.
func (p *pull) make(ctx context.Context, dir *names.Node, name string, old *names.Node, e *record.Entry,
	was *known.Name) (*names.Node, error) {
	switch e.Kind {
	case record.KindFolder:
		return p.inPlace(dir, name, old, e.Path, was, func(name string) (*names.Node, error) {
			n, err := p.folder(dir, name, e)
			if err == nil {
				err = p.tell(ctx, n, e)
			}
			return n, err
		})
	case record.KindLink:
		return p.inPlace(dir, name, old, e.Path, was, func(name string) (*names.Node, error) {
			n, _, err := p.o.Tree.Symlink(dir, name, e.Link, self())
			return n, err
		})
	case record.KindFile:
		return p.file(ctx, dir, name, old, e, was)
	}
	return nil, fmt.Errorf("an entry of kind %d: %w", e.Kind, unix.EINVAL)
}

func (p *pull) folder(dir *names.Node, name string, e *record.Entry) (*names.Node, error) {
	n, err := p.mkdir(dir, name, attrs.Mode(e))
	if err != nil {
		return nil, err
	}
	if err := attrs.Set(n, nil, e.Attrs); err != nil {
		n.Unpin()
		return nil, err
	}
	return n, nil
}

// file makes a file, first without a name.
func (p *pull) file(ctx context.Context, dir *names.Node, name string, old *names.Node, e *record.Entry,
	was *known.Name) (*names.Node, error) {
	if !e.File.Manifest.IsZero() && !p.stubs {
		if err := p.bringOne(ctx, e); err != nil {
			return nil, err
		}
	}
	b := p.o.Store.Begin()
	defer b.Release() // which names the architecture until the model does
	if p.stubs {
		if err := p.architecture(ctx, b, e); err != nil {
			return nil, err
		}
	}
	m, err := p.o.Names.MakeUnnamed(dir, uint32(e.Mode), unix.O_RDWR, self())
	if err != nil {
		return nil, err
	}
	n := m.Node
	done, err := p.fill(m, e)
	if err == nil {
		err = p.tell(ctx, n, e)
	}
	if err == nil {
		err = p.place(n, dir, name, old, e.Path, was)
	}
	done()
	if err != nil {
		n.Unpin()
		return nil, err
	}
	p.out.Files++
	p.out.Bytes += e.File.Size
	return n, nil
}

// fill gives a new file its bytes, mode and times. done ends its use, once it has its name, or after an
// error.
func (p *pull) fill(m names.Made, e *record.Entry) (done func(), err error) {
	done = func() {}
	mtime := tree.TimespecOf(time.Unix(0, e.MTime))
	switch {
	case !e.File.Manifest.IsZero() && p.stubs:
		m.Close()
		err = content.AdoptRemote(m.Node.File(), e.File.Manifest, e.File.Size, e.MTime)
	case !e.File.Manifest.IsZero():
		m.Close()
		err = content.Adopt(m.Node.File(), e.File.Manifest, e.MTime)
	default:
		var h *content.Handle
		if h, err = m.Open(unix.O_RDWR, 0); err != nil {
			return done, err
		}
		done = h.Release
		if len(e.File.Inline) > 0 {
			_, err = h.Write([]byte(e.File.Inline), 0)
		}
	}
	if err == nil {
		_, err = p.o.Tree.Setattr(m.Node, &tree.SetAttr{Mtime: &mtime})
	}
	return done, err
}

// place gives a new file its name.
func (p *pull) place(n, dir *names.Node, name string, old *names.Node, at string, was *known.Name) error {
	to := name
	if old != nil {
		to = pullingName(n)
	}
	if _, err := p.o.Tree.Link(n, dir, to); err != nil {
		return err
	}
	n.Unpin() // Link took a reference, too
	if old == nil {
		return nil
	}
	return p.replace(n, dir, to, name, old, at, was)
}

// replace puts what is called next in the place of old. They are exchanged, so that what a program did to
// old, or put in its place, until then comes back. The error is errChanged if there was any.
func (p *pull) replace(n, dir *names.Node, next, name string, old *names.Node, at string,
	was *known.Name) error {
	before, err := p.unchanged(old, at, was)
	exchange := func() error { return p.exchange(dir, next, name) }
	if n.IsDir() || old.IsDir() { // nobody removes the folder
		exchange = func() error {
			return p.lazy.quietly(at, func() error { return p.exchange(dir, next, name) })
		}
	}
	if err == nil {
		err = exchange()
	}
	if errors.Is(err, unix.ENOENT) {
		err = errChanged
	}
	if err != nil {
		return errors.Join(err, p.unlink(dir, next, n))
	}
	if err = p.isStill(dir, next, old, before); err == nil {
		err = p.unlink(dir, next, old)
		if !shared.NotEmpty(err) {
			return err
		}
		err = errChanged // something was put into the folder
	}
	return errors.Join(err, exchange(), p.unlink(dir, next, n))
}

func (p *pull) exchange(dir *names.Node, a, b string) error {
	err := p.o.Tree.Rename(dir, a, dir, b, unix.RENAME_EXCHANGE)
	p.announce(dir, b)
	return err
}

// unlink removes a name, if it is a node's, and that no folder in which something is.
func (p *pull) unlink(dir *names.Node, name string, of *names.Node) error {
	n, _, err := p.o.Names.Child(dir, name)
	if err != nil {
		return shared.Gone(err)
	}
	defer n.Unpin()
	if n.Ino() != of.Ino() {
		return nil
	}
	if n.IsDir() {
		return p.o.Tree.Rmdir(dir, name)
	}
	return p.o.Tree.Unlink(dir, name)
}

// unchanged is how old is, if it is as it was when it was known; was is bare of a stub that isLost.
func (p *pull) unchanged(old *names.Node, at string, was *known.Name) (is content.State, err error) {
	st, err := p.stepAt(at)
	if err != nil {
		return is, err
	}
	if old.File() == nil {
		l := &looker{Share: p.Share}
		_, look, err := l.entry(old, at, st, nil)
		if err == nil && (was == nil || look != was.Look && !p.cut[at]) {
			err = errChanged
		}
		return is, err
	}
	a, is, err := settled(old)
	if was.Bare() && err == nil && is.Record.Remote { // a stub that was changed is none
		gone, err := p.isLost(old)
		if err == nil && !gone && was != nil {
			err = errChanged
		}
		return is, err
	}
	if was == nil || err != nil || lookOf(&a, &is, st) != was.Look {
		return is, errChanged
	}
	return is, nil
}

// isStill checks that a name is old's, which nobody changed.
func (p *pull) isStill(dir *names.Node, name string, old *names.Node, before content.State) error {
	n, _, err := p.o.Names.Child(dir, name)
	if err != nil {
		return errors.Join(errChanged, shared.Gone(err))
	}
	defer n.Unpin()
	if n.Ino() != old.Ino() {
		return errChanged
	}
	if old.File() == nil {
		return nil
	}
	if _, is, err := settled(old); err != nil || is.Gen != before.Gen {
		return errChanged
	}
	return nil
}
