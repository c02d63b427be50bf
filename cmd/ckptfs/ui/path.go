package ui

import (
	"cmp"
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
	indexruns "ckptfs/index/runs"
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
	Counts  bool   // what folders take is still to come
	Sizes   string // the page of what each entry takes
	Step    *stepPart
	Tensors string // the part with its tensors; "" for none
	Removal string // the part that tells what removing it gives back
	Lineage string
	Run     string // the URL of its run
	Torn    *tornNote
	Damaged *damaged
}

type entryRow struct {
	Name, URL, Kind, State string
	Size                   int64 // of a folder that of the files in it
	Unsized                bool  // it is a folder of which that is not known
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

// stateText is the state of a file in more words.
func stateText(state string) string {
	switch state {
	case "resident":
		return "packed, with a local copy"
	case "plain":
		return "not packed"
	}
	return state
}

// Why says what the state of the step means.
func (p *stepPart) Why() string {
	return map[string]string{control.StepTorn: "what wrote it was killed",
		control.StepWriting:  "a program has a file of it open",
		control.StepArriving: "other machines have not published all of it"}[p.State]
}

const (
	modeType = 0o170000
	modeDir  = 0o040000
	modeLink = 0o120000
	modeFile = 0o100000
)

func (s *server) path(ctx context.Context, r *http.Request) (*page, error) {
	p := strings.Trim(r.URL.Query().Get("path"), "/")
	e, err := s.c.Entry(ctx, p)
	if err != nil {
		return nil, err
	}
	b := &pathBody{Path: p, Name: path.Base("/" + p), Folder: e.Mode&modeType == modeDir, Size: e.Size,
		State: e.State, View: e.View, Time: e.Mtime, Target: string(e.Target)}
	out := &page{Name: "path", Title: shown(b.Name), Here: "files", Crumbs: crumbs(p), Body: b}
	if p == "" {
		out.Title = "Files"
	}
	data := map[string]func() (any, error){} // by command
	out.Data = answers(e, data)
	if b.Folder {
		if b.Entries, b.More, err = s.entries(ctx, p); err != nil {
			return nil, err
		}
		if len(b.Entries) > 0 && p != "" {
			b.Sizes = withQuery("/space", "path", p)
		}
		counted, err := s.sized(ctx, p, b.Entries)
		if b.Counts = !counted && err == nil; b.Counts { // without sizes it is a page all the same
			out.Refresh = 1
		}
		data["ls"] = func() (any, error) { return s.listing(ctx, p) }
		out.Commands = append(out.Commands, "ckptfs ls "+s.full(p))
	}
	if p != "" {
		if b.Damaged, err = s.damagedAt(ctx, p); err != nil {
			return nil, err
		}
	}
	run, step := s.stepOf(ctx, p)
	if run != nil {
		b.Run = withQuery("/run", "run", run.Run)
	}
	if b.Run != "" && strings.Count(p, "/") > 1 {
		b.Torn = s.tornAt(ctx, p)
	}
	if step >= 0 {
		b.Step = stepOf(run, step)
		b.Name = "Step " + b.Step.Name + " of " + run.Run
		out.Title = shown(b.Name)
	}
	if step >= 0 || e.Mode&modeType == modeFile {
		b.Tensors = withQuery("/part/tensors", "path", p, "prefix", r.URL.Query().Get("prefix"))
		data["show"] = func() (any, error) { return s.c.Show(ctx, p, nil) }
		out.Commands = append(out.Commands, "ckptfs show "+s.full(p))
		if b.Torn == nil { // else the command knows no model there
			b.Lineage = withQuery("/part/ancestry", "path", p)
			data["lineage"] = func() (any, error) { return s.c.Lineage(ctx, p) }
			out.Commands = append(out.Commands, "ckptfs lineage "+s.full(p))
		}
	}
	if p != "" && !b.View && e.Mode&modeType != modeLink {
		b.Removal = withQuery("/part/removal", "path", p)
		data["du"] = func() (any, error) { return s.c.Du(ctx, control.DuOptions{Paths: []string{p}}) }
		out.Commands = append(out.Commands, "ckptfs du "+s.full(p))
	}
	return out, nil
}

// answers are those of commands about an entry; of one that fails the error, as it prints it.
func answers(e *control.Entry, commands map[string]func() (any, error)) later {
	return func() any {
		all := map[string]any{"entry": e}
		for command, answer := range commands {
			a, err := answer()
			if err != nil {
				a = map[string]any{"error": control.AsError(err)}
			}
			all[command] = a
		}
		return all
	}
}

// listing is the entries of a folder as ckptfs ls --json prints them.
func (s *server) listing(ctx context.Context, folder string) (any, error) {
	type listed struct {
		Path control.Name `json:"path"`
		control.Entry
	}
	out := []listed{}
	err := s.c.Entries(ctx, folder, func(some []control.Entry) error {
		for i := range some {
			out = append(out, listed{control.Name(path.Join(folder, string(some[i].Name))), some[i]})
		}
		return nil
	})
	return map[string]any{"entries": out}, err
}

// entries are those of a folder, without what they take, and how many more there are than a page has.
func (s *server) entries(ctx context.Context, p string) (rows []entryRow, more int, err error) {
	kinds := map[uint32]string{modeDir: "folder", modeLink: "link", modeFile: "file"}
	of := 0
	first := func() {
		slices.SortFunc(rows, func(a, b entryRow) int {
			return cmp.Or(order(a)-order(b), indexruns.Compare(a.Name, b.Name))
		})
		rows = rows[:min(len(rows), mostEntries)]
	}
	err = s.c.Entries(ctx, p, func(some []control.Entry) error {
		for i := range some {
			e := &some[i]
			kind := kinds[e.Mode&modeType]
			if e.View {
				kind = "view"
			}
			name := string(e.Name)
			rows = append(rows, entryRow{Name: name, URL: pathURL(path.Join(p, name)), Kind: kind,
				State: e.State, Size: e.Size, Time: e.Mtime})
			if len(rows) == 4*mostEntries {
				first()
			}
		}
		of += len(some)
		return nil
	})
	first()
	return rows, of - len(rows), err
}

// order has folders before files.
func order(e entryRow) int {
	if e.Kind == "folder" {
		return 0
	}
	return 1
}

// sized sets of the folders in a folder what the files in them take. Counted: all of them are known.
func (s *server) sized(ctx context.Context, p string, rows []entryRow) (counted bool, err error) {
	if !slices.ContainsFunc(rows, func(e entryRow) bool { return e.Kind == "folder" }) {
		return true, nil
	}
	d, _, err := s.sizes.Of(p).Get(ctx, known.Fresh, patience)
	size := map[string]int64{}
	if d == nil {
		d = &control.Du{}
	} else {
		counted = true
	}
	for i := range d.Parts {
		size[path.Base(d.Parts[i].Name)] = d.Parts[i].LogicalBytes
	}
	for i := range rows {
		if n, ok := size[rows[i].Name]; rows[i].Kind == "folder" {
			rows[i].Size, rows[i].Unsized = n, !ok
		}
	}
	return counted, err
}

// take is what is in a folder takes in the tree.
func (s *server) take(ctx context.Context, p string, _ func(*control.Du)) (*control.Du, error) {
	return s.c.Du(ctx, control.DuOptions{Paths: []string{p}, Only: control.DuSizes})
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
			out.Metrics = append(out.Metrics, stepMetric{m, short(v.Of[i]), l.Best(v, known.Good(m)) == i})
		}
	}
	return out
}

