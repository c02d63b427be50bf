package ui

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"ckptfs/cmd/ckptfs/text"
	"ckptfs/cmd/ckptfs/ui/curve"
	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
	indexruns "ckptfs/index/runs"
)

// perPage is how many rows of a table a page has.
const perPage = 100

// runsBody is the page of all runs.
type runsBody struct {
	Rows    []runRow
	Of      int // runs, with those of other pages
	Query   string
	Metric  string
	Metrics []string  // that can be chosen
	Mode    string    // "min" or "max" where that was chosen
	Good    known.End // of the metric
	Heads   []head
	Pages   []link
	PageNow int
	Warm    string
}

type runRow struct {
	control.Run
	Not   string // what of it is not complete
	Spark string // the points of a polyline in a box of 100 by 24
	Best  *bestValue
	Last  *bestValue
	URL   string
}

// bestValue is a value of a metric, and the step that has it.
type bestValue struct {
	Step  string
	Value float64
	URL   string
}

// head is a head of a table, by which it can be sorted.
type head struct {
	Text, URL string
	Right     bool
	Sorted    string // "ascending", "descending", ""
}

func (s *server) runList(ctx context.Context, r *http.Request) (*page, error) {
	list, err := s.runs.List(ctx)
	if err != nil {
		return nil, err
	}
	coming := s.runs.Logs(ctx, list)
	q := r.URL.Query()
	b := &runsBody{Query: q.Get("q"), Metric: q.Get("metric")}
	b.Metrics = metricsOf(list)
	if b.Metric == "" && len(b.Metrics) > 0 {
		b.Metric = b.Metrics[0]
	}
	b.Good = known.Good(b.Metric)
	if b.Mode = q.Get("mode"); b.Mode != "" {
		b.Good = map[bool]known.End{true: known.Greatest, false: known.Least}[b.Mode == "max"]
	}
	var rows []runRow
	for i := range list.Runs {
		run := &list.Runs[i]
		if b.Query != "" && !strings.Contains(strings.ToLower(run.Run), strings.ToLower(b.Query)) {
			continue
		}
		rows = append(rows, s.runRow(run, b))
	}
	by, down := q.Get("sort"), q.Get("down") == "1"
	if by == "" {
		by, down = "last", true
	}
	sortRuns(rows, by, down)
	b.Heads = heads(r.URL, by, down, b.Metric, b.Good)
	b.Of = len(rows)
	b.Rows, b.Pages, b.PageNow = paged(rows, r.URL)
	p := &page{Name: "runs", Title: "Runs", Here: "runs", Body: b, Data: list,
		Commands: []string{"ckptfs runs " + s.root()}}
	if best := bestRun(rows, b.Good); best != nil {
		command := "ckptfs best"
		if b.Mode != "" {
			command += " --mode " + b.Mode
		}
		p.Commands = append(p.Commands, command+" "+s.full("runs/"+best.Run.Run)+" "+text.Word(b.Metric))
	}
	if coming > 0 {
		b.Warm = fmt.Sprintf("reading the logs of %s that changed", text.Plural(int64(coming), "run"))
		p.Refresh = 2
	}
	if n, done := s.runs.Warmed(); !done {
		b.Warm = fmt.Sprintf("reading the logs of runs: %d of %d", n, len(list.Runs))
		p.Refresh = 2
	}
	return p, nil
}

// bestRun is the row with the best value, the first of equal ones; nil: none has any.
func bestRun(rows []runRow, good known.End) (best *runRow) {
	for i := range rows {
		r := &rows[i]
		if r.Best != nil && (best == nil || good.Better(r.Best.Value, best.Best.Value)) {
			best = r
		}
	}
	return best
}

// mostMetrics is how many of them can be chosen on a page.
const mostMetrics = 1000

