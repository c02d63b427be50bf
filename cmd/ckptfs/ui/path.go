package ui

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
)

// mostEntries is how many names of a folder a page shows.
const mostEntries = 1000

// pathBody is the page of a folder, a step or a file.
type pathBody struct {
	Path    string
	Name    string
	Folder  bool
	Size    int64
	State   string
	View    bool
	Time    time.Time
	Target  string // of a symbolic link
	Entries []entryRow
	More    int
	Step    *stepPart
	Tensors string // the part with its tensors; "" for none
	Removal string // the part that tells what removing it gives back
	Lineage string
	Run     string // the URL of its run
}

type entryRow struct {
	Name, URL, Kind, State string
	Size                   int64
	Time                   time.Time
}

// stepPart is what is known of a step.
type stepPart struct {
	known.Step
	Metrics      []stepMetric
	Before, Next link // the steps beside it
	Diff         string
}

type stepMetric struct {
	Name, Value string
	Best        bool // of its run
}

const (
	modeType = 0o170000
	modeDir  = 0o040000
	modeLink = 0o120000
	modeFile = 0o100000
)

func (s *server) path(ctx context.Context, r *http.Request) (*page, error) {
	p := strings.Trim(r.URL.Query().Get("path"), "/")
	if clean := path.Clean("/" + p)[1:]; clean != p && p != "" {
		return nil, control.Invalid("%s is no path in the mount", shown(p))
	}
	e, err := s.c.Entry(ctx, p)
	if err != nil {
		return nil, err
	}
	b := &pathBody{Path: p, Name: path.Base("/" + p), Folder: e.Mode&modeType == modeDir, Size: e.Size,
		State: e.State, View: e.View, Time: e.Mtime, Target: string(e.Target)}
	out := &page{Name: "path", Title: shown(b.Name), Here: "files", Crumbs: crumbs(p), Body: b}
	data := map[string]any{"entry": e}
	if p == "" {
		out.Title = "Files"
	}
	out.Data = data
	if b.Folder {
		all, err := s.entries(ctx, p, b)
		if err != nil {
			return nil, err
		}
		data["entries"] = all
		out.Commands = append(out.Commands, "ckptfs ls "+s.full(p))
	}
	run, step := s.stepOf(ctx, p)
	if run != nil {
		b.Run = withQuery("/run", "run", run.Run)
	}
	if step >= 0 {
		b.Step = stepOf(run, step)
	}
	if step >= 0 || e.Mode&modeType == modeFile {
		b.Tensors = withQuery("/part/tensors", "path", p, "prefix", r.URL.Query().Get("prefix"))
		b.Lineage = withQuery("/part/ancestry", "path", p)
		out.Commands = append(out.Commands, "ckptfs show "+s.full(p), "ckptfs lineage "+s.full(p))
	}
	if p != "" && !b.View && e.Mode&modeType != modeLink {
		b.Removal = withQuery("/part/removal", "path", p)
		out.Commands = append(out.Commands, "ckptfs du "+s.full(p))
	}
	return out, nil
}

