package share

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"ckptfs/cas"
	"ckptfs/cas/remote/bucket"
	rnames "ckptfs/cas/remote/names"
	"ckptfs/cas/remote/record"
	"ckptfs/cas/store"
	"ckptfs/fs/control"
	"ckptfs/fs/names"
	"ckptfs/fs/share/shared"
	"ckptfs/fs/steps"
)

// What is made at a time, while nothing is published: steps as a whole, until they are so many names, or of
// so many bytes.
const (
	portionNames = 256
	portionBytes = 1 << 30
)

// Pull makes the names at or below a path as others published them, after a Fetch. What was changed here and
// not published is left as it is, and so is what others removed.
func (s *Share) Pull(ctx context.Context, at string, report func(control.Progress)) (*control.Pulled, error) {
	at, err := shared.Path("pull", at)
	if err != nil {
		return nil, err
	}
	return s.pullAll(ctx, at, []string{at}, report)
}

// pullAll is Pull of what is named of a path.
func (s *Share) pullAll(ctx context.Context, at string, parts []string, report func(control.Progress)) (
	_ *control.Pulled, err error) {
	defer Heard(ctx, s)
	if _, err := fetchHeads(ctx, s); err != nil {
		return nil, err
	}
	if parts[0] == steps.Dir {
		if parts, err = s.heads.Runs(ctx); err != nil {
			return nil, err
		}
	}
	p := &pull{Share: s, report: report, out: control.Pulled{Skipped: []control.Skip{}},
		announce: s.announce, notes: map[string][]byte{}, cut: map[string]bool{}, cleared: map[string]bool{},
		full: map[string]*record.Entry{}, brought: map[cas.Hash]*store.Batch{}}
	_, before := s.bring.Reader.Stats()
	some := false
	for _, part := range parts {
		if record.Below(part, steps.Dir) {
			any, err := p.part(ctx, part)
			if err != nil {
				return nil, err
			}
			some = some || any
		}
	}
	if !some {
		return nil, &fs.PathError{Op: "pull", Path: at,
			Err: fmt.Errorf("the remote has no such name: %w", unix.ENOENT)}
	}
	_, after := s.bring.Reader.Stats()
	p.out.Fetched = after - before
	return &p.out, s.o.State.Sync()
}

// pull makes names.
type pull struct {
	*Share
	report  func(control.Progress)
	out     control.Pulled
	total   control.Progress
	stubs   bool                      // files are made without their bytes
	notes   map[string][]byte         // that are not kept yet
	cut     map[string]bool           // names that a crash left between what they had and what they get
	full    map[string]*record.Entry  // folders that something is in, and what others put in their place
	cleared map[string]bool           // folders of a portion that hold nothing which an earlier pull left
	brought map[cas.Hash]*store.Batch // by manifest: they hold what a portion's files consist of
	// announce tells the kernel of a name that appeared or was replaced.
	announce func(dir *names.Node, name string)

	models map[record.Parent]*record.Model // that were asked for; nil: no head has one
}

// part pulls a run, or what lies in one. any: the remote has something of it.
func (p *pull) part(ctx context.Context, at string) (any bool, err error) {
	changes := p.heads.Changes()
	nodes, err := p.nodes(ctx, at)
	if err != nil {
		return false, err
	}
	for i := range nodes {
		if f := nodes[i].Name; f != nil && f.File != nil {
			p.total.TotalFiles++
			p.total.TotalBytes += f.File.Size
		}
	}
	for rest := nodes; len(rest) > 0; {
		n := portion(rest)
		if err := p.portion(ctx, rest[:n], changes); err != nil {
			return true, err
		}
		rest = rest[n:]
	}
	return len(nodes) > 0, nil
}

// portion is how many of the first nodes are made at a time.
func portion(nodes []rnames.Node) (n int) {
	for bytes := int64(0); n < len(nodes); n++ {
		if (n >= portionNames || bytes >= portionBytes) &&
			shared.Step(nodes[n].Path) != shared.Step(nodes[n-1].Path) {
			break
		}
		if f := nodes[n].Name; f != nil && f.File != nil {
			bytes += f.File.Size
		}
	}
	return n
}