// metricsOf are the metrics that runs have, those of most runs first.
func metricsOf(list *control.RunList) []string {
	count := map[string]int{}
	for i := range list.Runs {
		for _, m := range list.Runs[i].Metrics {
			count[m]++
		}
	}
	names := make([]string, 0, len(count))
	for n := range count {
		names = append(names, n)
	}
	rank := func(n string) int { // what people mean by how good a run is comes first
		l := strings.ToLower(n)
		switch {
		case strings.Contains(l, "val") || strings.Contains(l, "eval"):
			return 0
		case strings.Contains(l, "loss"):
			return 1
		case known.Good(n) != known.Unknown:
			return 2
		}
		return 3
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	return names[:min(len(names), mostMetrics)]
}

func (s *server) runRow(run *control.Run, b *runsBody) runRow {
	row := runRow{Run: *run, URL: withQuery("/run", "run", run.Run)}
	if run.Torn > 0 {
		row.Not = fmt.Sprintf("%d torn ", run.Torn)
	}
	if run.Writing > 0 {
		row.Not += fmt.Sprintf("%d being written", run.Writing)
	}
	l, _ := s.runs.Peek(run)
	if l == nil {
		return row
	}
	v, ok := l.Metrics[b.Metric]
	if !ok {
		return row
	}
	row.Spark = spark(v.Of, l.Whole(v))
	row.Best, row.Last = valueOf(l, v, l.Best(v, b.Good)), valueOf(l, v, l.Last(v))
	return row
}

// valueOf is the value of a step; nil: there is none.
func valueOf(l *known.Log, v known.Values, i int) *bestValue {
	if i < 0 {
		return nil
	}
	name := l.Steps[i].Name
	return &bestValue{name, v.Of[i], pathURL("runs/" + l.Run + "/" + name)}
}

// spark is a curve as the points of a polyline, 100 wide and 24 high.
func spark(of []float64, has []bool) string {
	points := curve.Reduce(nil, of, has, 20)
	least, most := math.Inf(1), math.Inf(-1)
	for _, p := range points {
		if !math.IsNaN(p.Y) {
			least, most = min(least, p.Y), max(most, p.Y)
		}
	}
	if len(points) < 2 || least > most {
		return ""
	}
	var b strings.Builder
	width := points[len(points)-1].X - points[0].X
	for _, p := range points {
		if math.IsNaN(p.Y) {
			continue
		}
		y := 12.0
		if most > least {
			y = 23 - 22*(p.Y-least)/(most-least)
		}
		fmt.Fprintf(&b, "%.1f,%.1f ", 100*(p.X-points[0].X)/width, y)
	}
	return strings.TrimSpace(b.String())
}

// sortRuns orders the rows; those without a value come last.
func sortRuns(rows []runRow, by string, down bool) {
	value := func(v *bestValue) float64 {
		if v == nil || math.IsNaN(v.Value) {
			return math.NaN()
		}
		return v.Value
	}
	compare := map[string]func(a, b *runRow) int{
		"run":   func(a, b *runRow) int { return indexruns.Compare(a.Run.Run, b.Run.Run) },
		"steps": func(a, b *runRow) int { return cmp.Compare(a.Steps, b.Steps) },
		"size":  func(a, b *runRow) int { return cmp.Compare(a.LogicalBytes, b.LogicalBytes) },
		"last":  func(a, b *runRow) int { return a.Run.Last.Compare(b.Run.Last) },
		"best":  func(a, b *runRow) int { return cmp.Compare(value(a.Best), value(b.Best)) },
		"now":   func(a, b *runRow) int { return cmp.Compare(value(a.Last), value(b.Last)) },
	}[by]
	if compare == nil {
		return
	}
	missing := func(r *runRow) bool {
		return by == "best" && math.IsNaN(value(r.Best)) || by == "now" && math.IsNaN(value(r.Last))
	}
	slices.SortStableFunc(rows, func(a, b runRow) int {
		switch ma, mb := missing(&a), missing(&b); {
		case ma && mb:
			return 0
		case ma:
			return 1
		case mb:
			return -1
		}
		if down {
			return compare(&b, &a)
		}
		return compare(&a, &b)
	})
}

// heads are the heads of the table of runs. Asking for the order that there is turns it.
func heads(u *url.URL, by string, down bool, metric string, good known.End) []head {
	var out []head
	add := func(key, name string, right, downFirst bool) {
		q := u.Query()
		q.Set("sort", key)
		q.Del("page")
		turn := downFirst
		h := head{Text: name, Right: right}
		if key == by {
			turn = !down
			h.Sorted = map[bool]string{true: "descending", false: "ascending"}[down]
		}
		q.Del("down")
		if turn {
			q.Set("down", "1")
		}
		h.URL = u.Path + "?" + q.Encode()
		out = append(out, h)
	}
	add("run", "Run", false, false)
	if metric != "" {
		out = append(out, head{Text: shown(metric)})
		if good != known.Unknown {
			add("best", "Best", true, good == known.Greatest)
		}
		add("now", "Last", true, good == known.Greatest)
	}
	add("steps", "Steps", true, true)
	add("size", "Size", true, true)
	add("last", "Written", false, true)
	return out
}

// paged are the rows of the page that a URL asks for, and links to all of them.
func paged[T any](rows []T, u *url.URL) (some []T, pages []link, now int) {
	_, _ = fmt.Sscan(u.Query().Get("page"), &now)
	n := (len(rows) + perPage - 1) / perPage
	now = max(0, min(now, n-1))
	if n > 1 {
		for i := range n {
			// the first, the last, and those around
			if i > 0 && i < n-1 && (i < now-3 || i > now+3) {
				continue
			}
			q := u.Query()
			q.Set("page", fmt.Sprint(i))
			pages = append(pages, link{fmt.Sprint(i + 1), u.Path + "?" + q.Encode()})
		}
	}
	return rows[min(now*perPage, len(rows)):min((now+1)*perPage, len(rows))], pages, now
}
