package share

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/names"
	"ckptfs/fs/share/known"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
)

// A name that is a folder on one machine, and that another put a file or a link in the place of, or the other
// way round, is replaced as any name is, by an exchange (replace): a folder once nothing is in it. What it is
// about to get is noted before what others removed is removed from it: from there on it may look otherwise,
// as metrics go with their files, and no program changed it (known.Name.Next). As long as something of this
// machine is in it, it stays (lazy.staying); published with that, it is a folder for all.

const inTheWay = "others put a file or a link in the place of this folder, and something of this machine is in it: push that, and both versions are kept, or remove it"

// kind reports whether the tree has a name, and whether that is a folder.
func (s *Share) kind(at string) (there, folder bool, err error) {
	n, err := s.o.Names.Resolve(at)
	if err == nil {
		defer n.Unpin()
		return true, n.IsDir(), nil
	}
	return false, false, shared.Gone(err)
}

// isFull reports whether a node is a folder that what an entry says cannot replace: something is in it.
func isFull(n *names.Node, e *record.Entry) (bool, error) {
	if !n.IsDir() || e.Kind == record.KindFolder {
		return false, nil
	}
	return shared.HoldsSome(n)
}

// noteTips notes that a folder shows what the remote has of its name, which says nothing of a folder. If
// names in it are this machine's, what it has besides is published again: others have none of it any more.
func (p *pull) noteTips(ctx context.Context, n *rnames.Node, here *names.Node, was *known.Name) error {
	had := was.Encode()
	_, look, err := shown(ctx, p.Share, here, n.Path, was)
	if err != nil || was.Bare() || was.Look != look {
		return err // its attributes were changed here: that is published, and another version is kept
	}
	is := &known.Name{Look: look, Content: was.Content, Tips: n.Shown()}
	if len(n.Conflicts) > 0 && is.Content != known.ContentOf(n.AsFolder()) {
		if own, err := p.ownBelow(n.Path); err != nil {
			return err
		} else if own {
			is = &known.Name{Tips: was.Tips}
			defer p.Touched(n.Path)
		}
	}
	if b := is.Encode(); !bytes.Equal(had, b) {
		return p.noted(n.Path, b)
	}
	return nil
}

// ownBelow reports whether this machine published a name below a folder, which nobody changed since.
func (s *Share) ownBelow(at string) (bool, error) {
	own, is := record.Writer(s.Status().Writer), errors.New("it is")
	err := s.o.State.EachName(at, func(p string, b []byte) error {
		k, err := known.Decode(p, b)
		if p != at && err == nil && slices.ContainsFunc(k.Tips, func(r record.Replaced) bool {
			return r.Writer == own
		}) {
			return is
		}
		return nil
	})
	if errors.Is(err, is) {
		return true, nil
	}
	return false, err
}

// inPlace makes what is no file by mk, in place of old if that is not nil.
func (p *pull) inPlace(dir *names.Node, name string, old *names.Node, at string, was *known.Name,
	mk func(name string) (*names.Node, error)) (*names.Node, error) {
	if old == nil {
		return mk(name)
	}
	n, err := mk(making)
	if err != nil {
		return nil, err
	}
	next := pullingName(n)
	if err = p.o.Tree.Rename(dir, making, dir, next, unix.RENAME_NOREPLACE); err == nil {
		err = p.replace(n, dir, next, name, old, at, was)
	}
	if err != nil {
		n.Unpin()
		return nil, err
	}
	return n, nil
}

// makeRoom has a look replace a folder in which something is: what is published may take its place.
func (p *pull) makeRoom(ctx context.Context, n *rnames.Node) error {
	old, err := p.o.Names.Resolve(n.Path)
	if err != nil {
		return shared.Gone(err)
	}
	defer old.Unpin()
	full, err := isFull(old, n.Name)
	if err == nil && full {
		_ = p.lazy.ensure(ctx, path.Dir(n.Path)) // what stays is named
	}
	return err
}

// emptied has what others removed go from folders that they replaced. again: one is empty now, and can be.
func (l *level) emptied(ctx context.Context) (again bool, err error) {
	for p, e := range l.full {
		if err := l.lazy.below(ctx, p); err != nil {
			return false, err
		}
		if _, err := clearUnasked(ctx, l.Share, p); err != nil { // beside a push that is left for later
			return false, err
		}
		n, err := l.o.Names.Resolve(p)
		if err != nil {
			return again, shared.Gone(err)
		}
		full, err := isFull(n, e)
		n.Unpin()
		if err != nil {
			return false, err
		}
		again = again || !full
	}
	return again, nil
}

// setStaying notes which names in a folder are folders that others replaced, and that stay.
func (z *lazy) setStaying(at string, full map[string]*record.Entry) {
	maps.DeleteFunc(z.staying, func(p string, _ bool) bool { return path.Dir(p) == at })
	for p := range full {
		z.staying[p] = true
	}
}

// stays reports whether a name is a folder that others replaced, and that stays.
func (z *lazy) stays(p string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.staying[p]
}

// stays reports whether a folder stays that others replaced, and no program changed what it is besides.
func (c *collector) stays(ctx context.Context, n *names.Node, p string) (bool, error) {
	if !n.IsDir() {
		return false, nil
	}
	k, err := c.known(p)
	if k == nil || k.Next == nil || err != nil {
		return false, err
	}
	_ = c.lazy.ensure(ctx, path.Dir(p)) // else an earlier process may have found that
	return c.lazy.stays(p), nil
}

// addStaying adds the entry of a folder that stays for what is in it, if some of that is published: the
// entries from first on.
func (c *collector) addStaying(ctx context.Context, n *names.Node, p string, st *steps.Step,
	first int) error {
	if len(c.entries) == first {
		c.note(p, inTheWay)
		return nil
	}
	if ousts, err := c.ousts(ctx, p); ousts || err != nil {
		return err
	}
	e, look, err := c.entry(n, p, st, nil)
	if err != nil {
		return shared.Gone(err)
	}
	c.looks[p], c.stayed[p] = look, true
	c.entries = slices.Insert(c.entries, first, *e)
	return nil
}

// ousts reports whether the entry of a folder that no program changed would take the place of what this
// machine published under its name, and no folder was. What is in the folder says that it is one.
func (c *collector) ousts(ctx context.Context, p string) (bool, error) {
	held, err := c.heldBelow(ctx, p)
	return rnames.Stands(record.Writer(c.Status().Writer), held[p]), err
}