// entries lists a folder.
func (s *server) entries(ctx context.Context, p string, b *pathBody) ([]control.Entry, error) {
	all := []control.Entry{}
	err := s.c.Entries(ctx, p, func(some []control.Entry) error {
		for i := range some {
			if len(all) == mostEntries {
				b.More += len(some) - i
				break
			}
			all = append(all, some[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	kinds := map[uint32]string{modeDir: "folder", modeLink: "link", modeFile: "file"}
	for i := range all {
		e := &all[i]
		kind := kinds[e.Mode&modeType]
		if e.View {
			kind = "view"
		}
		name := string(e.Name)
		b.Entries = append(b.Entries, entryRow{Name: name, URL: pathURL(path.Join(p, name)), Kind: kind,
			State: e.State, Size: e.Size, Time: e.Mtime})
	}
	slices.SortStableFunc(b.Entries, func(a, b entryRow) int { return strings.Compare(order(a), order(b)) })
	return all, nil
}

// order has folders before files; within either the order is that of the listing.
func order(e entryRow) string {
	if e.Kind == "folder" {
		return "0"
	}
	return "1"
}

// stepOf is the run that a path lies in, and which step of it the path is; -1: none.
func (s *server) stepOf(ctx context.Context, p string) (*known.Log, int) {
	rest, ok := strings.CutPrefix(p, "runs/")
	if !ok {
		return nil, -1
	}
	list, err := s.runs.List(ctx)
	if err != nil {
		return nil, -1
	}
	for i := range list.Runs {
		name := list.Runs[i].Run
		step, in := strings.CutPrefix(rest, name+"/")
		if !in && rest != name {
			continue
		}
		l, err := s.runs.Log(ctx, name)
		if err != nil {
			return nil, -1
		}
		if !in {
			return l, -1
		}
		return l, slices.IndexFunc(l.Steps, func(k known.Step) bool { return k.Name == step })
	}
	return nil, -1
}

func stepOf(l *known.Log, i int) *stepPart {
	out := &stepPart{Step: l.Steps[i]}
	dir := "runs/" + l.Run + "/"
	if i > 0 {
		before := l.Steps[i-1].Name
		out.Before = link{before, pathURL(dir + before)}
		out.Diff = withQuery("/diff", "a", dir+before, "b", dir+out.Name)
	}
	if i+1 < len(l.Steps) {
		out.Next = link{l.Steps[i+1].Name, pathURL(dir + l.Steps[i+1].Name)}
	}
	for _, m := range l.Names() {
		if v := l.Metrics[m]; v.Has[i] {
			out.Metrics = append(out.Metrics, stepMetric{m, short(v.Of[i]), l.Best(v, !lessIsBetter(m)) == i})
		}
	}
	return out
}

// removalBody is what removing a path gives back.
type removalBody struct {
	*control.Du
	Path      string
	Shared    int64
	Now, Then int64 // bytes that come back at once, and with the next prune
	With      []sharer
}

type sharer struct {
	Path, URL string
	Bytes     int64
}

func (s *server) removalPart(ctx context.Context, r *http.Request) (*page, error) {
	p := r.URL.Query().Get("path")
	d, err := s.c.Du(ctx, control.DuOptions{Paths: []string{p}})
	if err != nil {
		return nil, err
	}
	b := &removalBody{Du: d, Path: p, Shared: d.StoredBytes - d.AloneBytes, Now: d.FreedBytes,
		Then: d.AloneBytes}
	for _, x := range d.SharedWith[:min(len(d.SharedWith), 10)] {
		b.With = append(b.With, sharer{x.Path, pathURL(x.Path), x.Bytes})
	}
	return &page{Name: "removal", Body: b, Data: d}, nil
}

// tensorsBody is the tensors of a file, or of a set of files, below a prefix of their names.
type tensorsBody struct {
	*control.File
	Of     int // tensors
	Bytes  int64
	Tree   []*node
	Prefix string
	Up     string // the part with the prefix above
	Cut    bool   // more than the page shows
}

// node is a tensor, or what the names of several have in common.
type node struct {
	Name    string // the part of the name below its parent
	Prefix  string // all of the name, with the dot behind it
	Tensors int
	Bytes   int64
	Shared  int // tensors that other files hold, too
	Kids    []*node
	T       *control.Tensor
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
	b := &tensorsBody{Prefix: prefix}
	var first []control.Tensor // while they are few
	top := &node{kids: map[string]*node{}}
	f, err := s.c.Show(ctx, p, func(some []control.Tensor) error {
		for i := range some {
			t := &some[i]
			b.Of, b.Bytes = b.Of+1, b.Bytes+t.Bytes
			if !strings.HasPrefix(t.Name, prefix) {
				continue
			}
			if len(first) <= mostTree {
				first = append(first, *t)
			}
			top.add(t, prefix)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.File = f
	if len(first) <= mostTree {
		top = tree(first, prefix)
	}
	b.Tree = top.Kids
	if b.Cut = len(b.Tree) > mostKids; b.Cut {
		b.Tree = b.Tree[:mostKids]
	}
	linked(b.Tree, f.Path)
	unfold(b.Tree)
	if prefix != "" {
		up := strings.TrimRight(prefix, "./")
		up = up[:strings.LastIndexAny(up, "./")+1]
		b.Up = withQuery("/path", "path", p, "prefix", up)
	}
	f.Tensors = first[:min(len(first), mostTree)]
	return &page{Name: "tensors", Body: b, Data: f}, nil
}

// add counts a tensor at the next level of names.
func (n *node) add(t *control.Tensor, prefix string) {
	rest := t.Name[len(prefix):]
	end := strings.IndexAny(rest, "./")
	name := rest
	if end >= 0 && end+1 < len(rest) {
		name = rest[:end+1]
	}
	k := n.kids[name]
	if k == nil {
		if len(n.Kids) > mostKids {
			return
		}
		k = &node{Name: strings.TrimRight(name, "./"), Prefix: prefix + name}
		n.kids[name], n.Kids = k, append(n.Kids, k)
	}
	if len(name) == len(rest) {
		one := *t
		k.T = &one
	}
	k.count(t)
}

func (n *node) count(t *control.Tensor) {
	n.Tensors, n.Bytes = n.Tensors+1, n.Bytes+t.Bytes
	if max(t.Shared, len(t.SharedWith)) > 0 {
		n.Shared++
	}
}

// tree puts tensors under each other by the parts of their names. A level with one name alone is one with the
// next.
func tree(all []control.Tensor, prefix string) *node {
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
	for n.T == nil && len(n.Kids) == 1 && n.Kids[0].T == nil {
		k := n.Kids[0]
		k.Name = n.Name + n.Prefix[len(n.Prefix)-1:] + k.Name
		n = k
	}
	for i, k := range n.Kids {
		n.Kids[i] = k.joined()
	}
	return n
}

// linked sets the URLs of tensors and of levels below.
func linked(all []*node, file string) {
	for _, n := range all {
		if n.T != nil {
			n.URL = tensorURL(file, n.T.Name)
		} else if len(n.Prefix) <= mostTitle {
			n.URL = withQuery("/path", "path", file, "prefix", n.Prefix)
		}
		linked(n.Kids, file)
	}
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

func sharedText(t *control.Tensor) string {
	n := max(t.Shared, len(t.SharedWith))
	if n == 0 {
		return ""
	}
	if n == 1 && len(t.SharedWith) == 1 {
		return t.SharedWith[0]
	}
	return fmt.Sprintf("%d files", n)
}
