package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
	"ckptfs/fs/steps"
	indexruns "ckptfs/index/runs"
)

// graph is where runs come from: of each run its first and last step, those that others come from, and those
// that come from another run or are computed from other steps.
type graph struct {
	Runs  []string    `json:"runs"` // in the order of the lanes
	Nodes []graphNode `json:"nodes"`
	Edges []graphEdge `json:"edges"`
	Of    int         `json:"of"`             // runs that there are
	Steps int         `json:"steps"`          // of these runs that the graph could have
	Files int         `json:"files"`          // that are looked at for what they are computed from
	Left  int         `json:"left,omitempty"` // of these that are not yet
}

type graphNode struct {
	Run     int       `json:"run"`
	Step    string    `json:"step"`
	Path    string    `json:"path"`
	Time    time.Time `json:"time,omitzero"`
	Column  int       `json:"column"`
	Retired bool      `json:"retired,omitempty"`

	run string
}

type graphEdge struct {
	From int    `json:"from"`
	To   int    `json:"to"`
	How  string `json:"how"` // "step" within a run; else as control.Model.How, or "merged"
	// what was computed, if that is known: "merge 0.7 a/1 + 0.3 b/1", and what of it this edge is: "0.7"
	What  string `json:"what,omitempty"`
	Label string `json:"label,omitempty"`
}

// mostLanes and mostNodes are how many runs and steps the graph has.
const mostLanes, mostNodes = 200, 1500

// lookFor is how long the daemon looks through files before it tells how far it came.
const lookFor = 200 * time.Millisecond

// patience is how long the answer to a part of a page waits for all that is to be told.
const patience = 40 * time.Millisecond

func (s *server) lineagePart(ctx context.Context, r *http.Request) (*page, error) {
	if r.URL.Query().Get("json") == "1" { // of all runs, as of any path
		return s.lineageJSON(ctx, steps.Dir)
	}
	g, whole, err := s.origins.Get(ctx, known.Fresh, patience)
	if err != nil {
		return nil, err
	}
	body := &originsBody{}
	p := &page{Name: "origins", Body: body}
	if !whole {
		p.Refresh = 1
		body.Waits = "Reading which models there are."
	}
	if g == nil {
		return p, nil
	}
	if body.graph = g; g.Left > 0 {
		body.Waits = fmt.Sprintf("Looking for models that are computed from others: %s of %s.",
			humanize.Comma(int64(g.Files-g.Left)), text.Plural(int64(g.Files), "file"))
	} else if !whole {
		body.Waits = "Looking what is new."
	}
	body.Chart = chart{"graph", "Runs, and the steps that they come from. A solid line is within a run. A dashed one leads to what comes " +
		"from elsewhere. Grey steps were removed.", g}
	body.Rows = g.origins()
	return p, nil
}

// originsBody is where all runs come from.
type originsBody struct {
	*graph
	Waits string // what is still to come
	Chart chart
	Rows  []originRow
}

// Hidden is how many runs are not drawn.
func (b *originsBody) Hidden() int { return b.Of - len(b.Runs) }

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

// stepPath is the step that a model lies in, and its run's name; "": none.
func stepPath(model string) (run, step string) {
	rest, ok := strings.CutPrefix(model, "runs/")
	if parts := strings.SplitN(rest, "/", 3); ok && len(parts) >= 2 {
		return parts[0], parts[1]
	}
	return "", ""
}

// grow makes the graph.
func (s *server) grow(ctx context.Context, tell func(*graph)) (*graph, error) {
	for {
		o, err := s.c.Origins(ctx, lookFor)
		if err != nil {
			return nil, err
		}
		g := graphOf(o)
		if o.Left == 0 {
			return g, nil
		}
		tell(g)
	}
}

func graphOf(o *control.Origins) *graph {
	g := &growing{graph: &graph{Runs: []string{}, Nodes: []graphNode{}, Edges: []graphEdge{}, Files: o.Files,
		Left: o.Left}, at: map[string]int{}, edge: map[[2]int]int{}}
	for i := range o.Models {
		g.model(&o.Models[i])
	}
	for i := range o.Reproduced {
		g.computed(&o.Reproduced[i])
	}
	g.choose()
	g.arrange()
	return g.graph
}

