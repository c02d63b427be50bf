package ui

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"ckptfs/cmd/ckptfs/ui/curve"
	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/fs/control"
)

// mostCurves is how many metrics are drawn that nobody asked for, and mostDrawn how many of those that
// somebody did.
const mostCurves, mostDrawn = 8, 64

// curvePoints is how many stretches a curve is reduced to.
const curvePoints = 300

// runBody is the page of a run.
type runBody struct {
	Run     string
	Path    string
	Steps   int
	Logical int64
	New     int64
	Stored  int64
	States  []string
	Charts  []chart
	Sizes   chart
	Metrics []metricRow
	Left    int // metrics that are not among them
	Rows    []stepRow
	Pages   []link
	PageNow int
	Names   []string // of the metrics in the table
	Torn    *tornNote
	Unread  unread
}

type metricRow struct {
	Name    string
	Drawn   bool
	Best    *bestValue
	Last    *bestValue
	Which   string // "least", "greatest"; "": nobody knows
	Compare string
}

type stepRow struct {
	known.Step
	URL    string
	Diff   string // to the step before it
	Values []string
	Best   []bool
}

// wanted are the metrics that a URL asks for, or else the first ones.
func wanted(r *http.Request, names []string) []string {
	if asked := r.URL.Query()["metric"]; len(asked) > 0 {
		slices.Sort(asked)
		asked = slices.DeleteFunc(slices.Compact(asked),
			func(m string) bool { return !slices.Contains(names, m) })
		return asked[:min(len(asked), mostDrawn)]
	}
	first := slices.Clone(names)
	slices.SortStableFunc(first, func(a, b string) int { return rankOf(a) - rankOf(b) })
	return first[:min(len(first), mostCurves)]
}

// rankOf has metrics that say how good a model is before those that say how it runs.
func rankOf(metric string) int {
	l := strings.ToLower(metric)
	for i, part := range []string{"val", "eval", "loss", "acc", ""} {
		if strings.Contains(l, part) {
			return i
		}
	}
	return 9
}

func (s *server) run(ctx context.Context, r *http.Request) (*page, error) {
	name := r.URL.Query().Get("run")
	l, err := s.runs.Log(ctx, name)
	if err != nil {
		return nil, err
	}
	b := &runBody{Run: name, Path: "runs/" + name, Steps: len(l.Steps), Left: l.Left}
	states := map[string]int{}
	for i := range l.Steps {
		st := &l.Steps[i]
		b.Logical, b.New, b.Stored = b.Logical+st.Logical, b.New+st.New, b.Stored+st.Stored
		states[st.State]++
	}
	for _, state := range []string{control.StepComplete, control.StepTorn, control.StepWriting,
		control.StepArriving} {
		if n := states[state]; n > 0 {
			b.States = append(b.States, fmt.Sprintf("%d %s", n, state))
		}
	}
	names := l.Names()
	drawn := wanted(r, names)
	for _, m := range drawn {
		b.Charts = append(b.Charts, curveOf([]*known.Log{l}, m))
	}
	for _, m := range names {
		v, good := l.Metrics[m], known.Good(m)
		row := metricRow{Name: m, Drawn: slices.Contains(drawn, m), Which: good.String(),
			Best: valueOf(l, v, l.Best(v, good)), Last: valueOf(l, v, l.Last(v)),
			Compare: withQuery("/compare", "run", name, "metric", m)}
		b.Metrics = append(b.Metrics, row)
	}
	b.Sizes = sizesOf(l)
	b.Torn = s.tornOf(l, func(string) bool { return true })
	b.Unread = unreadOf(l)
	b.Names = drawn[:min(len(drawn), 4)]
	b.table(l, r)
	return &page{Name: "run", Title: "Run " + shown(name), Here: "runs", Body: b,
		Data:     later(func() any { return logJSON(l) }),
		Crumbs:   []link{{"runs", "/runs"}, {shown(name), withQuery("/run", "run", name)}},
		Commands: []string{"ckptfs log " + s.full("runs/"+name), "ckptfs du " + s.full("runs/"+name)}}, nil
}

