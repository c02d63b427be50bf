package share

import (
	"context"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
	"ckptfs/fs/share/shared"
)

// conflicts are the names of which the remote has several versions, by what heads say. They are looked for
// when somebody asks, once for each change of a head: only runs of several writers are read.
type conflicts struct {
	s     *Share
	group singleflight.Group

	mu    sync.Mutex
	asked bool
	as    uint64 // Heads.Changes, when they were looked for
	nodes []rnames.Node
}

// all are the names with several versions. ctx ends the wait alone.
func (c *conflicts) all(ctx context.Context) ([]rnames.Node, error) {
	now := c.s.heads.Changes()
	c.mu.Lock()
	nodes, is := c.nodes, c.asked && c.as == now
	c.mu.Unlock()
	if is {
		return nodes, nil
	}
	done := c.group.DoChan(strconv.FormatUint(now, 10), func() (any, error) {
		ctx, end := context.WithTimeout(context.Background(), lookTimeout)
		defer end()
		return c.look(ctx)
	})
	select {
	case r := <-done:
		nodes, _ := r.Val.([]rnames.Node)
		return nodes, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// has reports whether a name is among them, as far as that can be told in a moment.
func (c *conflicts) has(p string) bool {
	ctx, end := context.WithTimeout(context.Background(), attrTimeout)
	defer end()
	nodes, err := c.all(ctx)
	if err != nil {
		c.mu.Lock()
		nodes = c.nodes // as they were seen last
		c.mu.Unlock()
	}
	return slices.ContainsFunc(nodes, func(n rnames.Node) bool { return n.Path == p })
}

// attrTimeout bounds for how long who asks for an attribute waits for the remote.
const attrTimeout = 500 * time.Millisecond

func (c *conflicts) look(ctx context.Context) (nodes []rnames.Node, err error) {
	as := c.s.heads.Changes() // what changes meanwhile is looked for again
	runs, err := c.s.heads.Contended(ctx)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		all, err := c.s.nodes(ctx, run)
		if err != nil {
			return nil, err
		}
		for _, n := range all {
			if len(n.Conflicts) > 0 {
				nodes = append(nodes, n)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.as, c.nodes = true, as, nodes
	return nodes, nil
}

// Loser is a version of a name that another version has got.
type Loser struct {
	Name string // the name of which it is a version
	*record.Entry
}

// Path is the name of the version, which tells whose it is.
func (l Loser) Path() string { return l.Name + "@" + string(l.Origin) }

// Losers are the files and links that lost their names to versions of others, ascending by Name.
func (s *Share) Losers(ctx context.Context) (all []Loser, err error) {
	nodes, err := s.conflicts.all(ctx)
	for _, n := range nodes {
		for _, e := range n.Conflicts {
			if e.File != nil || e.Kind == record.KindLink {
				all = append(all, Loser{n.Path, e})
			}
		}
	}
	return all, err
}

// Expect keeps where the plan of a loser's file is, so that its bytes are found.
func (s *Share) Expect(l Loser) error { return s.o.State.SetFiles([]*record.File{l.File}) }

// Conflicts lists the names at or below a path of which the remote has several versions.
func (s *Share) Conflicts(ctx context.Context, at string) (*control.Conflicts, error) {
	at, err := shared.Path("conflicts", at)
	if err != nil {
		return nil, err
	}
	nodes, err := s.conflicts.all(ctx)
	if err != nil {
		return nil, err
	}
	out := &control.Conflicts{Names: []control.Conflict{}}
	for _, n := range nodes {
		if record.Below(path.Clean(n.Path), at) {
			out.Names = append(out.Names, shared.Conflict(&n))
		}
	}
	return out, nil
}
