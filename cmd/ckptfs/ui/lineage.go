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

// lineageBody is the page of where runs come from, or of where the models at a path do.
type lineageBody struct {
	Path string
	Part string
}

func (s *server) lineage(_ context.Context, r *http.Request) (*page, error) {
	p := r.URL.Query().Get("path")
	b := &lineageBody{Path: p, Part: "/part/lineage"}
	command := "ckptfs lineage --dot " + s.full("runs")
	if p != "" {
		b.Part = withQuery("/part/ancestry", "path", p)
		command = "ckptfs lineage " + s.full(p)
	}
	return &page{Name: "lineage", Title: "Lineage", Here: "lineage", Body: b, Commands: []string{command},
		JSON: withJSON(b.Part)}, nil
}

func withJSON(u string) string {
	if strings.Contains(u, "?") {
		return u + "&json=1"
	}
	return u + "?json=1"
}

// ancestryBody is the chain of parents of models.
type ancestryBody struct {
	*control.Lineage
	Path string
	Rows []ancestryRow
	More int
}

type ancestryRow struct {
	Of   string
	Rows []control.Ancestor
	From []control.Model // merged
}

// mostAncestry is how many models a page has the chains of.
const mostAncestry = 20

func (s *server) ancestryPart(ctx context.Context, r *http.Request) (*page, error) {
	p := r.URL.Query().Get("path")
	l, err := s.c.Lineage(ctx, p)
	if err != nil && control.AsError(err).Code == control.CodeNotFound {
		if _, there := s.c.Entry(ctx, p); there == nil { // it is there, and no model
			l, err = &control.Lineage{Path: p, Models: []control.ModelLineage{}}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	b := &ancestryBody{Lineage: l, Path: p, More: max(len(l.Models)-mostAncestry, 0)}
	for _, m := range l.Models[:len(l.Models)-b.More] {
		b.Rows = append(b.Rows, ancestryRow{m.Path, m.Chain, m.Merged})
	}
	return &page{Name: "ancestry", Body: b, Data: l}, nil
}

// graph is where runs come from: of each run its first and last step, those that others come from, and those
// that come from another run.
type graph struct {
	Runs  []string    `json:"runs"` // in the order of the lanes
	Nodes []graphNode `json:"nodes"`
	Edges []graphEdge `json:"edges"`
	Cut   bool        `json:"cut,omitempty"` // there are more than are shown
}

type graphNode struct {
	Run     int       `json:"run"`
	Step    string    `json:"step"`
	Path    string    `json:"path"`
	Time    time.Time `json:"time,omitzero"`
	Column  int       `json:"column"`
	Retired bool      `json:"retired,omitempty"`
}

type graphEdge struct {
	From int    `json:"from"`
	To   int    `json:"to"`
	How  string `json:"how"` // "step" within a run; else as control.Model.How, or "merged"
}

// mostNodes is how many steps the graph has.
const mostNodes = 1500

// graphFresh is how old a graph may be that is shown without making it again.
const graphFresh = 10 * time.Second

func (s *server) lineagePart(ctx context.Context, _ *http.Request) (*page, error) {
	g, err := s.origins.Get(ctx, graphFresh)
	if err != nil {
		return nil, err
	}
	body := struct {
		*graph
		Chart chart
		Rows  []originRow
	}{g, chart{"graph", "Runs, and the steps that they come from", g}, g.origins()}
	return &page{Name: "origins", Body: body, Data: g}, nil
}

// originRow is an edge between runs, as text.
type originRow struct{ From, FromURL, To, ToURL, How string }

func (g *graph) origins() (rows []originRow) {
	for _, e := range g.Edges {
		if e.How == "step" || len(rows) == mostChanges {
			continue
		}
		a, b := &g.Nodes[e.From], &g.Nodes[e.To]
		rows = append(rows, originRow{a.Path, pathURL(a.Path), b.Path, pathURL(b.Path), e.How})
	}
	return rows
}

// stepPath is the step that a model lies in, as the path of its folder, and the run's name.
func stepPath(model string, runs map[string]bool) (run, step string) {
	rest, ok := strings.CutPrefix(model, "runs/")
	if !ok {
		return "", ""
	}
	parts := strings.Split(rest, "/")
	for n := len(parts) - 1; n > 0; n-- {
		if name := strings.Join(parts[:n], "/"); runs[name] {
			return name, parts[n]
		}
	}
	if len(parts) >= 2 { // of a run that is gone
		return parts[0], parts[1]
	}
	return "", ""
}

// grow makes the graph.
func (s *server) grow(ctx context.Context) (*graph, error) {
	list, err := s.runs.List(ctx)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for i := range list.Runs {
		there[list.Runs[i].Run] = true
	}
	g := &growing{graph: &graph{Runs: []string{}, Nodes: []graphNode{}, Edges: []graphEdge{}},
		at: map[string]int{}, of: map[string][]int{}, runs: there}
	for i := range list.Runs {
		name := list.Runs[i].Run
		l, err := s.c.Lineage(ctx, "runs/"+name)
		if err != nil {
			if ctx.Err() != nil || known.Away(err) {
				return nil, err
			}
			continue // it has no models
		}
		g.run(l)
	}
	g.arrange()
	return g.graph, nil
}

type growing struct {
	*graph
	runs map[string]bool
	at   map[string]int   // nodes by path
	of   map[string][]int // by run
}

// node is the node of a model's step; -1: there is none, or no room.
func (g *growing) node(m *control.Model) int {
	run, step := stepPath(m.Path, g.runs)
	if run == "" {
		return -1
	}
	p := path.Join("runs", run, step)
	if i, ok := g.at[p]; ok {
		return i
	}
	if g.Cut = g.Cut || len(g.Nodes) == mostNodes; g.Cut {
		return -1
	}
	i := len(g.Nodes)
	g.at[p], g.of[run] = i, append(g.of[run], i)
	g.Nodes = append(g.Nodes, graphNode{Step: step, Path: p, Time: m.Time, Retired: m.Retired})
	return i
}

// run adds the models of a run.
func (g *growing) run(l *control.Lineage) {
	for i := range l.Models {
		m := &l.Models[i]
		own, _ := stepPath(m.Path, g.runs)
		if i == 0 || i == len(l.Models)-1 {
			g.node(&m.Model)
		}
		from := m.Merged
		how := slices.Repeat([]string{"merged"}, len(m.Merged))
		if len(m.Chain) > 1 && m.Chain[1].Seq == m.Parent {
			if run, _ := stepPath(m.Chain[1].Path, g.runs); run != own {
				from = append([]control.Model{m.Chain[1].Model}, from...)
				how = append([]string{m.How}, how...)
			}
		}
		for k := range from {
			a, b := g.node(&from[k]), g.node(&m.Model)
			e := graphEdge{a, b, how[k]}
			if a >= 0 && b >= 0 && a != b && !slices.Contains(g.Edges, e) {
				g.Edges = append(g.Edges, e)
			}
		}
	}
}

// arrange gives each run a lane, runs beneath those that they come from, and each step a column: behind the
// steps that it comes from.
func (g *growing) arrange() {
	children := map[string][]string{}
	hasParent := map[string]bool{}
	for _, e := range g.Edges {
		a, _ := stepPath(g.Nodes[e.From].Path+"/x", g.runs)
		b, _ := stepPath(g.Nodes[e.To].Path+"/x", g.runs)
		if a != b && !hasParent[b] && a != "" {
			children[a] = append(children[a], b)
			hasParent[b] = true
		}
	}
	names := make([]string, 0, len(g.of))
	for n := range g.of {
		names = append(names, n)
	}
	slices.SortFunc(names, indexruns.Compare)
	seen := map[string]bool{}
	var visit func(n string)
	visit = func(n string) {
		if seen[n] {
			return
		}
		seen[n] = true
		for _, i := range g.of[n] {
			g.Nodes[i].Run = len(g.Runs)
		}
		g.Runs = append(g.Runs, n)
		slices.SortFunc(children[n], indexruns.Compare)
		for _, c := range children[n] {
			visit(c)
		}
	}
	for _, n := range names {
		if !hasParent[n] {
			visit(n)
		}
	}
	for _, n := range names { // runs that come from each other
		visit(n)
	}
	for _, n := range names {
		of := g.of[n]
		slices.SortFunc(of, func(a, b int) int {
			return cmp.Or(indexruns.Compare(g.Nodes[a].Step, g.Nodes[b].Step), cmp.Compare(a, b))
		})
		for k := 1; k < len(of); k++ {
			g.Edges = append(g.Edges, graphEdge{of[k-1], of[k], "step"})
		}
	}
	for range len(g.Nodes) { // columns: the longest way from a beginning; fewer rounds than nodes suffice
		moved := false
		for _, e := range g.Edges {
			if c := g.Nodes[e.From].Column + 1; g.Nodes[e.To].Column < c && c < len(g.Nodes) {
				g.Nodes[e.To].Column, moved = c, true
			}
		}
		if !moved {
			break
		}
	}
}