// removalBody is what removing a path gives back.
type removalBody struct {
	*control.Du
	Path      string
	Waits     string // what is still to come
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
	if r.URL.Query().Get("json") == "1" {
		d, err := s.c.Du(ctx, control.DuOptions{Paths: []string{p}})
		return &page{Data: d}, err
	}
	d, whole, err := s.gone.Of(p).Get(ctx, known.Fresh, patience)
	if err != nil {
		return nil, err
	}
	out := &page{Name: "removal"}
	b := &removalBody{Du: d, Path: p}
	if out.Body = b; !whole {
		out.Refresh = 1
	}
	if d == nil {
		b.Waits = "Looking what only this needs."
		return out, nil
	}
	b.Shared, b.Now, b.Then = d.StoredBytes-d.AloneBytes, d.FreedBytes, d.AloneBytes
	if !whole && len(d.SharedWith) == 0 && b.Shared > 0 {
		b.Waits = "Looking who needs the rest."
	}
	for _, x := range d.SharedWith[:min(len(d.SharedWith), 10)] {
		b.With = append(b.With, sharer{x.Path, pathURL(x.Path), x.Bytes})
	}
	return out, nil
}

// goes is what removing a path gives back; who shares it comes last.
func (s *server) goes(ctx context.Context, p string, tell func(*control.Du)) (*control.Du, error) {
	o := control.DuOptions{Paths: []string{p}, Brief: true}
	d, err := s.c.Du(ctx, o)
	if err != nil || d.StoredBytes == d.AloneBytes {
		return d, err
	}
	tell(d)
	o.Brief, o.Only = false, control.DuSharers
	return s.c.Du(ctx, o)
}
