package ui

import (
	"context"
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
	Torn    *tornNote
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
	if p == "" {
		out.Title = "Files"
	}
	data := map[string]func() (any, error){} // by command
	out.Data = answers(e, data)
	if b.Folder {
		all, err := s.entries(ctx, p, b)
		if err != nil {
			return nil, err
		}
		data["ls"] = func() (any, error) { return listing(p, all), nil }
		out.Commands = append(out.Commands, "ckptfs ls "+s.full(p))
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
		b.Lineage = withQuery("/part/ancestry", "path", p)
		data["show"] = func() (any, error) { return s.c.Show(ctx, p, nil) }
		data["lineage"] = func() (any, error) { return s.c.Lineage(ctx, p) }
		out.Commands = append(out.Commands, "ckptfs show "+s.full(p), "ckptfs lineage "+s.full(p))
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

// listing is entries of a folder as ckptfs ls --json prints them.
func listing(folder string, all []control.Entry) any {
	type listed struct {
		Path control.Name `json:"path"`
		control.Entry
	}
	out := make([]listed, len(all))
	for i := range all {
		out[i] = listed{control.Name(path.Join(folder, string(all[i].Name))), all[i]}
	}
	return map[string]any{"entries": out}
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