type growing struct {
	*graph
	at   map[string]int   // nodes by path
	edge map[[2]int]int   // edges by their nodes
	of   map[string][]int // nodes by run
}

// node is the node of a model's step; -1: there is none.
func (g *growing) node(m *control.Model) int {
	run, step := stepPath(m.Path)
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
	g.at[p] = len(g.Nodes)
	g.Nodes = append(g.Nodes, graphNode{Step: step, Path: p, Time: m.Time, Retired: m.Retired, run: run})
	return g.at[p]
}

// between is the edge between two nodes, which is made unless it is there; nil where one of these is not.
func (g *growing) between(a, b int, how string) *graphEdge {
	if a < 0 || b < 0 || a == b {
		return nil
	}
	at, ok := g.edge[[2]int{a, b}]
	if !ok {
		at = len(g.Edges)
		g.edge[[2]int{a, b}], g.Edges = at, append(g.Edges, graphEdge{From: a, To: b, How: how})
	}
	return &g.Edges[at]
}

// model adds a model, and those of other runs that it comes from.
func (g *growing) model(m *control.ModelLineage) {
	own, _ := stepPath(m.Path)
	to := g.node(&m.Model)
	if len(m.Chain) > 1 {
		if run, _ := stepPath(m.Chain[1].Path); run != own {
			g.between(g.node(&m.Chain[1].Model), to, m.How)
		}
	}
	for i := range m.Merged {
		g.between(g.node(&m.Merged[i]), to, "merged")
	}
}

// computed adds what a file follows from, whether anybody declared it or not.
func (g *growing) computed(r *control.Reproduction) {
	for k := range r.From {
		e := g.between(g.node(&control.Model{Path: r.From[k].Path}), g.node(&control.Model{Path: r.Path}),
			"reproduced")
		if e != nil {
			e.What, e.Label = and(e.What, g.formula(r)), and(e.Label, labelOf(r, k))
		}
	}
}

// choose leaves the runs that there is room for, those first that come from each other: the largest families
// of them before smaller ones.
func (g *growing) choose() {
	family := map[string]string{} // a run to one of its family; the last of them to itself
	var find func(run string) string
	find = func(run string) string {
		if family[run] != run {
			family[run] = find(family[run])
		}
		return family[run]
	}
	for i := range g.Nodes {
		family[g.Nodes[i].run] = g.Nodes[i].run
	}
	for i := range g.Edges {
		family[find(g.Nodes[g.Edges[i].To].run)] = find(g.Nodes[g.Edges[i].From].run)
	}
	size, names := map[string]int{}, make([]string, 0, len(family))
	for run := range family {
		size[find(run)]++
		names = append(names, run)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := find(a), find(b)
		return cmp.Or(cmp.Compare(size[y], size[x]), indexruns.Compare(x, y), indexruns.Compare(a, b))
	})
	g.Of, g.Steps = len(names), len(g.Nodes)
	g.of = map[string][]int{}
	for _, run := range names[:min(len(names), mostLanes)] {
		g.of[run] = nil
	}
	nodes, now := g.Nodes, make([]int, len(g.Nodes)) // where nodes are then; -1: nowhere
	g.Nodes = []graphNode{}
	for i := range nodes {
		now[i] = -1
		if of, ok := g.of[nodes[i].run]; ok && len(g.Nodes) < mostNodes {
			now[i] = len(g.Nodes)
			g.of[nodes[i].run], g.Nodes = append(of, now[i]), append(g.Nodes, nodes[i])
		}
	}
	edges := g.Edges
	g.Edges = []graphEdge{}
	for _, e := range edges {
		if e.From, e.To = now[e.From], now[e.To]; e.From >= 0 && e.To >= 0 {
			g.Edges = append(g.Edges, e)
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
		if run, step := stepPath(piece.Text); piece.URL != "" && run != "" {
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
		a, b := g.Nodes[e.From].run, g.Nodes[e.To].run
		if a != b && !hasParent[b] {
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
