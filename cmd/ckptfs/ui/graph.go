package ui

import (
	"cmp"
	"context"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
	indexruns "ckptfs/index/runs"
)

// graph is where runs come from: of each run its first and last step, those that others come from, and those
// that come from another run or are computed from other steps.
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
	// what was computed, if that is known: "merge 0.7 a/1 + 0.3 b/1", and what of it this edge is: "0.7"
	What  string `json:"what,omitempty"`
	Label string `json:"label,omitempty"`
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
	}{g, chart{"graph", "Runs, and the steps that they come from. A solid line is within a run. A dashed one leads to what comes " +
		"from elsewhere. Grey steps were removed.", g}, g.origins()}
	return &page{Name: "origins", Body: body, Data: g}, nil
}

// originRow is an edge between runs, as text.
type originRow struct{ From, FromURL, To, ToURL, How, What string }

func (g *graph) origins() (rows []originRow) {
	for _, e := range g.Edges {
		if e.How == "step" || len(rows) == mostChanges {
			continue
		}
		a, b := &g.Nodes[e.From], &g.Nodes[e.To]
		row := originRow{a.Path, pathURL(a.Path), b.Path, pathURL(b.Path), e.How, e.What}
		if e.How == "merged" && e.What != "" {
			row.How = "reproduced"
		}
		if a.Retired {
			row.FromURL = ""
		}
		if b.Retired {
			row.ToURL = ""
		}
		rows = append(rows, row)
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
		g.computed(l)
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
		if n := &g.Nodes[i]; n.Time.IsZero() {
			n.Time = m.Time
		}
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
			e := graphEdge{From: a, To: b, How: how[k]}
			if a >= 0 && b >= 0 && a != b && !slices.Contains(g.Edges, e) {
				g.Edges = append(g.Edges, e)
			}
		}
	}
}

// computed adds what the files of a run follow from, whether anybody declared it or not.
func (g *growing) computed(l *control.Lineage) {
	for i := range l.Reproduced {
		r := &l.Reproduced[i]
		for k := range r.From {
			a, b := g.node(&control.Model{Path: r.From[k].Path}), g.node(&control.Model{Path: r.Path})
			if a < 0 || b < 0 || a == b {
				continue
			}
			at := slices.IndexFunc(g.Edges, func(e graphEdge) bool { return e.From == a && e.To == b })
			if at < 0 {
				at = len(g.Edges)
				g.Edges = append(g.Edges, graphEdge{From: a, To: b, How: "reproduced"})
			}
			e := &g.Edges[at]
			e.What, e.Label = and(e.What, g.formula(r)), and(e.Label, labelOf(r, k))
		}
	}
}

// and joins what is told of several files of a step.
func and(all, one string) string {
	if all == "" || slices.Contains(strings.Split(all, ", "), one) {
		return cmp.Or(all, one)
	}
	return all + ", " + one
}

// formula is what a file is, in the names of steps.
func (g *growing) formula(r *control.Reproduction) string {
	out := ""
	for _, piece := range withLinks(r.What, sources(r)) {
		if run, step := stepPath(piece.Text, g.runs); piece.URL != "" && run != "" {
			out += path.Join(run, step)
		} else {
			out += piece.Text
		}
	}
	return out
}

// labelOf is what of r its source k is.
func labelOf(r *control.Reproduction, k int) string {
	if c := r.From[k].Coefficient; r.Kind == "merged" && c != 0 {
		return strconv.FormatFloat(c, 'g', 3, 32)
	}
	what, _, of := strings.Cut(r.What, " of ")
	if r.Kind == "same weights" || r.Kind == "merged" || !of {
		return r.Kind
	}
	return what
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
			g.Edges = append(g.Edges, graphEdge{From: of[k-1], To: of[k], How: "step"})
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