// curveOf is the curve of a metric in runs.
func curveOf(runs []*known.Log, metric string) chart {
	c := lines{Title: shown(metric), X: "step", Series: []lineCurve{}}
	for _, l := range runs {
		v, ok := l.Metrics[metric]
		if !ok {
			continue
		}
		x := numbersOf(l)
		one := lineCurve{Name: shown(l.Run), Href: withQuery("/path", "path", "runs/"+l.Run+"/")}
		for _, p := range curve.Reduce(x, v.Of, l.Whole(v), curvePoints) {
			one.Points = append(one.Points, []any{number(p.X), number(p.Y), l.Steps[p.I].Name})
		}
		if i := l.Best(v, known.Good(metric)); i >= 0 {
			one.Best = []any{number(x[i]), number(v.Of[i]), l.Steps[i].Name}
		}
		for i := range l.Steps {
			if l.Steps[i].State == control.StepTorn && len(c.Torn) < 100 {
				c.Torn = append(c.Torn, fmt.Sprint(x[i]))
			}
		}
		// A torn step at the end has no value, and room for its mark.
		if end := len(l.Steps) - 1; end >= 0 && l.Steps[end].State == control.StepTorn {
			one.Points = append(one.Points, []any{number(x[end]), nil, l.Steps[end].Name})
		}
		c.Series = append(c.Series, one)
	}
	return chart{"lines", shown(metric) + " over the steps", c}
}

// numbersOf are the numbers in the names of steps, by which they are drawn; where these do not ascend, their
// places in the run.
func numbersOf(l *known.Log) []float64 {
	x := make([]float64, len(l.Steps))
	for i := range l.Steps {
		x[i] = lastNumber(l.Steps[i].Name)
		if math.IsNaN(x[i]) || i > 0 && x[i] <= x[i-1] {
			for k := range x {
				x[k] = float64(k)
			}
			return x
		}
	}
	return x
}

// lastNumber is the last number in a name; NaN for none.
func lastNumber(name string) float64 {
	end := strings.LastIndexAny(name, "0123456789") + 1
	from := end
	for from > 0 && name[from-1] >= '0' && name[from-1] <= '9' && end-from < 15 {
		from--
	}
	if from == end {
		return math.NaN()
	}
	n := 0.0
	for _, c := range name[from:end] {
		n = 10*n + float64(c-'0')
	}
	return n
}

func sizesOf(l *known.Log) chart {
	x := numbersOf(l)
	of := func(name string, get func(*known.Step) int64) lineCurve {
		y := make([]float64, len(l.Steps))
		for i := range l.Steps {
			y[i] = float64(get(&l.Steps[i]))
		}
		c := lineCurve{Name: name}
		for _, p := range curve.Reduce(x, y, nil, curvePoints) {
			c.Points = append(c.Points, []any{number(p.X), number(p.Y), l.Steps[p.I].Name})
		}
		return c
	}
	return chart{"lines", "Size of each step, what of it no step before it has, and what that takes stored",
		lines{X: "step", Bytes: true, Series: []lineCurve{
			of("size", func(s *known.Step) int64 { return s.Logical }),
			of("new", func(s *known.Step) int64 { return s.New }),
			of("stored", func(s *known.Step) int64 { return s.Stored }),
		}}}
}

// table makes the rows of the steps, the latest first.
func (b *runBody) table(l *known.Log, r *http.Request) {
	best := map[string]int{}
	for _, m := range b.Names {
		best[m] = l.Best(l.Metrics[m], known.Good(m))
	}
	order := make([]int, len(l.Steps))
	for i := range order {
		order[i] = len(l.Steps) - 1 - i
	}
	var some []int
	some, b.Pages, b.PageNow = paged(order, r.URL)
	for _, i := range some {
		path := b.Path + "/" + l.Steps[i].Name
		row := stepRow{Step: l.Steps[i], URL: pathURL(path)}
		if i > 0 {
			row.Diff = withQuery("/diff", "a", b.Path+"/"+l.Steps[i-1].Name, "b", path)
		}
		for _, m := range b.Names {
			value := ""
			if v := l.Metrics[m]; v.Has[i] {
				value = short(v.Of[i])
			}
			row.Values, row.Best = append(row.Values, value), append(row.Best, best[m] == i)
		}
		b.Rows = append(b.Rows, row)
	}
}

