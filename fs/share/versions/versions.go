// Package versions finds the names of which a remote has several versions, by what heads say.
package versions

import (
	"context"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"ckptfs/cas/remote/heads"
	"ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/fs/control"
	"ckptfs/fs/share/shared"
)

// Finder looks for these names when somebody asks, once for each change of a head: only runs of several
// writers are read. It is safe for concurrent use.
type Finder struct {
	heads *heads.Heads
	group singleflight.Group

	mu    sync.Mutex
	asked bool
	as    uint64 // Heads.Changes, when they were looked for
	nodes []names.Node
}

// New returns a Finder that reads heads.
func New(h *heads.Heads) *Finder { return &Finder{heads: h} }

// all are the names with several versions. ctx ends the wait alone.
func (c *Finder) all(ctx context.Context) ([]names.Node, error) {
	now := c.heads.Changes()
	c.mu.Lock()
	nodes, is := c.nodes, c.asked && c.as == now
	c.mu.Unlock()
	if is {
		return nodes, nil
	}
	done := c.group.DoChan(strconv.FormatUint(now, 10), func() (any, error) {
		ctx, end := context.WithTimeout(context.Background(), shared.LookTimeout)
		defer end()
		return c.look(ctx)
	})
	select {
	case r := <-done:
		nodes, _ := r.Val.([]names.Node)
		return nodes, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Has reports whether a name is among them, as far as that can be told in a moment.
func (c *Finder) Has(p string) bool {
	ctx, end := context.WithTimeout(context.Background(), attrTimeout)
	defer end()
	nodes, err := c.all(ctx)
	if err != nil {
		c.mu.Lock()
		nodes = c.nodes // as they were seen last
		c.mu.Unlock()
	}
	return slices.ContainsFunc(nodes, func(n names.Node) bool { return n.Path == p })
}

// attrTimeout bounds for how long who asks for an attribute waits for the remote.
const attrTimeout = 500 * time.Millisecond

func (c *Finder) look(ctx context.Context) (nodes []names.Node, err error) {
	as := c.heads.Changes() // what changes meanwhile is looked for again
	runs, err := c.heads.Contended(ctx)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		all, err := c.heads.Below(ctx, run)
		if err != nil {
			return nil, err
		}
		for _, n := range names.Tree(heads.Lists(all)...) {
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
func (c *Finder) Losers(ctx context.Context) (all []Loser, err error) {
	nodes, err := c.all(ctx)
	for _, n := range nodes {
		for _, e := range n.Conflicts {
			if e.File != nil || e.Kind == record.KindLink {
				all = append(all, Loser{n.Path, e})
			}
		}
	}
	return all, err
}

// Conflicts lists the names at or below a path of which the remote has several versions.
func (c *Finder) Conflicts(ctx context.Context, at string) (*control.Conflicts, error) {
	at, err := shared.Path("conflicts", at)
	if err != nil {
		return nil, err
	}
	nodes, err := c.all(ctx)
	if err != nil {
		return nil, err
	}
	out := &control.Conflicts{Names: []control.Conflict{}}
	for _, n := range nodes {
		if record.Below(path.Clean(n.Path), at) {
			out.Names = append(out.Names, conflict(&n))
		}
	}
	return out, nil
}

// conflict describes a name of which there are several versions.
func conflict(n *names.Node) control.Conflict {
	c := control.Conflict{Path: n.Path}
	versions := n.Conflicts
	if n.Name != nil {
		versions = append([]*record.Entry{n.Name}, versions...)
	} else { // by what is in it
		c.Versions = append(c.Versions, control.Version{Folder: true})
	}
	for _, e := range versions {
		v := control.Version{Writer: string(e.Origin), Time: time.Unix(0, e.MTime),
			Folder: e.Kind == record.KindFolder}
		if e.File != nil {
			v.Size = e.File.Size
		}
		c.Versions = append(c.Versions, v)
	}
	return c
}
