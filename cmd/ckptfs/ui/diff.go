package ui

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"path"
	"slices"
	"strings"

	"ckptfs/cmd/ckptfs/ui/known"
	"ckptfs/cmd/ckptfs/ui/layers"
	"ckptfs/fs/control"
)

// diffSample is how much of each tensor that differs is read, unless all is asked for.
const diffSample = 1 << 20

// mostChanges is how many tensors a page lists of each kind.
const mostChanges = 500

type diffBody struct {
	A, B string
	Full bool
	Part string
	Torn []*tornNote // of the steps that are compared

	Title       string
	Metrics     []metricChange // of the steps that both lie in, or whose run's last one is meant
	From, To    link           // these steps
	MoreMetrics int
}

// metricChange is a metric of two steps, as text; "": a step has none.
type metricChange struct{ Name, A, B, Change string }

func (s *server) diff(ctx context.Context, r *http.Request) (*page, error) {
	q := r.URL.Query()
	b := &diffBody{A: q.Get("a"), B: q.Get("b"), Full: q.Get("full") == "1"}
	b.Title = "What changed"
	p := &page{Name: "diff", Title: b.Title, Here: "files", Body: b}
	if b.A == "" || b.B == "" {
		return p, nil
	}
	name := func(p string) string { return shown(strings.TrimPrefix(strings.Trim(p, "/"), "runs/")) }
	b.Title += " from " + name(b.A) + " to " + name(b.B)
	p.Title = b.Title
	s.metrics(ctx, b)
	full := []string{}
	if b.Full {
		full = []string{"full", "1"}
	}
	b.Part = withQuery("/part/diff", append([]string{"a", b.A, "b", b.B}, full...)...)
	sample := " --sample 1MiB"
	if b.Full {
		sample = ""
	}
	p.Commands = []string{"ckptfs diff" + sample + " " + s.full(b.A) + " " + s.full(b.B)}
	p.JSON = b.Part + "&json=1"
	for _, of := range []string{b.A, b.B} {
		if n := s.tornAt(ctx, of); n != nil && strings.Count(of, "/") > 1 {
			b.Torn = append(b.Torn, n)
		}
	}
	return p, nil
}

// metrics sets those of the steps that are compared.
func (s *server) metrics(ctx context.Context, b *diffBody) {
	one, i := s.stepIn(ctx, b.A)
	two, k := s.stepIn(ctx, b.B)
	if i < 0 || k < 0 {
		return
	}
	place := func(l *known.Log, i int) link {
		p := path.Join(l.Run, l.Steps[i].Name)
		return link{p, pathURL("runs/" + p)}
	}
	b.From, b.To = place(one, i), place(two, k)
	names := append(one.Names(), two.Names()...)
	slices.Sort(names)
	for _, m := range slices.Compact(names) {
		v, w := one.Metrics[m], two.Metrics[m]
		c := metricChange{Name: m}
		before, after := len(v.Has) > 0 && v.Has[i], len(w.Has) > 0 && w.Has[k]
		if before {
			c.A = short(v.Of[i])
		}
		if after {
			c.B = short(w.Of[k])
		}
		if !before && !after {
			continue
		}
		if before && after {
			if by := w.Of[k] - v.Of[i]; by != 0 && !math.IsNaN(by) {
				if c.Change = short(by); by > 0 {
					c.Change = "+" + c.Change
				}
			}
		}
		b.Metrics = append(b.Metrics, c)
	}
	b.MoreMetrics = max(len(b.Metrics)-mostChanges, 0)
	b.Metrics = b.Metrics[:len(b.Metrics)-b.MoreMetrics]
}

// stepIn is the step that a path is or lies in, or the last complete one of the run that it is, which is what
// a comparison takes; -1: none.
func (s *server) stepIn(ctx context.Context, p string) (*known.Log, int) {
	p = strings.Trim(p, "/")
	l, i := s.stepOf(ctx, p)
	if l == nil || i >= 0 {
		return l, i
	}
	in, ok := strings.CutPrefix(p, "runs/"+l.Run+"/")
	for i := len(l.Steps) - 1; i >= 0; i-- {
		st := &l.Steps[i]
		if ok && strings.HasPrefix(in, st.Name+"/") || !ok && st.State == control.StepComplete {
			return l, i
		}
	}
	return l, -1
}

// exactURL is the page that reads all of what differs.
func exactURL(a, b string) string { return withQuery("/diff", "a", a, "b", b, "full", "1") }

// diffPartBody is what differs.
type diffPartBody struct {
	*control.Diff
	Most      []change // the tensors that moved furthest
	More      int
	Layers    chart
	HasLayers bool
	Sampled   bool
	MoreAdded int
	MoreGone  int
	All       string // the page that reads all
}

type change struct {
	*control.TensorChange
	URL string
}

func (s *server) diffPart(ctx context.Context, r *http.Request) (*page, error) {
	q := r.URL.Query()
	o := control.DiffOptions{A: q.Get("a"), B: q.Get("b"), Sample: diffSample}
	if q.Get("full") == "1" {
		o.Sample = 0
	}
	d, err := s.c.Diff(ctx, o, nil, nil)
	if err != nil {
		return nil, err
	}
	b := &diffPartBody{Diff: d, All: exactURL(o.A, o.B)}
	for i := range d.Changed {
		b.Most = append(b.Most, change{&d.Changed[i],
			tensorURL(d.Changed[i].File, d.Changed[i].Name)})
		b.Sampled = b.Sampled || d.Changed[i].Sampled > 0
	}
	far := func(c change) float64 {
		if c.RelNorm == nil || math.IsNaN(float64(*c.RelNorm)) {
			return -1
		}
		return float64(*c.RelNorm)
	}
	slices.SortStableFunc(b.Most, func(a, b change) int { return cmp.Compare(far(b), far(a)) })
	if b.Layers, b.HasLayers = layerChart(d); b.Sampled {
		b.Layers.Caption += ", by a sample of each"
	}
	b.More = max(len(b.Most)-mostChanges, 0)
	b.Most = b.Most[:len(b.Most)-b.More]
	shownOnly := *d
	b.MoreAdded = max(len(d.Added)-mostChanges, 0)
	b.MoreGone = max(len(d.Removed)-mostChanges, 0)
	shownOnly.Added = d.Added[:len(d.Added)-b.MoreAdded]
	shownOnly.Removed = d.Removed[:len(d.Removed)-b.MoreGone]
	b.Diff = &shownOnly
	return &page{Name: "diffpart", Body: b, Data: d}, nil
}

// layerChart shows how far each layer moved.
func layerChart(d *control.Diff) (chart, bool) {
	var names []string
	by, norms := map[string]float64{}, map[string]float64{}
	for i := range d.Changed {
		c := &d.Changed[i]
		far, norm, ok := layers.Squares(c)
		if !ok {
			continue
		}
		name := layers.Of(c.Name)
		if _, ok := by[name]; !ok {
			names = append(names, name)
		}
		by[name] += far
		norms[name] += norm
	}
	if len(names) < 2 || len(names) > 400 {
		return chart{}, false
	}
	b := bars{Series: []barSeries{{Name: "|Δ|/|A|"}}}
	for _, n := range names {
		b.Categories = append(b.Categories, shown(n))
		value := 0.0
		if norms[n] > 0 {
			value = math.Sqrt(by[n] / norms[n])
		}
		b.Series[0].Values = append(b.Series[0].Values, number(value))
	}
	return chart{"bars", "How far each layer moved: |Δ|/|A| over its tensors that changed", b}, true
}
