package share

import (
	"context"
	"strings"

	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share/changed"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
)

// Unpublished counts what is not published as it is here, as far as that is to be shared. It asks no engine,
// and looks only into runs that something changed in.
func (s *Share) Unpublished(ctx context.Context) (*control.Unpublished, error) {
	c := &counter{Share: s, ctx: ctx, dirty: s.changed.ToLookAt()}
	c.out.Removed = len(s.removals.All())
	top, err := s.o.Names.Resolve(steps.Dir)
	if err != nil {
		return &c.out, shared.Gone(err)
	}
	defer top.Unpin()
	err = c.each(top, steps.Dir, func(n *names.Node, run string) error {
		if !n.IsDir() || !c.dirty.Has(run) {
			return nil
		}
		all, err := s.o.Steps.Of(strings.TrimPrefix(run, steps.Dir+"/"))
		if err != nil {
			return err
		}
		byPath := map[string]*steps.Step{}
		for _, of := range all {
			for _, st := range of {
				byPath[run+"/"+st.Name] = st
			}
		}
		return c.each(n, run, func(n *names.Node, p string) error {
			st := byPath[p]
			if st != nil && s.changed.WasDone(p, st) {
				return nil
			}
			return c.count(n, p, st)
		})
	})
	return &c.out, err
}

type counter struct {
	*Share
	ctx   context.Context
	dirty changed.Runs
	out   control.Unpublished
}

// each calls f with what a folder holds that is to be shared.
func (c *counter) each(dir *names.Node, at string, f func(n *names.Node, p string) error) error {
	list, err := dir.ListQuietly()
	if err != nil {
		return shared.Gone(err)
	}
	for _, e := range list {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if !shared.MayPublish(e.Name) {
			continue
		}
		n, _, err := c.o.Names.Child(dir, e.Name)
		if err == nil {
			err = f(n, at+"/"+e.Name)
			n.Unpin()
		}
		if shared.Gone(err) != nil {
			return err
		}
	}
	return nil
}

// count counts a node and what is below it.
func (c *counter) count(n *names.Node, p string, st *steps.Step) error {
	if n.IsDir() {
		return c.each(n, p, func(n *names.Node, p string) error { return c.count(n, p, nil) })
	}
	if n.File() == nil {
		return nil
	}
	k, err := c.known(p)
	if err != nil {
		return err
	}
	if k != nil {
		if same, err := c.published(n, p, st, k); same || err != nil {
			return err
		}
	}
	a, err := n.Attr()
	if err != nil {
		return err
	}
	c.out.Files++
	c.out.Bytes += a.Size
	return nil
}