// logJSON is a log as ckptfs log --json prints it.
func logJSON(l *known.Log) *control.RunLog {
	out := &control.RunLog{Run: l.Run, Steps: make([]control.Step, len(l.Steps))}
	for i := range l.Steps {
		s := &l.Steps[i]
		st := control.Step{Step: s.Name, Exact: control.Exact(s.Name), State: s.State,
			Time: s.Time, Files: s.Files,
			LogicalBytes: s.Logical, NewBytes: s.New, StoredBytes: s.Stored, PlainBytes: s.Plain,
			SharedWith: s.Shared, SharedBytes: s.SharedBy, Problem: s.Problem,
			Metrics: map[string]control.Number{}}
		for name, v := range l.Metrics {
			if v.Has[i] {
				st.Metrics[name] = control.Number(v.Of[i])
			}
		}
		out.Steps[i] = st
	}
	return out
}

// movesPart is the heat map of a run, as JSON: the script draws it, and asks until it is whole.
func (s *server) movesPart(ctx context.Context, r *http.Request) (*page, error) {
	name := r.URL.Query().Get("run")
	l, err := s.runs.Log(ctx, name)
	if err != nil {
		return nil, err
	}
	return &page{Data: s.moves.Of(l)}, nil
}

// compareBody is the page of several runs.
type compareBody struct {
	Runs    []string
	Unknown []string // that were asked for, and are not there
	Others  []string // that may be added
	Charts  []chart
	Rows    []compareRow
	Metrics []string
}

type compareRow struct {
	Metric string
	Drawn  bool
	Values []*bestValue // the best of each run, or else the last
	Last   bool         // they are the last: nobody knows which end is good
	Best   int          // whose is best of all; -1: nobody's
}

// compared is the row of a metric.
func compared(logs []*known.Log, metric string) compareRow {
	good := known.Good(metric)
	row := compareRow{Metric: metric, Best: -1, Last: good == known.Unknown}
	for k, l := range logs {
		v := l.Metrics[metric] // zero: the run has no such metric
		i := l.Best(v, good)
		if row.Last {
			i = l.Last(v)
		}
		value := valueOf(l, v, i)
		row.Values = append(row.Values, value)
		if value == nil || row.Last {
			continue
		}
		if row.Best < 0 || good == known.Greatest && value.Value > row.Values[row.Best].Value ||
			good == known.Least && value.Value < row.Values[row.Best].Value {
			row.Best = k
		}
	}
	return row
}

// mostCompared is how many runs are compared.
const mostCompared = 12

func (s *server) compare(ctx context.Context, r *http.Request) (*page, error) {
	q := r.URL.Query()
	asked := q["run"]
	slices.Sort(asked)
	asked = slices.DeleteFunc(slices.Compact(asked), func(n string) bool { return n == "" })
	if len(asked) > mostCompared {
		return nil, control.Invalid("%d runs are asked for: at most %d are compared at once",
			len(asked), mostCompared)
	}
	b := &compareBody{}
	var logs []*known.Log
	count := map[string]int{}
	for _, name := range asked {
		l, err := s.runs.Log(ctx, name)
		if err != nil && (control.AsError(err).Code != control.CodeNotFound || len(asked) == 1) {
			return nil, err
		}
		if err != nil {
			b.Unknown = append(b.Unknown, shown(name))
			continue
		}
		logs, b.Runs = append(logs, l), append(b.Runs, name)
		for m := range l.Metrics {
			count[m]++
		}
	}
	list, err := s.runs.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list.Runs {
		if n := list.Runs[i].Run; !slices.Contains(b.Runs, n) && len(b.Others) < 2000 {
			b.Others = append(b.Others, n)
		}
	}
	for m := range count {
		b.Metrics = append(b.Metrics, m)
	}
	slices.Sort(b.Metrics)
	drawn := wanted(r, b.Metrics)
	for _, m := range drawn {
		b.Charts = append(b.Charts, curveOf(logs, m))
	}
	for _, m := range b.Metrics {
		row := compared(logs, m)
		row.Drawn = slices.Contains(drawn, m)
		b.Rows = append(b.Rows, row)
	}
	data := func() any {
		all := make([]*control.RunLog, len(logs))
		for i, l := range logs {
			all[i] = logJSON(l)
		}
		return all
	}
	var commands []string
	for _, l := range logs {
		commands = append(commands, "ckptfs log "+s.full("runs/"+l.Run))
	}
	return &page{Name: "compare", Title: "Compare runs", Here: "runs", Body: b, Data: later(data),
		Commands: commands, Crumbs: []link{{"runs", "/runs"}, {"compare", r.URL.RequestURI()}}}, nil
}