// portion makes names. What they consist of is brought first; nothing is published only while they are made.
func (p *pull) portion(ctx context.Context, nodes []rnames.Node, changes uint64) error {
	defer p.release()
	for i := range nodes {
		if err := p.ahead(ctx, &nodes[i]); err != nil {
			return fmt.Errorf("pull %s: %w", nodes[i].Path, err)
		}
	}
	p.pushing.Lock() // what is pulled just now is not published before it is known
	defer p.pushing.Unlock()
	if p.heads.Changes() != changes {
		var err error
		if nodes, err = p.again(ctx, nodes); err != nil {
			return err
		}
	}
	clear(p.cleared)
	nodes, err := p.expect(ctx, nil, nodes)
	if err != nil {
		return err
	}
	for i := range nodes {
		if err := p.node(ctx, &nodes[i]); err != nil {
			return errors.Join(err, p.flush())
		}
	}
	return p.flush()
}

// again reads the steps of a portion again: a push may have published another version of a name since, which
// is not to be undone.
func (p *pull) again(ctx context.Context, nodes []rnames.Node) (now []rnames.Node, err error) {
	for len(nodes) > 0 {
		step := shared.Step(nodes[0].Path)
		all, err := p.nodes(ctx, step)
		if err != nil {
			return nil, err
		}
		for _, n := range all {
			if shared.Step(n.Path) == step {
				now = append(now, n)
			}
		}
		n := slices.IndexFunc(nodes, func(n rnames.Node) bool { return shared.Step(n.Path) != step })
		if n < 0 {
			break
		}
		nodes = nodes[n:]
	}
	return now, nil
}

// ahead brings what a name consists of, if it will be made.
func (p *pull) ahead(ctx context.Context, n *rnames.Node) error {
	e := n.Name
	if e == nil || n.Folder {
		return nil
	}
	if err := p.makeRoom(ctx, n); err != nil || e.File == nil {
		return err
	}
	if wanted, err := p.wants(ctx, n); err != nil {
		return err
	} else if wanted && !e.File.Manifest.IsZero() {
		if err := p.bringOne(ctx, e); err != nil && !lost(err) { // else node says so
			return err
		}
	}
	if p.report != nil {
		p.total.DoneFiles, p.total.DoneBytes = p.total.DoneFiles+1, p.total.DoneBytes+e.File.Size
		p.total.Current = e.Path
		p.report(p.total)
	}
	return nil
}

// wants reports whether a name will be made, as far as can be told before.
func (p *pull) wants(ctx context.Context, n *rnames.Node) (bool, error) {
	was, err := p.known(n.Path)
	if err != nil {
		return false, err
	}
	old, err := p.o.Names.Resolve(n.Path)
	switch {
	case errors.Is(err, unix.ENOENT):
		return was.Bare() || !p.goes(n.Path), nil
	case errors.Is(err, unix.ENOTDIR):
		return false, nil
	case err != nil:
		return false, err
	}
	defer old.Unpin()
	same, why, err := p.here(ctx, old, n.Path, n.Name, was)
	return (!same || isStub(old)) && why == "", err
}

// bringOne brings what a file consists of, unless that was done, and holds it until release.
func (p *pull) bringOne(ctx context.Context, e *record.Entry) error {
	if p.brought[e.File.Manifest] != nil {
		return nil
	}
	b := p.o.Store.Begin()
	err := p.bring.File(ctx, b, e)
	if err == nil {
		err = b.Commit()
	}
	if err != nil {
		b.Release()
		return err
	}
	p.brought[e.File.Manifest] = b
	return nil
}

// release lets go of what was brought: by now the files name it.
func (p *pull) release() {
	for _, b := range p.brought {
		b.Release()
	}
	clear(p.brought)
}

// lost reports whether the remote has lost a file, or never had all of it.
func lost(err error) bool {
	return errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) ||
		errors.Is(err, bucket.ErrNotFound)
}
