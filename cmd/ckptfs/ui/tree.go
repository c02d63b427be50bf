package ui

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"

	"ckptfs/fs/control"
	"ckptfs/fs/steps"
)

// tensorsBody is the tensors of a file, or of a set of files, below a prefix of their names.
type tensorsBody struct {
	*control.Outline
	Tree   []*node
	Prefix string
	Up     string // the part with the prefix above
	Files  []link // the checkpoints of a folder of several; the others are not set then
}

// node is a tensor, or what the names of several have in common.
type node struct {
	Name    string // the part of the name below its parent
	Prefix  string // all of the name, with the dot behind it
	Tensors int
	Bytes   int64
	Shared  int // tensors that other files hold, too
	Kids    []*node
	T       *control.Owned
	Owner   *control.Model // that first stored it; nil: not known, or this file's
	Here    bool           // this file did
	URL     string
	Open    bool // it is shown unfolded
	kids    map[string]*node
}

const (
	// mostTree is how many tensors are shown as a whole tree; of a file with more only one level is.
	mostTree = 3000
	// mostKids is how many names of one level are shown.
	mostKids = 1000
	// mostLevels is how many levels a tree has; the rest of a name is one.
	mostLevels = 20
)

func (s *server) tensorsPart(ctx context.Context, r *http.Request) (*page, error) {
	q := r.URL.Query()
	p, prefix := q.Get("path"), q.Get("prefix")
	o, err := s.c.Outline(ctx, control.OutlineOptions{Path: p, Prefix: prefix, Most: mostTree,
		Names: mostKids})
	if err != nil && control.AsError(err).Code == control.CodeInvalid {
		if e, there := s.c.Entry(ctx, p); there == nil && e.Mode&modeType == modeDir {
			return s.checkpoints(ctx, p)
		}
	}
	if err != nil {
		return nil, err
	}
	b := &tensorsBody{Outline: o, Prefix: prefix, Tree: tree(o.Listed, prefix).Kids}
	if len(o.Listed) == 0 {
		b.Tree = levelOf(o, prefix)
	}
	if len(b.Tree) > mostKids {
		b.Tree, o.More = b.Tree[:mostKids], true
	}
	b.about(b.Tree)
	unfold(b.Tree)
	if prefix != "" {
		up := strings.TrimRight(prefix, "./")
		up = up[:strings.LastIndexAny(up, "./")+1]
		b.Up = withQuery("/path", "path", p, "prefix", up)
	}
	return &page{Name: "tensors", Body: b, Data: o}, nil
}

// checkpoints are those of a folder that is not one itself.
func (s *server) checkpoints(ctx context.Context, p string) (*page, error) {
	entries, _, err := s.entries(ctx, p)
	if err != nil {
		return nil, err
	}
	b := &tensorsBody{Outline: &control.Outline{File: &control.File{Path: p}}, Files: []link{}}
	for i := range entries {
		if e := &entries[i]; e.Kind == "file" && steps.IsCheckpoint(e.Name) {
			b.Files = append(b.Files, link{shown(e.Name), e.URL})
		}
	}
	list := func() any { // as the page of a folder has it
		all, err := s.listing(ctx, p)
		if err != nil {
			all = map[string]any{"error": control.AsError(err)}
		}
		return all
	}
	return &page{Name: "tensors", Body: b, Data: later(list)}, nil
}

// levelOf is one level of names.
func levelOf(o *control.Outline, prefix string) (all []*node) {
	for i := range o.Level {
		l := &o.Level[i]
		all = append(all, &node{Name: strings.TrimRight(l.Name, "./"), Prefix: prefix + l.Name,
			Tensors: l.Tensors, Bytes: l.Bytes, Shared: l.Shared, T: l.Tensor})
	}
	return all
}

func (n *node) count(t *control.Owned) {
	n.Tensors, n.Bytes = n.Tensors+1, n.Bytes+t.Bytes
	if max(t.Shared, len(t.SharedWith)) > 0 {
		n.Shared++
	}
}

// tree puts tensors under each other by the parts of their names. A level with one name alone is one with the
// next.
func tree(all []control.Owned, prefix string) *node {
	top := &node{kids: map[string]*node{}, Prefix: prefix}
	for i := range all {
		t := &all[i]
		at, rest := top, t.Name[len(prefix):]
		for range mostLevels {
			end := strings.IndexAny(rest, "./")
			if end < 0 || end+1 == len(rest) {
				break
			}
			name := rest[:end+1]
			k := at.kids[name]
			if k == nil {
				k = &node{Name: name[:end], Prefix: at.Prefix + name, kids: map[string]*node{}}
				at.kids[name], at.Kids = k, append(at.Kids, k)
			}
			k.count(t)
			at, rest = k, rest[end+1:]
		}
		leaf := &node{Name: rest, Prefix: t.Name, T: t}
		leaf.count(t)
		at.Kids = append(at.Kids, leaf)
	}
	for i, k := range top.Kids {
		top.Kids[i] = k.joined()
	}
	return top
}

func (n *node) joined() *node {
	for n.T == nil && len(n.Kids) == 1 {
		k := n.Kids[0]
		k.Name = n.Name + n.Prefix[len(n.Prefix)-1:] + k.Name
		n = k
	}
	for i, k := range n.Kids {
		n.Kids[i] = k.joined()
	}
	return n
}

// about sets of tensors and levels where they lead, and of tensors who stored them first.
func (b *tensorsBody) about(all []*node) {
	for _, n := range all {
		if n.T != nil {
			n.URL = tensorURL(b.File.Path, n.T.Name)
			n.Owner = b.Owner(n.T)
			if n.Here = n.Owner != nil && b.has(n.Owner.Path); n.Here {
				n.Owner = nil
			}
		} else if len(n.Prefix) <= mostTitle {
			n.URL = withQuery("/path", "path", b.File.Path, "prefix", n.Prefix)
		}
		if b.about(n.Kids); len(n.Kids) > 0 { // who stored all of them; it is said once
			n.Owner, n.Here = n.Kids[0].Owner, n.Kids[0].Here
			for _, k := range n.Kids[1:] {
				if k.Owner != n.Owner || k.Here != n.Here {
					n.Owner, n.Here = nil, false
				}
			}
			for _, k := range n.Kids {
				if n.Owner != nil || n.Here {
					k.Owner, k.Here = nil, false
				}
			}
		}
	}
}

// has reports whether a file is what the page is about, or one of the set that is: a folder, or an index.
func (b *tensorsBody) has(file string) bool {
	if b.File.Path == file || b.File.State != "" {
		return b.File.Path == file
	}
	return strings.HasPrefix(file, b.File.Path+"/") ||
		strings.HasSuffix(b.File.Path, ".index.json") && path.Dir(file) == path.Dir(b.File.Path)
}

// mostRows is how many rows of a tree are unfolded.
const mostRows = 40

// unfold opens levels from the top, as long as there is room for all of one.
func unfold(all []*node) {
	rows := len(all)
	for level := all; len(level) > 0; {
		var next []*node
		for _, n := range level {
			next = append(next, n.Kids...)
		}
		if rows += len(next); rows > mostRows {
			return
		}
		for _, n := range level {
			n.Open = true
		}
		level = next
	}
}

func sharedText(t *control.Owned) string {
	n := max(t.Shared, len(t.SharedWith))
	if n == 0 {
		return ""
	}
	if n == 1 && len(t.SharedWith) == 1 {
		return t.SharedWith[0]
	}
	return fmt.Sprintf("%d files", n)
}
